"""A user's function within a transaction of the engine."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any, Final, cast

import asyncpg

from semel.engines.journal.user_transactions import Worked, refuse_control, work
from semel.engines.postgres.address import IDLE_IN_TRANSACTION
from semel.engines.postgres.connection import LOST, translate
from semel.errors import EngineError, EngineUnavailable
from semel.transactional.statements import StatementHook

RETRIED: Final = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""What two transactions that meet do to each other: neither did anything wrong, so the whole of it is tried again."""


class PostgresTransaction:
    """What `ctx.transaction` hands to the function, which runs in a thread: statements with $1, $2, …

    Each has a savepoint: one that fails undoes itself and nothing more, as on SQLite, and not the whole transaction.
    """

    def __init__(
        self, connection: asyncpg.Connection, loop: asyncio.AbstractEventLoop, tap: StatementHook | None
    ) -> None:
        self._connection = connection
        self._loop = loop
        self._tap = tap
        self._saved = True  # a savepoint is there that nothing was written after
        self._asked_at = time.monotonic()
        self.longest_pause = 0.0
        """Seconds between two statements in which the function kept the transaction waiting."""

    def execute(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        """Run one statement; its rows."""
        refuse_control(sql)
        if self._tap is not None:
            self._tap.before(sql)
        self.note_pause()
        found = asyncio.run_coroutine_threadsafe(self._fetch(sql, args), self._loop).result()
        self._asked_at = time.monotonic()
        if self._tap is not None:
            self._tap.after(sql)
        return [tuple(row) for row in found]

    def note_pause(self) -> None:
        """The function asks for something, or has come to its end."""
        self.longest_pause = max(self.longest_pause, time.monotonic() - self._asked_at)

    async def _fetch(self, sql: str, args: tuple[Any, ...]) -> list[Any]:
        if not self._saved:  # both in one trip; the first savepoint came with the transaction's own
            await self._connection.execute("release semel_statement; savepoint semel_statement")
        self._saved = False
        try:
            return cast(list[Any], await self._connection.fetch(sql, *args))
        except Exception:
            with contextlib.suppress(asyncpg.PostgresError, *LOST):
                await self._connection.execute("rollback to semel_statement")
                self._saved = True
            raise


async def work_in(connection: asyncpg.Connection, do: Callable[[Any], Any], tap: StatementHook | None = None) -> Worked:
    """Run it; what it wrote is undone if it raises. A database that is away is no answer, and is raised."""
    await connection.execute("savepoint semel_work; savepoint semel_statement")
    tx = PostgresTransaction(connection, asyncio.get_running_loop(), tap)
    value, error = await asyncio.to_thread(work, do, tx)
    tx.note_pause()
    if connection.is_closed() and tx.longest_pause >= IDLE_IN_TRANSACTION:
        raise EngineError(
            f"a function in a transaction paused for {tx.longest_pause:.0f} s, and PostgreSQL ended the transaction: "
            f"nothing of it was written. It may pause for {IDLE_IN_TRANSACTION:.0f} s between two statements; do what "
            "takes longer before it, in a step of its own."
        ) from error
    if error is None:
        await connection.execute("release semel_work")
        return value, None
    if connection.is_closed():  # whatever the function made of that
        raise EngineUnavailable("the connection to PostgreSQL was lost during a transaction.") from error
    if isinstance(error, RETRIED) or _away(error):
        raise error
    await connection.execute("rollback to semel_work")
    return None, error


def _away(error: BaseException) -> bool:
    """Only what the database itself says: an OSError may well be the function's own, as is a statement too slow."""
    known = isinstance(error, asyncpg.PostgresError | EngineUnavailable)
    known = known and not isinstance(error, asyncpg.QueryCanceledError)
    return known and isinstance(translate(error), EngineUnavailable)
