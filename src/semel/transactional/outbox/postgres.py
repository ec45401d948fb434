"""An outbox in PostgreSQL, with a second connection that listens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final, TypeVar

import asyncpg

from semel.engine.bounded import time_limit
from semel.errors import EngineError, EngineUnavailable, phrase_with_type
from semel.transactional.outbox.database import hide_password, no_outbox, sleep_until
from semel.transactional.statements import Many, One, Row, Script, StatementHook, Statements, folder_of

T = TypeVar("T")
log = logging.getLogger("semel.relay")
CHANNEL: Final = "semel_outbox"
CONNECT_TIMEOUT: Final = 10.0
CONNECT_SHARE: Final = 0.7
"""Of the time limit of a call: connecting ends by itself before, since asyncpg closes what it gave up itself."""
FINISH_CONNECTING: Final = 2.0
"""Seconds that a connection which nobody wants any more may take to come about, before it is given up."""
CLOSE_WITHIN: Final = 2.0
SERVER_SHARE: Final = 0.9
"""Of the time limit of a call: the server gives up a little before the client does, and what timed out here does not
go on there."""
POOLED_LOOK: Final = 1.0
"""Seconds between two looks where nobody tells of commits, since a pool is in between."""
APPLICATION: Final = {"application_name": "semel relay"}
KEEPALIVES: Final = {"tcp_keepalives_idle": "20", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "4"}
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
UNSUPPORTED: Final = "unsupported startup parameter"
"""Part of what PgBouncer says of settings that it does not keep."""
AGAIN: Final = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)


class PostgresOutbox:
    """See OutboxDatabase."""

    dialect = "postgres"

    def __init__(self, url: str, timeout: float) -> None:
        self._url = url
        self.name = hide_password(url)
        self.timeout = timeout
        limit = f"{max(1, round(timeout * SERVER_SHARE * 1000))}ms"
        # For this transaction only: behind a pool, others use the session after it. In one message with `begin`.
        self._begin = (
            f"begin; set local statement_timeout = '{limit}'; "
            f"set local idle_in_transaction_session_timeout = '{round(timeout * 2000)}ms'"
        )
        self.tap: StatementHook | None = None
        self._statements = Statements(folder_of(self.dialect), arrays=True)
        self._lock = asyncio.Lock()
        self._connection: asyncpg.Connection | None = None
        self._ear: asyncpg.Connection | None = None
        self._woken = asyncio.Event()
        self._pooled = False

    async def run(self, script: Script[T], *, write: bool = True) -> T:
        """See OutboxDatabase."""
        async with time_limit(self.timeout, self.name), self._lock:
            try:
                return await self._play(await self._open(), script)
            except asyncpg.UndefinedTableError as error:
                raise no_outbox(self.name) from error
            except (*LOST, *AGAIN) as error:
                self._drop()
                raise self._unavailable(error) from error
            except asyncpg.PostgresError as error:
                raise EngineError(f"{self.name} refused: {phrase_with_type(error)}.") from error
            except (EngineUnavailable, asyncio.CancelledError):  # a statement may still be under way
                self._drop()
                raise

    async def _play(self, connection: asyncpg.Connection, script: Script[T]) -> T:
        await self._step(connection, "begin", self._begin)
        try:
            statement = next(script)
            while True:
                statement = script.send(await self._execute(connection, statement))
        except StopIteration as stop:
            await self._step(connection, "commit", "commit")
            value: T = stop.value
            return value
        except LOST:
            raise
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

    async def _step(self, connection: asyncpg.Connection, name: str, sql: str) -> None:
        if self.tap is not None:
            self.tap.before(name)
        await connection.execute(sql)
        if self.tap is not None:
            self.tap.after(name)

    async def _open(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        return self._connection

    async def _connect(self) -> asyncpg.Connection:
        """A new connection. PgBouncer refuses most settings of a session: there it goes without keepalives."""
        try:
            return await self._connect_with({**APPLICATION, **KEEPALIVES})
        except asyncpg.PostgresError as error:
            if UNSUPPORTED not in str(error):
                raise
        return await self._connect_with(APPLICATION)

    async def _connect_with(self, settings: dict[str, str]) -> asyncpg.Connection:
        """A new connection. Who is cancelled meanwhile leaves none half open: asyncpg does not close it then."""
        connecting = asyncio.ensure_future(
            asyncpg.connect(
                self._url,
                timeout=min(CONNECT_TIMEOUT, self.timeout * CONNECT_SHARE),
                command_timeout=self.timeout,
                server_settings=settings,
                statement_cache_size=0,  # behind a pool a prepared statement may be in another session
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

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def _unavailable(self, error: BaseException) -> EngineUnavailable:
        return EngineUnavailable(f"{self.name} did not answer: {phrase_with_type(error)}.")

    async def wait(self, seconds: float) -> None:
        """See OutboxDatabase. If the listening connection cannot be had, the time is waited for."""
        if not self._pooled and (self._ear is None or self._ear.is_closed()):
            try:
                self._ear = await self._connect()
                if await self._listen(self._ear):
                    return  # what was committed before it listened is looked for at once
            except (*LOST, asyncpg.PostgresError, asyncio.CancelledError) as error:
                self._stop_listening()
                if isinstance(error, asyncio.CancelledError):
                    raise
        await sleep_until(self._woken, min(seconds, POOLED_LOOK) if self._pooled else seconds)
        self._woken.clear()

    async def _listen(self, ear: asyncpg.Connection) -> bool:
        """Listen for commits; False: a pool is in between, and its sessions are not ours to listen on."""
        if ear.get_server_pid() != await ear.fetchval("select pg_backend_pid()"):
            self._pooled = True
            self._stop_listening()
            log.info("%s is behind a pool: the relay looks for rows every %g s", self.name, POOLED_LOOK)
            return False
        await ear.add_listener(CHANNEL, self._hear)
        return True

    def _stop_listening(self) -> None:
        ear, self._ear = self._ear, None
        if ear is not None:
            ear.terminate()

    def _hear(self, *heard: Any) -> None:
        self._woken.set()

    async def execute(self, text: str) -> None:
        """See OutboxDatabase."""
        async with time_limit(self.timeout, self.name), self._lock:
            try:
                await (await self._open()).execute(text)
            except LOST as error:
                self._drop()
                raise self._unavailable(error) from error
            except asyncpg.PostgresError as error:
                raise EngineError(f"{self.name} refused: {phrase_with_type(error)}.") from error
            except asyncio.CancelledError:
                self._drop()
                raise

    async def close(self) -> None:
        """See OutboxDatabase."""
        open_ = [one for one in (self._connection, self._ear) if one is not None and not one.is_closed()]
        closing = [asyncio.ensure_future(one.close(timeout=CLOSE_WITHIN)) for one in open_]
        await asyncio.gather(*closing, return_exceptions=True)
        self.terminate()

    def terminate(self) -> None:
        """See OutboxDatabase."""
        self._drop()
        self._stop_listening()
