"""LISTEN: hears of work, results and cancellations at the instant they are committed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final

import asyncpg

from semel.engine.failure_log import log_failure
from semel.engines.journal.script import Listener, Topic
from semel.engines.postgres.address import Address
from semel.engines.postgres.connection import CLOSE_WITHIN, LOST, close_bounded, translate
from semel.errors import EngineUnavailable, SemelError, phrase
from semel.runtime.retries import pause

log = logging.getLogger("semel.postgres")
CHANNELS: Final = {
    Topic.RESULTS: ("semel_done",),
    Topic.WORK: ("semel_work", "semel_later", "semel_cancel", "semel_news", "semel_schedule"),
}


class NotificationListener:
    """One listening connection that comes back by itself; what it missed is covered by the slow poll."""

    def __init__(self, address: Address, listener: Listener) -> None:
        self._address = address
        self._listener = listener
        self._connection: asyncpg.Connection | None = None
        self._lost = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._topics: set[Topic] = set()
        self._opening = asyncio.Lock()

    async def hear(self, topic: Topic) -> None:
        """Listen now if the server answers, and keep listening; to this topic besides those it was asked for before."""
        async with self._opening:
            if topic in self._topics:
                return
            self._topics.add(topic)
            try:
                if self._keeper is None:
                    await self._connect()
                elif self._connection is not None:
                    await self._listen_to(self._connection, topic)
                else:
                    self._lost.set()
            except (asyncpg.PostgresError, *LOST) as error:
                self._topics.discard(topic)
                if self._keeper is None:
                    self._drop()
                else:
                    self._lost.set()
                raise translate(error) from error
            if self._keeper is None:
                self._keeper = asyncio.create_task(self._keep())
                log_failure(self._keeper, log, "stopped listening to PostgreSQL, polling from now on")

    async def again(self) -> None:
        """The connection looks alive and hears nothing: replace it."""
        self._lost.set()

    async def _connect(self) -> None:
        self._connection = connection = await self._address.connect({"application_name": "semel ear"})
        connection.add_termination_listener(self._ended)
        for topic in tuple(self._topics):
            await self._listen_to(connection, topic)

    async def _listen_to(self, connection: asyncpg.Connection, topic: Topic) -> None:
        for channel in CHANNELS[topic]:
            await connection.add_listener(channel, self._heard)

    async def _keep(self) -> None:
        attempt = 0
        while True:
            await self._lost.wait()
            self._lost.clear()
            try:
                async with self._opening:
                    self._drop()
                    await self._connect()
            except (SemelError, asyncpg.PostgresError, *LOST) as error:
                told = translate(error)
                away = isinstance(told, EngineUnavailable)  # whoever asks it something says so
                level = logging.DEBUG if away else logging.WARNING
                log.log(level, "not listening to PostgreSQL (%s); polling meanwhile", phrase(told))
                self._lost.set()
                attempt += 1
                await asyncio.sleep(pause(attempt))
                continue
            attempt = 0
            self._listener.poll_everything()

    def _ended(self, connection: Any) -> None:
        if connection is self._connection:  # one that was dropped has been replaced already
            self._lost.set()

    def _heard(self, _connection: Any, _pid: int, channel: str, told: object) -> None:
        payload = str(told)
        if not payload:  # there was more to tell than fits into a notification
            self._listener.poll_everything()
            return
        match channel:
            case "semel_work":
                self._listener.work(map(int, payload.split(",")))
            case "semel_later":
                self._listener.due(int(payload))
            case "semel_done":
                self._listener.done(payload.split(","))
            case "semel_cancel":
                self._listener.cancel(payload)
            case "semel_schedule":
                self._listener.schedules()
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
            await close_bounded(self._connection, CLOSE_WITHIN)
