"""The journal engine: the Engine protocol on a store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from semel.contract.lifecycle import Status
from semel.contract.rates import parse_rate
from semel.contract.records import ErrorInfo, Execution, Suppressed, Undelivered
from semel.contract.times import from_micros, span
from semel.define.registry import Registry
from semel.engine.bounded import time_limit
from semel.engine.caller_connection import CallerConnection
from semel.engine.failure_log import expect_failure
from semel.engine.protocol import (
    Admission,
    Capabilities,
    Filter,
    Finding,
    Message,
    Outcome,
    QueueLag,
    QueueState,
    RecordedRun,
    Replayed,
    Waiting,
    Worker,
    WorkerState,
    failed_messages_finding,
)
from semel.engine.served_functions import examine_service
from semel.engine.start_request import StartRequest
from semel.engines.journal import admit, control, inbox, leases, migrations, read, reset, retention
from semel.engines.journal.admissions import Admissions
from semel.engines.journal.caller_transaction import CallerTransaction, TransactionVerbs
from semel.engines.journal.control import WrittenQueueSettings
from semel.engines.journal.events import StoredEvents
from semel.engines.journal.group_commit import Coalescer
from semel.engines.journal.lanes import Lanes
from semel.engines.journal.notifications import Hub
from semel.engines.journal.runs import JournalRuns
from semel.engines.journal.schedules import StoredSchedules
from semel.engines.journal.script import Store, Topic
from semel.engines.journal.ticks import Tickers
from semel.engines.journal.unserved import backlog, worker_state
from semel.engines.journal.worker import JournalWorker
from semel.errors import EngineError, EngineUnavailable
from semel.flow.replay import try_replay
from semel.runtime.chores import Chore
from semel.runtime.duplicates import warn_of_lost_counts
from semel.runtime.events import Events
from semel.runtime.retries import retry_unavailable
from semel.settings import QueueSettings, Settings

log = logging.getLogger("semel.journal")
POLL = (1.0, 10.0)
"""Seconds between two looks at an execution that somebody waits for, should no news come: at first, and at most."""
HEAD_START = 0.005
"""Seconds that the first look at what was admitted last waits for its announcement: looking at once, a caller would
find it pending and take the database's time from the worker."""
SCHEDULES_POLL = 60.0
"""Seconds until a worker notices that a schedule was changed, should no announcement of it come."""
CLOSE_WITHIN = 5.0
"""Seconds that closing waits for what is being written."""
MOST_PARKED = 10
"""So many are told by their names."""


class JournalEngine:
    """Executions in a database, for one namespace and one event loop."""

    def __init__(
        self,
        store: Store,
        capabilities: Capabilities,
        namespace: str,
        *,
        auto_migrate: bool,
        settings: Settings,
        own_store: bool = True,
        events: Events | None = None,
    ) -> None:
        self._events = events or Events()
        self.capabilities = capabilities
        self._store = store
        self._namespace = namespace
        self._auto_migrate = auto_migrate
        self._settings = settings
        self._own_store = own_store
        self._hub = Hub()
        self._queue_settings = WrittenQueueSettings(store, namespace)
        limit = self._time_limit = settings.call_timeout.total_seconds()
        self._lanes = Lanes(store, namespace, on_loss=self._queue_settings.doubt)
        self._admissions = Admissions(store, namespace, self._lanes, self._hub, limit)
        self._mail = inbox.Mail(store, namespace, self._lanes, self._hub, limit)
        runs = JournalRuns(namespace, self._lanes, self._hub)
        self._schedules = StoredSchedules(store, namespace, runs, settings, self._hub.schedules)
        self._stored_events = StoredEvents(store, namespace, runs, settings, self.get, self._hub.schedules)
        self._ticks = Tickers()
        self._hub.on_schedules.append(self._ticks.changed)
        self._outcomes: Coalescer[str, Outcome | None] = Coalescer(self._read_outcomes, 1000, time_limit=limit)
        self._opening: asyncio.Task[None] | None = None
        self._is_open = False
        self._listening: dict[Topic, asyncio.Task[None]] = {}

    async def open(self) -> None:
        """Check the tables once; every verb calls this first."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(migrations.ready(self._store, self._auto_migrate))
            expect_failure(self._opening)
        if not self._opening.done():
            await asyncio.shield(self._opening)
        self._is_open = True

    async def _listen(self, topic: Topic) -> None:
        """Begin to hear from other processes; only what waits for something needs it."""
        listening = self._listening.get(topic)
        if listening is None or (listening.done() and listening.exception() is not None):
            listening = self._listening[topic] = asyncio.create_task(self._store.listen(self._hub, topic))
            expect_failure(listening)
        if not listening.done():
            await asyncio.shield(listening)

    async def _hear_of_ends(self) -> None:
        """Be told when executions end, before waiting for one."""
        listening = self._listening.get(Topic.RESULTS)
        if not self._is_open or listening is None or not listening.done() or listening.exception() is not None:
            async with time_limit(self._time_limit, "result"):
                await self.open()
                await self._listen(Topic.RESULTS)

    def start(self, request: StartRequest) -> Awaitable[Admission]:
        """See Engine. No coroutine of its own where there is nothing to be done before, which is nearly always."""
        if self._is_open and time.monotonic() < self._queue_settings.due_at:
            return self._admissions.start(request)
        return self._open_and_start(request)

    async def _open_and_start(self, request: StartRequest) -> Admission:
        await self._get_ready_to_start()
        return await self._admissions.start(request)

    async def _get_ready_to_start(self) -> None:
        async with time_limit(self._time_limit, "start"):
            await self.open()
            await self._queue_settings.write_again()

    async def start_many(self, requests: Sequence[StartRequest]) -> list[Admission]:
        """See Engine."""
        await self._get_ready_to_start()
        answers = []
        for answer in await self._admissions.start_many(requests):
            if isinstance(answer, BaseException):
                raise answer
            answers.append(answer)
        return answers

    async def join(self, connection: CallerConnection) -> TransactionVerbs | None:
        """See Engine. An uncommitted lane would block whoever else needs it, so lanes are made beforehand.

        Not where there is one writer, which the caller is already: there everything goes over its connection.
        """
        if not await self._store.is_ours(connection):
            return None
        transaction = CallerTransaction(self._store, connection)
        if self._store.one_writer:
            await transaction.begin_to_write(look_first=not self._is_open)
            lanes = Lanes(transaction, self._namespace, on_loss=self._queue_settings.doubt)
        else:
            await self.open()
            await self._queue_settings.write_again()
            lanes = self._lanes
        admissions = self._admissions.on(transaction, lanes)
        return TransactionVerbs(transaction, self._namespace, lanes, admissions, self._settings, self._stored_events.on)

    async def look_up(self, request: StartRequest) -> Admission | None:
        """See Engine."""
        await self.open()
        return await retry_unavailable(self._store.run, admit.look_up, self._namespace, request)

    async def get(self, id: str) -> Execution | None:
        """See Engine."""
        await self.open()
        return await retry_unavailable(self._store.run, read.get, self._namespace, id)

    async def find(self, kind: str, key: str) -> Execution | None:
        """See Engine."""
        await self.open()
        return await retry_unavailable(self._store.run, read.find, self._namespace, kind, key)

    async def executions(self, which: Filter) -> list[Execution]:
        """See Engine."""
        await self.open()
        return await retry_unavailable(self._store.run, read.recent, self._namespace, which)

    async def explain(self, kind: str, key: str) -> tuple[list[Execution], list[Suppressed] | None, datetime]:
        """See Engine."""
        await self.open()
        await self._admissions.write_counts()
        executions, suppressed, now = await retry_unavailable(self._store.run, read.explain, self._namespace, kind, key)
        return executions, suppressed, from_micros(now)

    async def input_of(self, id: str) -> bytes | None:
        """See Engine."""
        await self.open()
        return await retry_unavailable(self._store.run, read.input_of, self._namespace, id)

    async def outcome(self, id: str, timeout: float | None) -> Outcome | None:
        """See Engine."""
        await self._hear_of_ends()
        head_start = HEAD_START if id == self._admissions.newest else 0.0
        return await self._hub.until(id, lambda: self._outcomes.add(id), timeout, POLL, head_start=head_start)

    async def _read_outcomes(self, ids: Sequence[str]) -> list[Outcome | BaseException | None]:
        found = await retry_unavailable(self._store.run, read.outcomes, list(ids))
        forgotten = Outcome(Status.COMPLETED, None, None, expired=True, unknown=True)
        return [found.get(id_, forgotten) for id_ in ids]

    async def cancel(self, id: str) -> Status | None:
        """See Engine."""
        await self.open()
        status = await retry_unavailable(self._store.run, control.cancel, self._namespace, id)
        if status is Status.RUNNING:
            self._hub.cancel(id)
            self._hub.news([id])
            self._hub.work(())
        elif status is Status.CANCELLED:
            self._hub.done([id])
            self._hub.work(())  # a workflow may have waited for it
        return status

    async def signal(self, id: str, name: str, payload: bytes | None, key: str | None) -> Status | None:
        """See Engine."""
        await self.open()
        row = (id, "signal", name, key, payload, None)
        if key is None:  # sent again after a lost reply, it might count twice
            status = await self._store.run(control.deliver, self._namespace, row)
        else:
            status = await retry_unavailable(self._store.run, control.deliver, self._namespace, row)
        self._hub.news([id])
        self._hub.work(())
        return status

    async def send(self, message: Message) -> str:
        """See Engine."""
        await self.open()
        return await self._mail.send(message)

    async def answer(self, id: str, key: str, timeout: float | None) -> Outcome | None:
        """See Engine."""
        await self._hear_of_ends()
        return await self._mail.answer(id, key, timeout)

    async def state_of(self, key: str) -> tuple[bool, bytes | None]:
        """See Engine."""
        await self.open()
        return await retry_unavailable(self._store.run, inbox.state, self._namespace, key)

    async def undelivered(self, kind: str, key: str) -> Undelivered:
        """See Engine."""
        await self.open()
        return await retry_unavailable(self._store.run, inbox.undelivered, self._namespace, kind, key)

    async def failing_entities(self, most: int) -> list[str]:
        """See Engine."""
        await self.open()
        found = await retry_unavailable(self._store.run, inbox.failed_messages, self._namespace, most)
        return [key for key, _ in found]

    async def terminate(self, id: str, why: str) -> Status | None:
        """See Engine."""
        await self.open()
        error = read.dump_error(ErrorInfo("semel.Terminated", why))
        status = await retry_unavailable(self._store.run, control.terminate, self._namespace, id, error)
        self._hub.done([id])
        self._hub.news([id])
        self._hub.work(())
        return status

    async def published(self, id: str, name: str) -> bytes | None:
        """See Engine."""
        await self.open()
        return await retry_unavailable(self._store.run, read.published, self._namespace, id, name)

    async def attributes(self, id: str) -> dict[str, str]:
        """See Engine."""
        await self.open()
        return await retry_unavailable(self._store.run, read.attributes, self._namespace, id)

    async def past(self, id: str) -> RecordedRun | None:
        """See Engine."""
        await self.open()
        return await retry_unavailable(self._store.run, read.past, self._namespace, id)

    async def replay(self, id: str, registry: Registry, settings: Settings) -> Replayed | None:
        """See Engine."""
        past = await self.past(id)
        return None if past is None or past.input is None else try_replay(registry, settings, past)

    async def reset(self, id: str, new_id: str, commit: int) -> str:
        """See Engine."""
        await self.open()
        await self._store.run(reset.reset, self._namespace, id, new_id, commit)
        self._hub.done([id])
        self._hub.news([id])
        self._hub.work(())
        return new_id

    async def redrive(self, id: str, new_id: str) -> str | None:
        """See Engine."""
        await self.open()
        redriven = await self._store.run(control.redrive, self._namespace, id, new_id)
        self._hub.work(())
        return redriven

    async def configure(self, queues: Mapping[str, QueueSettings]) -> None:
        """See Engine."""
        await self.open()
        await self._queue_settings.write(queues)

    async def queues(self) -> list[QueueState]:
        """See Engine."""
        await self.open()
        depths, limits = await retry_unavailable(self._store.run, read.queues, self._namespace)
        settings = {
            name: QueueSettings(
                None if retention is None else span(retention),
                None if window is None else span(window),
                None if rate is None else parse_rate(rate),
                concurrency,
            )
            for name, rate, concurrency, retention, window in limits
        }
        found = {name: (int(a or 0), int(b or 0), int(c or 0)) for name, a, b, c in depths}
        names = sorted(found.keys() | settings.keys())
        return [
            QueueState(name, *found.get(name, (0, 0, 0)), settings=settings.get(name, QueueSettings()))
            for name in names
        ]

    async def queue_lags(self) -> list[QueueLag]:
        """See Engine."""
        await self.open()
        return await retry_unavailable(self._store.run, read.queue_lags, self._namespace)

    async def workers(self) -> list[WorkerState]:
        """See Engine."""
        await self.open()
        rows = await retry_unavailable(self._store.run, read.workers, self._namespace)
        return [worker_state(row) for row in rows]

    async def waiting(self) -> list[Waiting]:
        """See Engine."""
        await self.open()
        return await retry_unavailable(self._store.run, backlog, self._namespace)

    async def schedules(self) -> StoredSchedules:
        """See Engine."""
        await self.open()
        return self._schedules

    async def events(self) -> StoredEvents:
        """See Engine."""
        await self.open()
        return self._stored_events

    def worker(self, registry: Registry, queues: Sequence[str] | None, settings: Settings) -> Worker:
        """See Engine."""
        return JournalWorker(
            self._store,
            self._namespace,
            self._hub,
            registry,
            queues,
            settings,
            self._lanes,
            self._queue_settings,
            self._ready_to_schedule if settings.worker.schedules else self._ready_to_serve,
            self._events,
            self._make_chores(settings),
        )

    def _make_chores(self, settings: Settings) -> list[Chore]:
        """What a worker does for schedules and events."""
        chores = [self._ticks.chore("events", self._stored_events, SCHEDULES_POLL)]
        if settings.worker.schedules:
            chores.append(self._ticks.chore("schedules", self._schedules, SCHEDULES_POLL))
        return chores

    async def clean(self) -> int:
        """See Engine."""
        await self.open()
        looked = 0
        while True:
            slips, executions = await self._store.run(retention.clean)
            looked += executions
            if not slips:
                return looked

    async def migrate(self, progress: Callable[[str], None]) -> list[str]:
        """See Engine."""
        return await migrations.migrate(self._store, progress)

    async def doctor(self) -> list[Finding]:
        """See Engine."""
        findings = [Finding(*row) for row in await self._store.check()]
        applied = await self._store.run(migrations.applied)
        missing = migrations.missing(self._store.migrations, applied)
        if not applied and self._auto_migrate:
            return [*findings, Finding(True, "migrations", "no tables yet: they are created on first use")]
        at = f"at {max(applied, default=0)}, newest is {self._store.migrations[-1][0]}"
        findings.append(Finding(not missing, "migrations", at + (": run semel migrate" if missing else "")))
        if missing:
            return findings
        now = await self._store.run(read.clock)
        skew = abs(now / 1e6 - time.time())
        findings.append(Finding(skew < 5, "clock", f"this machine is {skew:.1f} s off the database's clock"))
        workers = await self.workers()
        findings.append(Finding(True, "workers", f"{len(workers)} with a lease"))
        late = [w.name for w in workers if w.expires_at < from_micros(now)]
        findings.append(Finding(not late, "leases", f"run out: {', '.join(late)}" if late else "all current"))
        orphans = await self._store.run(leases.find_orphans)
        whose = f"{orphans} workers without a lease hold some: the next cleaning puts them back"
        findings.append(Finding(not orphans, "claims", whose if orphans else "all by workers with a lease"))
        failed = len(await self.executions(Filter(status=Status.FAILED, limit=1000)))
        findings.append(Finding(True, "failed executions", f"{failed if failed < 1000 else 'over 1000'}"))
        living = [w for w in workers if w.expires_at >= from_micros(now)]
        findings += examine_service(await self.waiting(), living)
        findings.append(_parked(await self._store.run(read.parked, self._namespace, MOST_PARKED + 1)))
        findings.append(_stranded(await self._store.run(read.stranded, self._namespace, MOST_PARKED + 1)))
        failing = await self._store.run(inbox.failed_messages, self._namespace, MOST_PARKED + 1)
        findings.append(failed_messages_finding([f"{key} ({count})" for key, count in failing]))
        return findings + await self._schedules.examine(living) + await self._stored_events.examine()

    async def close(self) -> None:
        """See Engine."""
        try:
            if self._opening is not None:
                async with asyncio.timeout(CLOSE_WITHIN):
                    await self._stored_events.close()
                    await self._mail.close()
                    await self._admissions.close()
        except (TimeoutError, EngineError) as error:
            why = error if isinstance(error, EngineError) else "the database does not answer"
            warn_of_lost_counts(log, why)
        finally:
            if self._own_store:
                await self._store.close()

    async def _ready_to_serve(self) -> None:
        """Tables checked and listening."""
        await self.open()
        await self._listen(Topic.WORK)

    async def _ready_to_schedule(self) -> None:
        """Schedules looked at as well: what is past its start deadline is dropped before this worker takes it."""
        await self._ready_to_serve()
        with suppress(EngineUnavailable):  # the chore goes on with it
            await self._schedules.tick()


def _parked(found: Sequence[tuple[str, str, str]]) -> Finding:
    if not found:
        return Finding(True, "parked", "no workflow and no entity")
    return Finding(False, "parked", f"{_named(found)}: their code cannot go on. See semel workflows list --parked")


def _stranded(found: Sequence[tuple[str, str, str]]) -> Finding:
    """Work that was accepted and that no worker can find; only tables that lost rows have such."""
    if not found:
        return Finding(True, "stranded", "none")
    what = "accepted, but the tables have lost their lane or their row of work, so that nothing will run them"
    return Finding(False, "stranded", f"{_named(found)}: {what}. Cancel them, and ask for them again")


def _named(found: Sequence[tuple[str, str, str]]) -> str:
    shown = ", ".join(f"{kind} {key} ({name})" for kind, name, key in found[:MOST_PARKED])
    return shown + (" and more" if len(found) > MOST_PARKED else "")
