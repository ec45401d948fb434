"""A TCP proxy before a Temporal server that can swallow an answer: the request goes through, the reply does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Forgetful:
    """Between clients and a server."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.partition(":")
        self._port = int(port)
        self._tasks: set[asyncio.Task[None]] = set()
        self._swallow = self._spare = 0
        self.swallowed = 0
        """Answers that were lost."""
        self.address = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Forgetful]:
        """Serve on a port of its own."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def lose(self, answers: int = 1, after: int = 0) -> None:
        """After so many that come through, answers are lost, and with each the connection it would have come by."""
        self._swallow, self._spare = answers, after

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        asked = asyncio.Event()
        for pump in (self._up(reader, there_writer, asked), self._down(there_reader, writer, asked)):
            task = asyncio.create_task(pump)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _up(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, asked: asyncio.Event) -> None:
        try:
            while data := await source.read(65536):
                if self._swallow and len(data) > ANSWERED:
                    asked.set()
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            return
        finally:
            sink.close()

    async def _down(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, asked: asyncio.Event) -> None:
        try:
            while data := await source.read(65536):
                if self._swallow and asked.is_set() and len(data) > ANSWERED:
                    self._spare -= 1
                    if self._spare < 0:
                        self._swallow -= 1
                        self.swallowed += 1
                        return
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            return
        finally:
            sink.close()


ANSWERED = 60
"""Bytes: what is longer is a request or an answer, what is shorter keeps a connection alive."""
