"""The records database beside a cluster: what the cluster does not keep, or does not keep long enough.

It is asked and written to only where it is needed. What happens while it is away is decided in ADR 23: counting goes
on in memory, a start whose window the cluster covers goes on, one that needs the ledger is refused, and a
transaction waits.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from semel.contract.decision import Prior, Reason
from semel.contract.records import Execution, Suppressed
from semel.contract.times import instant, micros
from semel.engine.protocol import Finding, Outcome
from semel.engines.journal import migrations
from semel.engines.journal.script import Row, Store
from semel.engines.sqlite.store import SqliteStore
from semel.engines.temporal import duplicates, ledger, transactions
from semel.engines.temporal.worker_requests import Reservation, Settlement
from semel.errors import ConfigError, EngineError, EngineUnavailable
from semel.runtime.duplicates import CountRow, DuplicateCounter, warn_of_lost_counts
from semel.runtime.retries import retry_unavailable

log = logging.getLogger("semel.temporal")
Lives = Callable[[Sequence[str]], Awaitable[set[str]]]
"""Which of these executions are open in the cluster."""


class Records:
    """One namespace's records, for one event loop. Nothing is opened before the first use.

    `there` says whether a database was given at all. Without one nothing is counted or remembered, and what cannot do
    without raises ConfigError.
    """

    def __init__(
        self, store: Store | None, namespace: str, *, auto_migrate: bool = False, own_store: bool = True
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._auto_migrate = auto_migrate
        self._own_store = own_store
        self._opening: asyncio.Task[None] | None = None
        self._duplicates = DuplicateCounter(self._write_counts, log)

    @property
    def there(self) -> bool:
        """Was a records database given?"""
        return self._store is not None

    # Duplicates.

    def count(self, execution: str, reason: Reason, at: datetime, keep: timedelta) -> None:
        """Count a duplicate that did not run, for `keep` after the last one; written later, never raises."""
        if self._store is not None:
            now = instant(at)
            self._duplicates.add(execution, reason, now, now + micros(keep))

    async def suppressed(self, executions: Sequence[str]) -> list[Suppressed] | None:
        """What was counted for these executions. None: nobody knows, for want of a database or because it is away."""
        if self._store is None:
            return None
        try:
            await self._duplicates.write()
            return await (await self.open()).run(duplicates.of, self._namespace, list(executions))
        except EngineError:
            return None

    async def _write_counts(self, rows: list[CountRow]) -> None:
        await (await self.open()).run(duplicates.add, self._namespace, rows)

    # The ledger.

    async def prior(self, kind: str, key: str) -> Prior | None:
        """Who ended under a key that the cluster may have forgotten. Of what still lives, the cluster tells.

        To be asked before every start whose window outlives the cluster's retention. Raises EngineUnavailable when it
        cannot be told now: then nothing may be started.
        """
        found = await self._find(kind, key)
        return None if found is None else ledger.prior_of(found)

    async def find(self, kind: str, key: str) -> Execution | None:
        """The same, as an execution."""
        found = await self._find(kind, key)
        return None if found is None else ledger.execution_of(found)

    async def _find(self, kind: str, key: str) -> Row | None:
        try:
            store = await self.open()
            return await retry_unavailable(store.run, ledger.by_key, self._namespace, kind, key)
        except EngineUnavailable as error:
            raise EngineUnavailable(
                f"the records database does not answer, and {kind} key {key!r} has a window that is longer than the "
                "cluster remembers: without it nobody knows whether this ran before, so nothing was started. Try again "
                f"when it is back, or declare a shorter dedup_window. ({error.message})"
            ) from error

    async def get(self, execution: str) -> Execution | None:
        """An execution of the ledger that has ended."""
        store = await self.open()
        found = await retry_unavailable(store.run, ledger.by_execution, self._namespace, execution)
        return None if found is None else ledger.execution_of(found)

    async def outcome(self, execution: str) -> Outcome | None:
        """How an execution of the ledger ended. None: it has not, or is not in it."""
        store = await self.open()
        return await retry_unavailable(store.run, ledger.outcome, self._namespace, execution)

    async def input_of(self, execution: str) -> bytes | None:
        """What an execution of the ledger was asked for with, while retention keeps it."""
        store = await self.open()
        return await retry_unavailable(store.run, ledger.input_of, self._namespace, execution)

    async def reserve(self, wanted: Reservation) -> Prior:
        """Take a key for a run, before it does anything: the holder afterwards. Another id than its own: do not run.

        May be repeated: who holds the key already holds it.
        """
        store = await self.open()
        return await retry_unavailable(store.run, ledger.reserve, self._namespace, wanted)

    async def settle(self, end: Settlement) -> bool:
        """Write down how a run ended, before the cluster hears of it. False: it holds no key, nothing was written.

        May be repeated: the first one counts.
        """
        store = await self.open()
        return await retry_unavailable(store.run, ledger.settle, self._namespace, end)

    # Transactions.

    async def transact(self, execution: str, step: str, fn: Callable[[Any], bytes | None]) -> bytes | None:
        """Run `fn(tx)` and keep what it gives under (execution, step), in one transaction.

        Asked again, also at the same time or after a lost reply, it gives what is kept and runs nothing. What `fn`
        raises is raised here, and nothing is written. EngineUnavailable: ask again later.
        """
        store = await self.open()
        value, error = await retry_unavailable(store.run, transactions.transact, self._namespace, execution, step, fn)
        if error is not None:
            raise error
        return value

    # Upkeep.

    async def clean(self, lives: Lives | None = None) -> int:
        """Drop what is over by now, in small batches by index; how many rows were looked at.

        Keys and transactions of runs that never told their end are only dropped when `lives` can be asked.
        """
        if self._store is None:
            return 0
        store = await self.open()
        looked, batch = 0, 1
        while batch:
            keys, open_ = await store.run(ledger.clean, self._namespace)
            steps = await store.run(transactions.due, self._namespace)
            counts = await store.run(duplicates.forget, self._namespace)
            if lives is not None:
                await self._bury(store, lives, open_, sorted(set(steps)))
            batch = keys + len(steps) + counts
            looked += batch
        return looked

    async def _bury(self, store: Store, lives: Lives, open_: list[str], stepped: list[str]) -> None:
        if not open_ and not stepped:
            return
        living = await lives(sorted({*open_, *stepped}))
        if lost := [execution for execution in open_ if execution not in living]:
            await store.run(ledger.lose, self._namespace, lost)
        if over := [execution for execution in stepped if execution not in living]:
            await store.run(transactions.forget, self._namespace, over)

    async def migrate(self, progress: Callable[[str], None]) -> list[str]:
        """Bring its tables up to date; what was applied."""
        return [] if self._store is None else await migrations.migrate(self._store, progress)

    async def doctor(self) -> list[Finding]:
        """Look at what could be wrong with it. An absent one is fine until a window needs it."""
        if self._store is None:
            return [Finding(True, "records", "no database: suppressed duplicates are not counted")]
        try:
            if self._auto_migrate:
                await self.open()  # as the first use would; a file that is not there yet is nothing wrong
            findings = [Finding(ok, f"records: {what}", detail) for ok, what, detail in await self._store.check()]
            applied = await self._store.run(migrations.applied)
            missing = migrations.missing(self._store.migrations, applied)
        except EngineError as error:
            return [Finding(False, "records", error.message)]
        at = f"at {max(applied, default=0)}, newest is {self._store.migrations[-1][0]}"
        at += ": run semel migrate" if missing else ""
        return [*findings, Finding(not missing, "records: migrations", at)]

    async def close(self) -> None:
        """Write down what is still in memory and let go."""
        if self._store is None:
            return
        try:
            await self._duplicates.close()
        except Exception as error:
            warn_of_lost_counts(log, error)
        if self._own_store:
            await self._store.close()

    async def open(self) -> Store:
        """The database, with its tables checked once."""
        if self._store is None:
            raise ConfigError(
                "this needs a records database beside the cluster, and none was given: "
                "App('temporal://…', records='postgresql://user@host/database'), or records='sqlite:///records.db'."
            )
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(
                migrations.ready(self._store, self._auto_migrate, "the records database")
            )
        await asyncio.shield(self._opening)
        return self._store


def open_records(
    url: str | None,
    namespace: str,
    clock: Callable[[], float] = time.time,
    auto_migrate: bool | None = None,
    sqlite_driver: str = "auto",
) -> Records:
    """Records at a URL; None: no records. Connects to nothing yet.

    SQLite makes its tables on first use unless told not to, PostgreSQL only if told to. `clock` is for SQLite, which
    has none of its own. Raises ConfigError for a URL that is neither.
    """
    if url is None:
        return Records(None, namespace)
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and rest != "/":
        store = SqliteStore(rest[1:], clock, sqlite_driver)
        return Records(store, namespace, auto_migrate=auto_migrate is not False)
    if scheme in ("postgresql", "postgres") and rest:
        if importlib.util.find_spec("asyncpg") is None:
            raise ConfigError("records in PostgreSQL need the extra: pip install 'semel[postgres]'.")
        from semel.engines.postgres.store import PostgresStore  # an extra: imported only when it is used

        return Records(PostgresStore(url), namespace, auto_migrate=bool(auto_migrate))
    raise ConfigError(
        f"records={scheme + '://…'!r} is not a database Semel can open: use sqlite:///records.db or "
        "postgresql://user@host/database."
    )
