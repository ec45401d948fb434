"""The PostgreSQL store: each line of work has its connections, each statement one pinned plan."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final, ParamSpec, TypeVar, cast

import asyncpg

from semel.engines.journal.script import (
    Ask,
    Each,
    Line,
    Listener,
    Procedure,
    Raw,
    Script,
    Statement,
    Tap,
    Work,
    load_migrations,
    load_queries,
)
from semel.engines.postgres.ear import Ear
from semel.engines.postgres.wire import LOST, PLANS, Wire
from semel.engines.postgres.work import RETRIED, work_in

T = TypeVar("T")
P = ParamSpec("P")

OLDEST: Final = 14
_TRIES: Final = 5


class PostgresStore:
    """One PostgreSQL database, used by one event loop."""

    dialect = "postgres"

    def __init__(self, url: str) -> None:
        self.url = url
        self.migrations = load_migrations("semel.engines.postgres")
        self.tap: Tap | None = None
        self._queries = load_queries("semel.engines.postgres")
        # A claim need not outlive a crash of the server: if it is lost, the task is free again.
        self._wires = {
            line: [
                Wire(url, line.value, {**PLANS, "synchronous_commit": "off"} if line is Line.CLAIM else PLANS)
                for _ in range(2 if line is Line.SETTLE else 1)
            ]
            for line in Line
        }
        self._ear: Ear | None = None

    async def run(self, script: Procedure[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a script; see Store."""
        for attempt in range(_TRIES):
            async with self._wire(script.line) as connection:
                try:
                    if script.atomic:
                        return cast(T, await self._play(connection, script(*args, **kwargs)))
                    return cast(T, await self._transact(connection, script(*args, **kwargs)))
                except RETRIED:
                    if attempt == _TRIES - 1:
                        raise
        raise AssertionError("unreachable")

    def _wire(self, line: Line) -> Wire:
        """One that is free, or the first."""
        first, *others = self._wires[line]
        return next((wire for wire in others if not wire.busy), first) if first.busy else first

    async def _transact(self, connection: asyncpg.Connection, script: Script[Any]) -> Any:
        await self._step(connection, "begin")
        try:
            result = await self._play(connection, script)
        except Exception:
            if not connection.is_closed():
                with contextlib.suppress(asyncpg.PostgresError, *LOST):
                    await connection.execute("rollback")
            raise
        await self._step(connection, "commit")
        return result

    async def _step(self, connection: asyncpg.Connection, sql: str) -> None:
        if self.tap is not None:
            self.tap.before(sql)
        await connection.execute(sql)
        if self.tap is not None:
            self.tap.after(sql)

    async def _play(self, connection: asyncpg.Connection, script: Script[Any]) -> Any:
        try:
            statement = next(script)
            while True:
                if self.tap is not None:
                    self.tap.before(statement.name)
                rows = await self._execute(connection, statement)
                if self.tap is not None:
                    self.tap.after(statement.name)
                statement = script.send(rows)
        except StopIteration as stop:
            return stop.value

    async def _execute(self, connection: asyncpg.Connection, statement: Statement) -> list[Any]:
        match statement:
            case Ask(name, args):
                return cast(list[Any], await connection.fetch(self._queries[name], *args))
            case Each(name, rows, shared):
                columns = map(list, zip(*rows, strict=True))
                return cast(list[Any], await connection.fetch(self._queries[name], *shared, *columns))
            case Raw(_, text):
                await connection.execute(text)
                return []
            case Work(_, do):
                return [await work_in(connection, do, self.tap)]

    async def listen(self, listener: Listener) -> None:
        """Hear of what other processes commit."""
        self._ear = Ear(self.url, listener)
        await self._ear.open()

    async def relisten(self) -> None:
        """Replace a listening connection that hears nothing."""
        if self._ear is not None:
            await self._ear.again()

    async def check(self) -> list[tuple[bool, str, str]]:
        """The server's version and durability settings."""
        async with self._wire(Line.READ) as connection:
            version = connection.get_server_version()
            findings = [
                (
                    version.major >= OLDEST,
                    "PostgreSQL version",
                    f"{version.major}.{version.minor} (needs {OLDEST} or newer)",
                )
            ]
            for name in ("fsync", "full_page_writes", "synchronous_commit"):
                value = getattr(connection.get_settings(), name, None) or await connection.fetchval(f"show {name}")
                findings.append((value != "off", name, f"{value}"))
            return findings

    async def close(self) -> None:
        """Close every connection."""
        if self._ear is not None:
            await self._ear.close()
        await asyncio.gather(*(wire.close() for wires in self._wires.values() for wire in wires))
