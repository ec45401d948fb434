"""An outbox in PostgreSQL, with a second connection that listens."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final, TypeVar

import asyncpg

from semel.errors import EngineError, EngineUnavailable, phrase_with_type
from semel.transactional.outbox.database import hide_password, no_outbox, sleep_until
from semel.transactional.statements import Many, One, Row, Script, StatementHook, Statements, folder_of

T = TypeVar("T")
CHANNEL: Final = "semel_outbox"
CONNECT_TIMEOUT: Final = 10.0
FINISH_CONNECTING: Final = 2.0
"""Seconds that a connection which nobody wants any more may take to come about, before it is given up."""
COMMAND_TIMEOUT: Final = 60.0
SETTINGS: Final = {
    "application_name": "semel relay",
    # The server gives up a little before the client does: what timed out here does not go on there.
    "statement_timeout": "55s",
    "idle_in_transaction_session_timeout": "60s",
    "tcp_keepalives_idle": "20",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
}
LOST: Final = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.QueryCanceledError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
)
AGAIN: Final = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)


class PostgresOutbox:
    """See OutboxDatabase."""

    dialect = "postgres"

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = hide_password(url)
        self.tap: StatementHook | None = None
        self._statements = Statements(folder_of(self.dialect), arrays=True)
        self._lock = asyncio.Lock()
        self._connection: asyncpg.Connection | None = None
        self._ear: asyncpg.Connection | None = None
        self._woken = asyncio.Event()

    async def run(self, script: Script[T], *, write: bool = True) -> T:
        """See OutboxDatabase."""
        async with self._lock:
            try:
                connection = await self._open()
                return await self._play(connection, script)
            except asyncpg.UndefinedTableError as error:
                raise no_outbox(self.name) from error
            except (*LOST, *AGAIN) as error:
                await self._drop()
                raise self._unavailable(error) from error
            except asyncpg.PostgresError as error:
                raise EngineError(f"{self.name} refused: {phrase_with_type(error)}.") from error
            except (EngineUnavailable, asyncio.CancelledError):  # a statement may still be under way
                await self._drop()
                raise

    async def _play(self, connection: asyncpg.Connection, script: Script[T]) -> T:
        await self._step(connection, "begin")
        try:
            statement = next(script)
            while True:
                statement = script.send(await self._execute(connection, statement))
        except StopIteration as stop:
            await self._step(connection, "commit")
            value: T = stop.value
            return value
        except Exception:
            if not connection.is_closed():
                with contextlib.suppress(asyncpg.PostgresError, *LOST):
                    await connection.execute("rollback")
            raise

    async def _execute(self, connection: asyncpg.Connection, statement: One | Many) -> list[Row]:
        if self.tap is not None:
            self.tap.before(statement.name)
        rows: list[Row] = []
        for sql, args in self._statements.render(statement):
            rows += [tuple(row) for row in await connection.fetch(sql, *args)]
        if self.tap is not None:
            self.tap.after(statement.name)
        return rows

    async def _step(self, connection: asyncpg.Connection, sql: str) -> None:
        if self.tap is not None:
            self.tap.before(sql)
        await connection.execute(sql)
        if self.tap is not None:
            self.tap.after(sql)

    async def _open(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        return self._connection

    async def _connect(self) -> asyncpg.Connection:
        """A new connection. Who is cancelled meanwhile leaves none half open: asyncpg does not close it then."""
        connecting = asyncio.ensure_future(
            asyncpg.connect(
                self._url, timeout=CONNECT_TIMEOUT, command_timeout=COMMAND_TIMEOUT, server_settings=SETTINGS
            )
        )
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            await asyncio.wait([connecting], timeout=FINISH_CONNECTING)
            if not connecting.done():
                connecting.cancel()
            elif not connecting.cancelled() and connecting.exception() is None:
                connecting.result().terminate()
            raise

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def _unavailable(self, error: BaseException) -> EngineUnavailable:
        return EngineUnavailable(f"{self.name} did not answer: {phrase_with_type(error)}.")

    async def wait(self, seconds: float) -> None:
        """See OutboxDatabase. If the listening connection cannot be had, the time is waited for."""
        if self._ear is None or self._ear.is_closed():
            try:
                self._ear = await self._connect()
                await self._ear.add_listener(CHANNEL, self._hear)
                return  # what was committed before it listened is looked for at once
            except (*LOST, asyncpg.PostgresError, asyncio.CancelledError) as error:
                ear, self._ear = self._ear, None
                if ear is not None:
                    ear.terminate()
                if isinstance(error, asyncio.CancelledError):
                    raise
        await sleep_until(self._woken, seconds)
        self._woken.clear()

    def _hear(self, *heard: Any) -> None:
        self._woken.set()

    async def execute(self, text: str) -> None:
        """See OutboxDatabase."""
        async with self._lock:
            try:
                await (await self._open()).execute(text)
            except LOST as error:
                await self._drop()
                raise self._unavailable(error) from error
            except asyncpg.PostgresError as error:
                raise EngineError(f"{self.name} refused: {phrase_with_type(error)}.") from error

    async def close(self) -> None:
        """See OutboxDatabase."""
        for connection in (self._connection, self._ear):
            if connection is not None and not connection.is_closed():
                try:
                    await connection.close(timeout=5)
                except (*LOST, asyncpg.PostgresError):
                    connection.terminate()
        self._connection = self._ear = None
