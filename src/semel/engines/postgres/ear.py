"""LISTEN: hears of work, results and cancellations at the instant they are committed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final

import asyncpg

from semel.engines.journal.patience import pause
from semel.engines.journal.script import Listener
from semel.engines.postgres.wire import LOST, connect

log = logging.getLogger("semel.postgres")
CHANNELS: Final = ("semel_work", "semel_later", "semel_done", "semel_cancel", "semel_news")


class Ear:
    """One listening connection that comes back by itself; what it missed is covered by the slow poll."""

    def __init__(self, url: str, listener: Listener) -> None:
        self._url = url
        self._listener = listener
        self._connection: asyncpg.Connection | None = None
        self._lost = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Listen now if the server answers, and keep listening."""
        await self._connect()
        self._keeper = asyncio.create_task(self._keep())

    async def again(self) -> None:
        """The connection looks alive and hears nothing: replace it."""
        self._lost.set()

    async def _connect(self) -> None:
        self._connection = connection = await connect(self._url, {"application_name": "semel ear"})
        connection.add_termination_listener(self._ended)
        for channel in CHANNELS:
            await connection.add_listener(channel, self._heard)

    async def _keep(self) -> None:
        attempt = 0
        while True:
            await self._lost.wait()
            self._lost.clear()
            self._drop()
            try:
                await self._connect()
            except (asyncpg.PostgresError, *LOST) as error:
                log.warning("not listening to PostgreSQL (%s); polling meanwhile", error)
                self._lost.set()
                attempt += 1
                await asyncio.sleep(pause(attempt))
                continue
            attempt = 0
            self._listener.stirred()

    def _ended(self, connection: Any) -> None:
        if connection is self._connection:  # one that was dropped has been replaced already
            self._lost.set()

    def _heard(self, _connection: Any, _pid: int, channel: str, told: object) -> None:
        payload = str(told)
        match channel:
            case "semel_work":
                self._listener.work(map(int, payload.split(",")))
            case "semel_later":
                self._listener.due(int(payload))
            case "semel_done":
                self._listener.done(payload.split(","))
            case "semel_cancel":
                self._listener.cancel(payload)
            case "semel_news":
                self._listener.news(payload.split(","))

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.terminate()

    async def close(self) -> None:
        """Listen no more."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        if self._connection is not None:
            with contextlib.suppress(*LOST, asyncpg.PostgresError):
                await self._connection.close(timeout=2)
