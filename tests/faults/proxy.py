"""A small TCP proxy that can go deaf: connections stay open and carry nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """Between a client and PostgreSQL."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._deaf: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.ears = 0
        """Connections that have said LISTEN."""
        self._listening: set[int] = set()
        self._connections = 0
        self.gone = False
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        """Serve on a port of its own."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        user = self._target.netloc.rpartition("@")[0]
        self.url = urlunsplit(self._target._replace(netloc=f"{user}@127.0.0.1:{port}"))
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def deafen_all(self) -> None:
        """Every connection there is now carries nothing any more, and nobody tells either end."""
        self._deaf |= set(range(1, self._connections + 1))

    def vanish(self) -> None:
        """As if the server were gone without a word: no connection carries anything, new ones neither."""
        self.deafen_all()
        self.gone = True

    def come_back(self) -> None:
        """New connections reach the server again; the old ones stay as they are."""
        self.gone = False

    def deafen_ears(self) -> None:
        """What listens now hears nothing any more, and nobody tells it."""
        self._deaf |= self._listening

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        number = self._connections
        if self.gone:
            self._deaf.add(number)
        there_reader, there_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        for source, sink, up in ((reader, there_writer, True), (there_reader, writer, False)):
            task = asyncio.create_task(self._pump(number, source, sink, up))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, number: int, source: asyncio.StreamReader, sink: asyncio.StreamWriter, up: bool) -> None:
        try:
            while data := await source.read(65536):
                if up and b"LISTEN " in data and number not in self._listening:
                    self._listening.add(number)
                    self.ears += 1
                if number in self._deaf:
                    continue
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            return
        finally:
            sink.close()
