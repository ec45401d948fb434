"""The PostgreSQL store: each line of work has its connections, each statement one pinned plan."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any, Final, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

import asyncpg

from semel.engine.bounded import note_answer
from semel.engine.caller_connection import CallerConnection
from semel.engines.journal.script import (
    Begin,
    ConnectionRole,
    Listener,
    Procedure,
    Raw,
    Row,
    Script,
    SqlBatch,
    SqlQuery,
    Topic,
    Work,
    load_migrations,
    load_queries,
)
from semel.engines.postgres.address import Address
from semel.engines.postgres.connection import LOST, PLANS, PostgresConnection
from semel.engines.postgres.listener import NotificationListener
from semel.engines.postgres.pool import is_pooled
from semel.engines.postgres.user_transactions import RETRIED, work_in
from semel.transactional.statements import StatementHook

T = TypeVar("T")
P = ParamSpec("P")

OLDEST: Final = 14
_TRIES: Final = 5
ANSWER_WITHIN: Final = 10.0
"""Seconds for the first answer on a new connection that a worker needs before it takes work."""


class PostgresStore:
    """One PostgreSQL database, used by one event loop."""

    dialect = "postgres"
    one_writer = False

    def __init__(self, url: str) -> None:
        self.url = url
        self.migrations = load_migrations("semel.engines.postgres")
        self.tap: StatementHook | None = None
        self._queries = load_queries("semel.engines.postgres")
        self._address = Address(url)
        # A claim need not outlive a crash of the server: if it is lost, the task is free again. Where that must not be,
        # on its last attempt, the worker waits for the disk before it begins (`confirm`).
        self._wires = {
            line: [
                PostgresConnection(
                    self._address,
                    line.value,
                    {**PLANS, "synchronous_commit": "off"} if line is ConnectionRole.CLAIM else PLANS,
                )
                for _ in range(2 if line is ConnectionRole.SETTLE else 1)
            ]
            for line in ConnectionRole
        }
        self._ear: NotificationListener | None = None
        self._working: set[asyncpg.Connection] = set()
        """Connections on which a function of the user's runs, which may take its time."""
        self._identity: Row = ()
        self._callers: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        """Connections of callers, and whether they are to this database."""

    @property
    def reconnections(self) -> int:
        """See Store."""
        return self._wires[ConnectionRole.CONTROL][0].opened

    async def run(self, script: Procedure[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a script; see Store."""
        for attempt in range(_TRIES):
            async with self._wire(script.line) as connection:
                try:
                    done = await self._play(connection, script(*args, **kwargs), begun=not script.atomic)
                    note_answer()
                    return cast(T, done)
                except RETRIED:
                    if attempt == _TRIES - 1:
                        raise
        raise AssertionError("unreachable")

    def _wire(self, line: ConnectionRole) -> PostgresConnection:
        """One that is free, or the first."""
        first, *others = self._wires[line]
        return next((wire for wire in others if not wire.busy), first) if first.busy else first

    async def _step(self, connection: asyncpg.Connection, sql: str) -> None:
        if self.tap is not None:
            self.tap.before(sql)
        await connection.execute(sql)
        if self.tap is not None:
            self.tap.after(sql)

    async def _play(self, connection: asyncpg.Connection, script: Script[Any], *, begun: bool) -> Any:
        """A script to its end, in a transaction from its start (`begun`), or from where it asks for one."""
        if begun:
            await self._step(connection, "begin")
        try:
            statement = next(script)
            while True:
                rows: list[Any] = []
                if not isinstance(statement, Begin):
                    if self.tap is not None:
                        self.tap.before(statement.name)
                    rows = await self._execute(connection, statement)
                    if self.tap is not None:
                        self.tap.after(statement.name)
                elif not begun:
                    await self._step(connection, "begin")
                    begun = True
                statement = script.send(rows)
        except StopIteration as stop:
            if begun:
                await self._step(connection, "commit")
            return stop.value
        except Exception:
            if begun and not connection.is_closed():
                with contextlib.suppress(asyncpg.PostgresError, *LOST):
                    await connection.execute("rollback")
            raise

    async def _execute(self, connection: asyncpg.Connection, statement: SqlQuery | SqlBatch | Raw | Work) -> list[Any]:
        match statement:
            case SqlQuery() | SqlBatch():
                ((sql, bound),) = self.render(statement)
                return cast(list[Any], await connection.fetch(sql, *bound))
            case Raw(_, text):
                await connection.execute(text)
                return []
            case Work(_, do):
                self._working.add(connection)
                try:
                    return [await work_in(connection, do, self.tap)]
                finally:
                    self._working.discard(connection)

    def render(self, statement: SqlQuery | SqlBatch) -> list[tuple[str, tuple[Any, ...]]]:
        """A statement as SQL; see Store. The rows of a batch are its columns, as arrays."""
        if isinstance(statement, SqlQuery):
            return [(self._queries[statement.name], statement.args)]
        columns = map(list, zip(*statement.rows, strict=True))
        return [(self._queries[statement.name], (*statement.shared, *columns))]

    async def is_ours(self, connection: CallerConnection) -> bool:
        """Is it to this database? See Store. What was found of a connection stays so.

        A database without Semel's tables is another one: that is known without asking ours, which may be away.
        """
        if connection.dialect != self.dialect:
            return False
        known: bool | None = None
        with contextlib.suppress(TypeError):
            known = self._callers.get(connection.driver_connection)
        if known is not None:
            return known
        sql = self._queries["identity"]
        theirs = (await connection.play(lambda: connection.fetch(sql, ())))[0]
        if theirs[1] is not None and theirs != self._identity:
            async with self._wire(ConnectionRole.READ) as own:
                self._identity = tuple((await own.fetch(self._queries["identity"]))[0])
        known = theirs == self._identity
        with contextlib.suppress(TypeError):
            self._callers[connection.driver_connection] = known
        return known

    def expect_commit(self, connection: CallerConnection) -> None:
        """See Store. NOTIFY is part of the caller's transaction."""

    def now(self) -> int:
        """See Store. PostgreSQL has a clock."""
        return 0

    async def listen(self, listener: Listener, topic: Topic) -> None:
        """Hear of what other processes commit, as far as the topic goes."""
        if self._ear is None:
            self._ear = NotificationListener(self._address, listener)
        await self._ear.hear(topic)

    async def relisten(self) -> None:
        """Replace a listening connection that hears nothing."""
        if self._ear is not None:
            await self._ear.again()

    def is_ready(self, lines: Iterable[ConnectionRole]) -> bool:
        """Is every connection for these lines of work open, as far as is known here?"""
        return all(wire.ready for line in lines for wire in self._wires[line])

    async def make_ready(self, lines: Iterable[ConnectionRole]) -> None:
        """Open the connections for these lines of work that are not open; see Store."""
        for line in lines:
            for wire in self._wires[line]:
                if not wire.ready:
                    # A pool lets clients in that it has no connection to the server for: only an answer counts.
                    async with wire as connection, asyncio.timeout(ANSWER_WITHIN):
                        await connection.execute("select")

    async def verify(self, patience: float) -> None:
        """Replace connections that do not answer; see Store."""
        await self.relisten()
        await asyncio.gather(
            *(wire.verify(patience, self._working) for wires in self._wires.values() for wire in wires)
        )

    async def check(self) -> list[tuple[bool, str, str]]:
        """The server's version and durability settings."""
        async with self._wire(ConnectionRole.READ) as connection:
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
            hanging = [
                f"{name} is {state} for {seconds} s"
                for name, state, seconds in await connection.fetch(self._queries["hanging_sessions"])
            ]
            findings.append((not hanging, "sessions", ", ".join(hanging) or "none hangs"))
            if await is_pooled(connection):
                findings.append(await self._check_pool(connection))
            return findings

    async def _check_pool(self, connection: asyncpg.Connection) -> tuple[bool, str, str]:
        """A pool in session mode; others were refused. It may drop our settings, which then belong to the role."""
        wrong = [
            f"{name} = {value!r}"
            for name, value in PLANS.items()
            if await connection.fetchval("select current_setting($1)", name) != value
        ]
        told = f"ignores {', '.join(wrong)}: set them on the role, with alter role .. set .."
        return not wrong, "pool", told if wrong else "in session mode, with the settings of Semel"

    async def close(self) -> None:
        """Close every connection."""
        if self._ear is not None:
            await self._ear.close()
        await asyncio.gather(*(wire.close() for wires in self._wires.values() for wire in wires))
