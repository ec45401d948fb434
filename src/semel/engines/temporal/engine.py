"""The Temporal engine: the Engine protocol on a cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from temporalio.api.workflowservice.v1 import GetSystemInfoRequest

from semel.contract.lifecycle import Status
from semel.contract.records import Execution, Suppressed, Undelivered
from semel.contract.retention import WORKFLOW_RETENTION
from semel.contract.times import from_micros
from semel.define.registry import Registry
from semel.engine.bounded import time_limit, wait_while_answered
from semel.engine.caller_connection import CallerConnection
from semel.engine.failure_log import expect_failure
from semel.engine.protocol import (
    MOST_SHOWN,
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
from semel.engines.journal.events import StoredEvents
from semel.engines.journal.schedules import StoredSchedules
from semel.engines.journal.ticks import Tickers
from semel.engines.temporal import control, lists, namespace, queues, replay, reset
from semel.engines.temporal.activities import Runner
from semel.engines.temporal.calls import call
from semel.engines.temporal.cluster import Cluster, look_at_namespace
from semel.engines.temporal.connect import Target, connect
from semel.engines.temporal.doctor import examine
from semel.engines.temporal.executions import Reader
from semel.engines.temporal.inside.message_counts import counted, last_conflict
from semel.engines.temporal.names import workflow_id
from semel.engines.temporal.namespace import longest
from semel.engines.temporal.records import Records
from semel.engines.temporal.schedules import make_events, make_schedules
from semel.engines.temporal.worker import TemporalWorker
from semel.errors import EngineError
from semel.runtime.chores import Chore
from semel.runtime.duplicates import warn_of_lost_counts
from semel.runtime.events import Events
from semel.settings import QueueSettings, Settings

T = TypeVar("T")
log = logging.getLogger("semel.temporal")
TEMPORAL = Capabilities(
    "temporal",
    many_machines=True,
    in_order=False,
    limits=False,
    hears_in_steps=False,
    foreign_workflows=True,
)
AT_ONCE = 100
CLOSE_WITHIN = 5.0
"""Seconds that closing waits for what is being written."""
SCHEDULES_POLL = 5.0
"""Seconds until a worker notices that another process has changed a schedule."""


class TemporalEngine:
    """Executions on a cluster, for one namespace and one event loop."""

    capabilities = TEMPORAL

    def __init__(
        self,
        target: Target,
        records: Records,
        settings: Settings,
        definitions: Registry,
        *,
        auto_migrate: bool,
        clock: Callable[[], float],
        events: Events | None = None,
    ) -> None:
        self._events = events or Events()
        self.records = records
        self.namespace = target.namespace
        self.target = target
        self._settings = settings
        self.definitions = definitions
        self._auto_migrate = auto_migrate
        self._clock = clock
        self._opening: asyncio.Task[Cluster] | None = None
        self._schedules: StoredSchedules | None = None
        self._stored_events: StoredEvents | None = None
        self._ticks = Tickers()
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def now(self) -> int:
        """Microseconds since 1970."""
        return round(self._clock() * 1_000_000)

    async def open(self) -> Cluster:
        """Connect once; every verb calls this first."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open())
            expect_failure(self._opening)
        return await asyncio.shield(self._opening)

    async def _open(self) -> Cluster:
        client = await connect(self.target)
        if self._auto_migrate:
            await namespace.migrate(client, self._needs())
        kept = await look_at_namespace(client)
        return Cluster(client, kept, self.records, self._settings, self.definitions, self._clock, self._events)

    async def start(self, request: StartRequest) -> Admission:
        """See Engine."""
        return await (await self.open()).start(request)

    def _needs(self) -> timedelta:
        """For how long the namespace has to keep closed workflows; at least for as long as workflows by default."""
        return max(WORKFLOW_RETENTION, longest(self.definitions, self._settings)[0])

    async def join(self, connection: CallerConnection) -> None:
        """See Engine. A cluster takes part in no transaction of a database."""

    async def look_up(self, request: StartRequest) -> Admission | None:
        """See Engine."""
        return await (await self.open()).look_up(request)

    async def start_many(self, requests: Sequence[StartRequest]) -> list[Admission]:
        """See Engine. A cluster takes one at a time: many are under way at once, those of one key in their order."""
        gate = asyncio.Semaphore(AT_ONCE)
        turns: dict[tuple[str, str], asyncio.Lock] = {}

        async def one(request: StartRequest) -> Admission:
            turn = (
                gate if request.key is None else turns.setdefault((request.options.kind, request.key), asyncio.Lock())
            )
            async with turn:
                if turn is gate:
                    return await in_time(request)
                async with gate:
                    return await in_time(request)

        async def in_time(request: StartRequest) -> Admission:
            async with time_limit(self._settings.call_timeout.total_seconds(), "enqueue_many"):
                return await self.start(request)

        return list(await asyncio.gather(*(one(request) for request in requests)))

    async def get(self, id: str) -> Execution | None:
        """See Engine."""
        return await (await self.open()).get(id)

    async def find(self, kind: str, key: str) -> Execution | None:
        """See Engine."""
        cluster = await self.open()
        seen = await cluster.reader.describe(workflow_id(kind, key))
        if seen is None:
            return await self.records.find(kind, key) if self.records.there else None
        return await cluster.execution_of(seen)

    async def executions(self, which: Filter) -> list[Execution]:
        """See Engine."""
        cluster = await self.open()
        return await lists.executions(cluster.reader, which, from_micros(self.now()))

    async def explain(self, kind: str, key: str) -> tuple[list[Execution], list[Suppressed] | None, datetime]:
        """See Engine."""
        cluster = await self.open()
        runs = await lists.history(cluster.reader, workflow_id(kind, key))
        found = [await cluster.execution_of(seen) for seen in runs]
        if not found and (forgotten := await self.find(kind, key)) is not None:
            found = [forgotten]
        suppressed = await self.records.suppressed([one.id for one in found])
        by_entities = [count for seen in runs for count in counted(seen.id, seen.memo)]
        if suppressed is None and not by_entities:
            return found, None, from_micros(self.now())
        return found, [*(suppressed or ()), *by_entities], from_micros(self.now())

    async def input_of(self, id: str) -> bytes | None:
        """See Engine."""
        return await (await self.open()).input_of(id)

    async def outcome(self, id: str, timeout: float | None) -> Outcome | None:
        """See Engine."""
        return await self._wait(lambda cluster: cluster.outcome(id, timeout), timeout, "result")

    async def cancel(self, id: str) -> Status | None:
        """See Engine."""
        return await (await self.open()).cancel(id)

    async def signal(self, id: str, name: str, payload: bytes | None, key: str | None) -> Status | None:
        """See Engine. One after the other to one workflow: a cluster does not keep the order of what comes at once."""
        cluster = await self.open()
        line = self._lines.get(id) or self._lines.setdefault(id, asyncio.Lock())
        async with line:
            return await control.signal(cluster.client, cluster.reader, id, name, payload, key)

    async def send(self, message: Message) -> str:
        """See Engine."""
        cluster = await self.open()
        return await cluster.mail.send(message)

    async def answer(self, id: str, key: str, timeout: float | None) -> Outcome | None:
        """See Engine."""
        return await self._wait(lambda cluster: cluster.questions.answer(id, key, timeout), timeout, "ask")

    async def _wait(self, begin: Callable[[Cluster], Coroutine[Any, Any, T]], timeout: float | None, what: str) -> T:
        """Wait for as long as the caller says; without end only while the cluster answers."""
        if timeout is not None:
            return await begin(await self.open())
        limit = self._settings.call_timeout.total_seconds()
        async with time_limit(limit, what):
            cluster = await self.open()
        service, request = cluster.client.workflow_service, GetSystemInfoRequest()
        return await wait_while_answered(begin(cluster), lambda: call(service.get_system_info(request)), limit, what)

    async def state_of(self, key: str) -> tuple[bool, bytes | None]:
        """See Engine."""
        cluster = await self.open()
        return await cluster.questions.state_of(key)

    async def undelivered(self, kind: str, key: str) -> Undelivered:
        """See Engine."""
        cluster = await self.open()
        if kind == "entity":
            return await cluster.questions.undelivered(key)
        seen = await cluster.reader.describe(workflow_id(kind, key))
        conflict = None if seen is None else last_conflict(seen.memo)
        return Undelivered() if conflict is None else Undelivered(refused=(conflict,))

    async def failing_entities(self, most: int) -> list[str]:
        """See Engine."""
        cluster = await self.open()
        return await lists.with_failed_messages(cluster.reader, most)

    async def terminate(self, id: str, why: str) -> Status | None:
        """See Engine."""
        cluster = await self.open()
        return await control.terminate(cluster.client, cluster.reader, id, why)

    async def published(self, id: str, name: str) -> bytes | None:
        """See Engine."""
        cluster = await self.open()
        return await control.published(cluster.reader, id, name)

    async def attributes(self, id: str) -> dict[str, str]:
        """See Engine."""
        cluster = await self.open()
        seen = await cluster.reader.find(id)
        return {} if seen is None else lists.attributes(seen)

    async def past(self, id: str) -> RecordedRun | None:
        """See Engine."""
        cluster = await self.open()
        seen = await cluster.reader.find(id)
        return None if seen is None else await reset.past(cluster.client, cluster.reader, seen)

    async def replay(self, id: str, registry: Registry, settings: Settings) -> Replayed | None:
        """See Engine."""
        cluster = await self.open()
        return await replay.try_replay(cluster.client, cluster.reader, id, registry, settings, cluster.coverage)

    async def reset(self, id: str, new_id: str, commit: int) -> str:
        """See Engine."""
        cluster, now = await self.open(), from_micros(self.now())
        return await reset.reset(cluster.client, cluster.reader, cluster.starter, id, commit, now)

    async def redrive(self, id: str, new_id: str) -> str | None:
        """See Engine."""
        cluster = await self.open()
        seen = await cluster.reader.find(id)
        if seen is not None and (refusal := cluster.coverage.refusal_again(self.definitions.get(seen.card.name))):
            raise refusal
        return await control.redrive(cluster.starter, cluster.reader, id, from_micros(self.now()))

    async def configure(self, queues: Mapping[str, QueueSettings]) -> None:
        """See Engine."""
        cluster = await self.open()
        self._settings = replace(self._settings, queues=dict(queues))
        await cluster.configure(queues)

    async def queues(self) -> list[QueueState]:
        """See Engine."""
        cluster = await self.open()
        return await queues.queues(cluster.client, cluster.reader, self._settings.queues, from_micros(self.now()))

    async def queue_lags(self) -> list[QueueLag]:
        """See Engine."""
        cluster = await self.open()
        return await queues.lags(cluster.client, cluster.reader)

    async def workers(self) -> list[WorkerState]:
        """See Engine."""
        return await (await self.open()).workers()

    async def waiting(self) -> list[Waiting]:
        """See Engine."""
        cluster = await self.open()
        return await lists.waiting(cluster.reader)

    async def schedules(self) -> StoredSchedules:
        """See Engine."""
        return await self._find_schedules(await self.open())

    async def _find_schedules(self, cluster: Cluster) -> StoredSchedules:
        if self._schedules is None:
            store = await self.records.open()
            self._schedules = make_schedules(cluster, store, self._settings, self._ticks.changed)
        return self._schedules

    async def events(self) -> StoredEvents:
        """See Engine."""
        return await self._find_events(await self.open())

    async def _find_events(self, cluster: Cluster) -> StoredEvents:
        if self._stored_events is None:
            store = await self.records.open()
            self._stored_events = make_events(cluster, store, self._settings, self.get, self._ticks.changed)
        return self._stored_events

    def worker(self, registry: Registry, queues: Sequence[str] | None, settings: Settings) -> Worker:
        """See Engine."""

        async def make_chores(cluster: Cluster) -> Sequence[Chore]:
            if not self.records.there:
                return []
            chores = [self._ticks.chore("events", await self._find_events(cluster), SCHEDULES_POLL)]
            if settings.worker.schedules:
                chores.append(self._ticks.chore("schedules", await self._find_schedules(cluster), SCHEDULES_POLL))
            return chores

        runner = Runner(self.namespace, settings, self._events)
        return TemporalWorker(self.open, runner, registry, queues, settings, make_chores)

    async def clean(self) -> int:
        """See Engine."""
        return await (await self.open()).clean()

    async def migrate(self, progress: Callable[[str], None]) -> list[str]:
        """See Engine."""
        client = await connect(self.target)
        done = await namespace.migrate(client, self._needs(), progress)
        return done + await self.records.migrate(progress)

    async def doctor(self) -> list[Finding]:
        """See Engine."""
        client = await connect(self.target)
        findings = await examine(client, self._needs(), self._clock)
        if all(finding.ok for finding in findings if finding.what == "namespace"):
            try:
                cluster = await self.open()
                workers = await cluster.workers()
                findings += examine_service(await lists.waiting(cluster.reader, find_ready=not workers), workers)
                if self.records.there:
                    findings += await (await self._find_schedules(cluster)).examine(workers)
                    findings += await (await self._find_events(cluster)).examine()
            except EngineError as error:
                findings.append(Finding(True, "functions", error.message))
        if any(finding.what == "search attribute" and finding.ok for finding in findings):
            failing = await lists.with_failed_messages(Reader(client, self._needs()), MOST_SHOWN + 1)
            findings.append(failed_messages_finding(failing))
        return findings + await self.records.doctor()

    async def close(self) -> None:
        """See Engine."""
        try:
            if self._stored_events is not None:
                async with asyncio.timeout(CLOSE_WITHIN):
                    await self._stored_events.close()
        except (TimeoutError, EngineError) as error:
            warn_of_lost_counts(log, error if isinstance(error, EngineError) else "the database does not answer")
        finally:
            await self.records.close()
