"""The journal engine: the Engine protocol on a store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from semel.contract.lifecycle import Status
from semel.contract.rates import parse_rate
from semel.contract.records import ErrorInfo, Execution, Suppressed, Undelivered
from semel.contract.times import from_micros, span
from semel.define.registry import Registry
from semel.engine.protocol import (
    Admission,
    Capabilities,
    Filter,
    Finding,
    Message,
    Outcome,
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
from semel.engines.journal import control, inbox, leases, migrations, read, reset, retention
from semel.engines.journal.admissions import Admissions
from semel.engines.journal.control import WrittenQueueSettings
from semel.engines.journal.group_commit import Coalescer
from semel.engines.journal.lanes import Lanes
from semel.engines.journal.notifications import Hub
from semel.engines.journal.script import Store
from semel.engines.journal.unserved import backlog, worker_state
from semel.engines.journal.worker import JournalWorker
from semel.errors import EngineError
from semel.flow.replay import try_replay
from semel.runtime.duplicates import warn_of_lost_counts
from semel.runtime.events import Events
from semel.runtime.retries import retry_unavailable
from semel.settings import QueueSettings, Settings

log = logging.getLogger("semel.journal")
POLL = (1.0, 10.0)
"""Seconds between two looks at an execution that somebody waits for, should no news come: at first, and at most."""
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
        max_payload: int,
        own_store: bool = True,
        events: Events | None = None,
    ) -> None:
        self._events = events or Events()
        self.capabilities = capabilities
        self._store = store
        self._namespace = namespace
        self._auto_migrate = auto_migrate
        self._max_payload = max_payload
        self._own_store = own_store
        self._hub = Hub()
        self._queue_settings = WrittenQueueSettings(store, namespace)
        self._lanes = Lanes(store, namespace, on_loss=self._queue_settings.doubt)
        self._admissions = Admissions(store, namespace, self._lanes, self._hub)
        self._mail = inbox.Mail(store, namespace, self._lanes, self._hub)
        self._outcomes: Coalescer[str, Outcome | None] = Coalescer(self._read_outcomes, 1000)
        self._opening: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Check the tables once; every verb calls this first."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(migrations.ready(self._store, self._auto_migrate))
        if not self._opening.done():
            await asyncio.shield(self._opening)

    async def _listen(self) -> None:
        """Begin to hear from other processes; only what waits for something needs it."""
        if self._listening is None or (self._listening.done() and self._listening.exception() is not None):
            self._listening = asyncio.create_task(self._store.listen(self._hub))
        if not self._listening.done():
            await asyncio.shield(self._listening)

    async def start(self, request: StartRequest) -> Admission:
        """See Engine."""
        if self._opening is None or not self._opening.done() or self._opening.exception() is not None:
            await self.open()
        if time.monotonic() >= self._queue_settings.due_at:
            await self._queue_settings.write_again()
        return await self._admissions.start(request)

    async def start_many(self, requests: Sequence[StartRequest]) -> list[Admission]:
        """See Engine."""
        await self.open()
        await self._queue_settings.write_again()
        answers = []
        for answer in await self._admissions.start_many(requests):
            if isinstance(answer, BaseException):
                raise answer
            answers.append(answer)
        return answers

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
        await self.open()
        await self._listen()
        return await self._hub.until(id, lambda: self._outcomes.add(id), timeout, POLL)

    async def _read_outcomes(self, ids: Sequence[str]) -> list[Outcome | BaseException | None]:
        found = await retry_unavailable(self._store.run, read.outcomes, list(ids))
        forgotten = Outcome(Status.COMPLETED, None, None, expired=True)
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
        await self.open()
        await self._listen()
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
        depths, limits, _ = await retry_unavailable(self._store.run, read.overview, self._namespace)
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

    async def workers(self) -> list[WorkerState]:
        """See Engine."""
        await self.open()
        _, _, rows = await retry_unavailable(self._store.run, read.overview, self._namespace)
        return [worker_state(row) for row in rows]

    async def waiting(self) -> list[Waiting]:
        """See Engine."""
        await self.open()
        return await retry_unavailable(self._store.run, backlog, self._namespace)

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
            self._ready_to_serve,
            self._events,
        )

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
        return findings

    async def close(self) -> None:
        """See Engine."""
        try:
            if self._opening is not None:
                async with asyncio.timeout(CLOSE_WITHIN):
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
        await self._listen()


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
