"""The outbox of an app: its rows, and what an operator does with them. No engine is asked."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from semel.codec import encode
from semel.contract.durations import Duration, parse_duration
from semel.contract.keys import check_key, check_name
from semel.engine.bounded import time_limit
from semel.engine.protocol import Finding
from semel.errors import EngineError, InvalidValue, NotFound, NotRedrivable, phrase
from semel.transactional.outbox import scripts
from semel.transactional.outbox.database import OutboxDatabase, hide_password, open_database, tables_sql
from semel.transactional.outbox.events import TYPE_LENGTH, OutboxEvent, OutboxStatus
from semel.transactional.outbox.verbs import OutboxVerbs
from semel.transactional.recognise import recognise

if TYPE_CHECKING:
    from semel.transactions import Transactions

NEWEST: Final = 2**62
WAITS_TOO_LONG: Final = 300.0
"""Seconds after which doctor says that a row waits for too long."""
MANY_RETRIES: Final = 5


@dataclass(frozen=True, slots=True)
class OutboxState:
    """How an outbox stands."""

    pending: int
    lag: timedelta
    """For how long the oldest pending row has waited."""
    failed: int
    most_retries: int
    """The highest retry count of a pending row."""
    relays: int
    """Relays that live."""


class Outbox:
    """`app.outbox`. Each method takes the database as a URL; without it, that of the setting `outbox`."""

    def __init__(self, app: Transactions) -> None:
        self._app = app

    @asynccontextmanager
    async def _open(self, database: str | None, verb: str) -> AsyncIterator[OutboxDatabase]:
        """The database, for one call and within its time limit."""
        opened = self._database(database)
        try:
            async with time_limit(opened.timeout, f"outbox.{verb}"):
                yield opened
        finally:
            await opened.close()

    def _database(self, url: str | None) -> OutboxDatabase:
        limit = self._app.settings.call_timeout.total_seconds()
        return open_database(self._app._outbox_url() if url is None else url, limit)

    @property
    def _namespace(self) -> str:
        return self._app.settings.namespace

    async def add(self, event_type: str, payload: Any = None, *, key: str | None = None, connection: Any) -> None:
        """Write a row for a handler of your own, in your transaction; see `app.outbox_handler`."""
        name = check_name(event_type, "event_type", TYPE_LENGTH)
        if name.startswith("semel."):
            raise InvalidValue(f"event_type={name!r}: what begins with 'semel.' is Semel's own.")
        data = encode(payload, "payload", limit=self._app.settings.max_payload)
        own = None if key is None else check_key(key, "key")
        given = await recognise(connection)
        await OutboxVerbs(given, self._namespace, hide_password(self._app.settings.url)).add(name, data, own)

    async def init(self, database: str | None = None) -> None:
        """Make the tables of an outbox where they are missing. Safe to run again."""
        async with self._open(database, "init") as opened:
            await opened.execute(tables_sql(opened.dialect))

    def sql(self, database: str | None = None, *, drop: bool = False) -> str:
        """The statements that make the tables, for a migration of your own; with `drop` those that remove them."""
        return tables_sql(self._database(database).dialect, drop=drop)

    async def list(
        self,
        *,
        status: OutboxStatus | str | None = None,
        before: int | None = None,
        limit: int = 50,
        database: str | None = None,
    ) -> Sequence[OutboxEvent]:
        """Rows, newest first; for the next page pass the last id as `before`."""
        if not 1 <= limit <= 1000:
            raise InvalidValue(f"limit={limit!r}: give a whole number from 1 to 1000, and page with before=….")
        wanted = "" if status is None else _status(status).value
        async with self._open(database, "list") as opened:
            found = await opened.run(
                scripts.page(self._namespace, wanted, NEWEST if before is None else before, limit), write=False
            )
        return [row.event for row in found]

    async def get(self, id: int, *, database: str | None = None) -> OutboxEvent:
        """One row. NotFound: it is not there any more."""
        async with self._open(database, "get") as opened:
            found = await opened.run(scripts.get(id), write=False)
        if found is None:
            raise NotFound(f"the outbox has no row {id}: it may have been cleaned up. See: semel outbox list")
        return found.event

    async def redrive(self, id: int, *, database: str | None = None) -> None:
        """Try a row again that has failed for good. One that is under way, or done, is left alone: NotRedrivable."""
        async with self._open(database, "redrive") as opened:
            if await opened.run(scripts.redrive(id)):
                return
            found = await opened.run(scripts.get(id), write=False)
        if found is None:
            raise NotFound(f"the outbox has no row {id}: it may have been cleaned up. See: semel outbox list")
        raise NotRedrivable(f"row {id} of the outbox is {found.event.status}: only one that has failed is tried again.")

    async def redrive_failed(self, *, limit: int = 1000, database: str | None = None) -> int:
        """Try rows again that have failed for good, oldest first; how many there were."""
        async with self._open(database, "redrive_failed") as opened:
            return await opened.run(scripts.redrive_failed(self._namespace, limit))

    async def redrive_processed(self, since: datetime, *, database: str | None = None) -> int:
        """Have rows carried out again that were processed at that time or later, in their order; how many there were.

        For an engine whose database was restored from a backup: `since` is when the backup was made. What the engine
        still has is not started again, since each row has the id of its request, and its key. Handlers of your own are
        called again.
        """
        if since.tzinfo is None:
            raise InvalidValue(f"since={since.isoformat()} has no timezone: use datetime.now(UTC) or similar.")
        seconds = math.floor(since.timestamp() * 1000) / 1000  # as exact as SQLite keeps it
        redriven, last, opened = 0, 0, self._database(database)
        try:  # however long it takes: each batch is a call with a time limit of its own
            while True:
                some, end = await opened.run(scripts.redrive_processed(self._namespace, seconds, last))
                redriven += some
                if end is None:
                    return redriven
                last = end
        finally:
            await opened.close()

    async def find_start(self, key: str, *, database: str | None = None) -> OutboxEvent | None:
        """The newest row that starts a task or a workflow under a key; None: there is none, or it was cleaned up."""
        name = check_key(key, "key")
        async with self._open(database, "find_start") as opened:
            found = await opened.run(scripts.find_key(self._namespace, name), write=False)
        return None if found is None else found.event

    async def purge(
        self, status: OutboxStatus | str, *, older_than: Duration = "0s", database: str | None = None
    ) -> int:
        """Delete rows that were processed, or failed for good, and were written so long ago; how many there were."""
        which = _status(status)
        if which is OutboxStatus.PENDING:
            raise InvalidValue("a pending row is work that somebody has committed: it is never deleted.")
        seconds = parse_duration(older_than, "older_than").total_seconds()
        deleted, opened = 0, self._database(database)
        try:  # however long it takes: each batch is a call with a time limit of its own
            while some := await opened.run(scripts.purge(self._namespace, which.value, seconds)):
                deleted += some
        finally:
            await opened.close()
        return deleted

    async def state(self, *, database: str | None = None) -> OutboxState:
        """How many rows wait, for how long, how many have failed, and how many relays live."""
        async with self._open(database, "state") as opened:
            found = await opened.run(scripts.counts(self._namespace), write=False)
        lag = timedelta(seconds=found.oldest)
        return OutboxState(found.pending, lag, found.failed, found.most_retries, found.relays)

    async def doctor(self, *, database: str | None = None) -> Sequence[Finding]:
        """What could be wrong with the outbox."""
        try:
            found = await self.state(database=database)
        except EngineError as error:
            return [Finding(False, "outbox", phrase(error))]
        waits = f"{found.pending} rows wait, the oldest for {found.lag.total_seconds():.0f} s"
        if found.pending and not found.relays:
            relay = Finding(False, "outbox", f"{waits}, and no relay lives: run semel relay, or semel worker --relay")
        elif found.lag.total_seconds() > WAITS_TOO_LONG:
            relay = Finding(False, "outbox", f"{waits}, with {found.relays} relays. See semel outbox list")
        else:
            relay = Finding(True, "outbox", f"{waits if found.pending else 'no row waits'}, {found.relays} relays")
        failed = f"{found.failed} failed for good. See semel outbox list --status failed"
        retries = f"a row has been tried {found.most_retries} times. See semel outbox list"
        return [
            relay,
            Finding(not found.failed, "outbox failures", failed if found.failed else "none"),
            Finding(
                found.most_retries < MANY_RETRIES,
                "outbox retries",
                retries if found.most_retries >= MANY_RETRIES else "few",
            ),
        ]


def explain_row(row: OutboxEvent) -> str:
    """What the row of a start says while the engine knows nothing of its key, and what to do."""
    show = f"See: semel outbox show {row.id}"
    tries = f" after {row.retry_count} tries" if row.retry_count else ""
    error = "" if row.last_error is None else f" The last error: {row.last_error}"
    if row.status is OutboxStatus.FAILED:
        return (
            f"Row {row.id} of the outbox, written {_when(row.created_at)}, asks for it and has failed{tries}.{error}\n"
            f"Mend the cause, and try it again with: semel outbox redrive {row.id}"
        )
    if row.status is OutboxStatus.PROCESSED:
        return (
            f"Row {row.id} of the outbox asked for it and was relayed {_when(row.processed_at)}, as execution "
            f"{row.execution_id}, of which the engine knows nothing any more: its window is over, or the engine's "
            "database was restored from a backup.\nAfter a restore: semel outbox redrive --processed-since TIME"
        )
    taken = f", and {row.leased_by} has taken it" if row.leased_by else ""
    waits = f"waits since {_when(row.created_at)}{f', retries: {row.retry_count}' if row.retry_count else ''}{taken}."
    return (
        f"Row {row.id} of the outbox asks for it and {waits}{error}\n"
        f"A relay starts it: semel doctor says whether one lives. {show}"
    )


def _when(at: datetime | None) -> str:
    return "at an unknown time" if at is None else at.strftime("%Y-%m-%d %H:%M:%S UTC")


def _status(given: OutboxStatus | str) -> OutboxStatus:
    try:
        return OutboxStatus(given)
    except ValueError:
        raise InvalidValue(f"status={given!r}: there are {', '.join(OutboxStatus)}.") from None
