"""The Temporal engine: the Engine protocol on a cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from weakref import WeakValueDictionary

from temporalio.client import Client

from semel.contract.decision import Admit, Join, Refuse, decide, reason_of
from semel.contract.lifecycle import Status
from semel.contract.records import Execution, Suppressed, Undelivered
from semel.contract.retention import WORKFLOW_RETENTION
from semel.contract.times import from_micros
from semel.define.registry import Registry
from semel.engine.protocol import (
    MOST_SHOWN,
    Admission,
    Capabilities,
    Filter,
    Finding,
    Message,
    Outcome,
    Past,
    QueueState,
    Replayed,
    Waiting,
    Worker,
    WorkerState,
    failed_messages_finding,
)
from semel.engine.service import examine_service
from semel.engine.start_request import StartRequest
from semel.engines.temporal import (
    cleaning,
    controlling,
    listing,
    migrating,
    presence,
    queueing,
    replaying,
    resetting,
)
from semel.engines.temporal.arrivals import Look, Moment, read_moments
from semel.engines.temporal.asking import Questions
from semel.engines.temporal.bridge import Heirloom
from semel.engines.temporal.connecting import Target, connect
from semel.engines.temporal.covering import Coverage, too_short
from semel.engines.temporal.doctor import examine
from semel.engines.temporal.inheriting import Inheritance
from semel.engines.temporal.names import kind_of, split, workflow_id
from semel.engines.temporal.needs import longest
from semel.engines.temporal.reading import Reader, Seen
from semel.engines.temporal.records import Records
from semel.engines.temporal.starting import Starter
from semel.engines.temporal.tally import counted, last_conflict
from semel.engines.temporal.worker import TemporalWorker
from semel.engines.temporal.writing import Mail
from semel.errors import EngineError, MigrationNeeded
from semel.runtime.events import Events
from semel.settings import QueueSettings, Settings

log = logging.getLogger("semel.temporal")
TEMPORAL = Capabilities(
    "temporal", many_machines=True, in_order=False, limits=False, hears_in_steps=False,
    foreign_workflows=True,
)  # fmt: skip
AT_ONCE = 100
FRESH = timedelta(seconds=5)
"""A result that was just given is within any retention: it was to be delivered."""


class TemporalEngine:
    """Executions on a cluster, for one namespace and one event loop."""

    capabilities = TEMPORAL

    def __init__(
        self, target: Target, records: Records, settings: Settings, definitions: Registry, *,
        auto_migrate: bool, clock: Callable[[], float], events: Events | None = None,
    ) -> None:  # fmt: skip
        self.events = events or Events()
        self.records = records
        self.namespace = target.namespace
        self.target = target
        self._settings = settings
        self.definitions = definitions
        self._auto_migrate = auto_migrate
        self._clock = clock
        self._opening: asyncio.Task[Client] | None = None
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def now(self) -> int:
        """Microseconds since 1970."""
        return round(self._clock() * 1_000_000)

    async def open(self) -> Client:
        """Connect once; every verb calls this first."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Client:
        client = await connect(self.target)
        if self._auto_migrate:
            await migrating.migrate(client, self._needs())
        kept = await migrating.look(client)
        if kept is None:
            raise MigrationNeeded(
                f"there is no namespace {self.namespace!r} on this Temporal server. "
                f"Run: semel migrate --namespace {self.namespace}"
            )
        if not kept.indexed:
            await migrating.check(client, timedelta(0))
        self.kept = kept.retention
        self.coverage = Coverage(self.namespace, kept.retention, self.records.there)
        self._reader = Reader(client, kept.retention)
        self._starter = Starter(client, self._reader, self.now)
        self._mail = Mail(client, self._reader, self._starter, self.now)
        self._questions = Questions(self._reader)
        return client

    async def start(self, request: StartRequest) -> Admission:
        """See Engine."""
        await self.open()
        if (refusal := self.coverage.refusal(request)) is not None:
            raise refusal
        admission = await self._admit(request)
        decision = admission.decision
        if not isinstance(decision, Admit) and request.key is not None:
            at = from_micros(self.now())
            self.records.count(
                admission.id, reason_of(decision), at, max(request.options.retention, request.options.window)
            )
        return admission

    async def _admit(self, request: StartRequest) -> Admission:
        """A key is known for as long as the cluster keeps closed workflows, or as the records database does: equal or
        refused, never silently weaker."""
        options = request.options
        if request.key is None or options.kind == "entity" or options.window <= self.kept:
            return await self._starter.start(request)
        prior = await self.records.prior(options.kind, request.key)
        if prior is None:
            return await self._starter.start(request, ledger=True)
        decision = decide(prior, request.contract_request(), from_micros(self.now()))
        if isinstance(decision, Admit):
            return await self._starter.start(request, after=decision, ledger=True)
        if isinstance(decision, Refuse) or prior.previous is not None:  # the ledger does not know whose request it was
            sent = await self._starter.sent(request)
            if sent is not None:
                return sent
        if isinstance(decision, Join):
            await self._starter.join(prior.id, request)
        return Admission(prior.id, decision)

    async def check(self) -> None:
        """ConfigError: what is declared is to be kept for longer than it would be."""
        await self.open()
        needs, whose = longest(self.definitions, self._settings, windows=not self.records.there)
        if needs > self.kept and (needs, whose) != longest((), Settings()):
            raise too_short(self.namespace, self.kept, needs, whose)

    def _needs(self) -> timedelta:
        """For how long the namespace has to keep closed workflows; at least for as long as workflows by default."""
        return max(WORKFLOW_RETENTION, longest(self.definitions, self._settings)[0])

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
                    return await self.start(request)
                async with gate:
                    return await self.start(request)

        return list(await asyncio.gather(*(one(request) for request in requests)))

    async def get(self, id: str) -> Execution | None:
        """See Engine."""
        await self.open()
        seen = await self._reader.find(id) or await listing.by_beginning(self._reader, id)
        if seen is None:
            return await self.records.get(id) if self.records.there else None
        return await self._told(seen)

    async def find(self, kind: str, key: str) -> Execution | None:
        """See Engine."""
        await self.open()
        seen = await self._reader.describe(workflow_id(kind, key))
        if seen is None:
            return await self.records.find(kind, key) if self.records.there else None
        return await self._told(seen)

    async def _told(self, seen: Seen) -> Execution:
        return listing.aged(await self._reader.execution(seen), from_micros(self.now()))

    async def executions(self, which: Filter) -> list[Execution]:
        """See Engine."""
        await self.open()
        return await listing.executions(self._reader, which, from_micros(self.now()))

    async def explain(self, kind: str, key: str) -> tuple[list[Execution], list[Suppressed] | None, datetime]:
        """See Engine."""
        await self.open()
        runs = await listing.history(self._reader, workflow_id(kind, key))
        found = [await self._told(seen) for seen in runs]
        if not found and (forgotten := await self.find(kind, key)) is not None:
            found = [forgotten]
        suppressed = await self.records.suppressed([one.id for one in found])
        by_entities = [count for seen in runs for count in counted(seen.id, seen.memo)]
        if suppressed is None and not by_entities:
            return found, None, from_micros(self.now())
        return found, [*(suppressed or ()), *by_entities], from_micros(self.now())

    async def input_of(self, id: str) -> bytes | None:
        """See Engine."""
        await self.open()
        seen, found = await self._reader.find(id), split(id)
        if seen is None and self.records.there:
            return await self.records.input_of(id)
        if seen is None or found is None or (await self._told(seen)).expired:
            return None
        return await self._reader.given(found[1], found[0])

    async def outcome(self, id: str, timeout: float | None) -> Outcome | None:
        """See Engine."""
        await self.open()
        found = split(id)
        forgotten = Outcome(Status.COMPLETED, None, None, expired=True)
        if found is None:
            return forgotten
        if timeout == 0 and (there := await self.get(id)) is not None and not there.status.terminal:
            return None  # the cluster has no question about an end that it does not answer later
        try:
            async with asyncio.timeout(timeout or None):
                ended = await self._reader.wait(found[1], found[0])
        except TimeoutError:
            return None
        if ended is None:
            kept = await self.records.outcome(id) if self.records.there else None
            return kept or forgotten
        how, at = ended
        now = from_micros(self.now())
        if now - at > FRESH:
            execution = await self.get(id)
            if execution is None or (execution.expired and now - (execution.finished_at or at) > FRESH):
                return Outcome(how.status, None, None, expired=True)
        output = None if kind_of(found[1]) == "entity" else how.output  # what it leaves is for its heirs
        return Outcome(how.status, output, how.error, expired=False)

    async def cancel(self, id: str) -> Status | None:
        """See Engine."""
        return await controlling.cancel(await self.open(), self._reader, id)

    async def signal(self, id: str, name: str, payload: bytes | None, key: str | None) -> Status | None:
        """See Engine. One after the other to one workflow: a cluster does not keep the order of what comes at once."""
        client = await self.open()
        line = self._lines.get(id) or self._lines.setdefault(id, asyncio.Lock())
        async with line:
            return await controlling.signal(client, self._reader, id, name, payload, key)

    async def send(self, message: Message) -> str:
        """See Engine."""
        await self.open()
        return await self._mail.send(message)

    async def answer(self, id: str, key: str, timeout: float | None) -> Outcome | None:
        """See Engine."""
        await self.open()
        return await self._questions.answer(id, key, timeout)

    async def state_of(self, key: str) -> tuple[bool, bytes | None]:
        """See Engine."""
        await self.open()
        return await self._questions.state_of(key)

    async def undelivered(self, kind: str, key: str) -> Undelivered:
        """See Engine."""
        await self.open()
        if kind == "entity":
            return await self._questions.undelivered(key)
        seen = await self._reader.describe(workflow_id(kind, key))
        conflict = None if seen is None else last_conflict(seen.memo)
        return Undelivered() if conflict is None else Undelivered(refused=(conflict,))

    async def keys_of(self, id: str) -> bytes | None:
        """What an entity that has ended leaves to the next one."""
        await self.open()
        return await self._questions.keys_of(id)

    async def failing_entities(self, most: int) -> list[str]:
        """See Engine."""
        await self.open()
        return await listing.with_failed_messages(self._reader, most)

    async def terminate(self, id: str, why: str) -> Status | None:
        """See Engine."""
        return await controlling.terminate(await self.open(), self._reader, id, why)

    async def moments(self, id: str, run: str, look: Look) -> dict[str, Moment]:
        """When everything came that a workflow task of a run brought."""
        await self.open()
        return await read_moments(self._reader.backwards(id, run), look)

    async def let_go(self, wards: Mapping[str, str]) -> None:
        """What a workflow stops wanting ends as it was agreed, unless others have joined it."""
        await controlling.let_go(await self.open(), self._reader, wards)

    async def close_orphan(self, id: str, parent: str, how: str) -> None:
        """End a child whose parent was terminated while the child was being started: its end could not name it."""
        client = await self.open()
        seen = await self._reader.find(parent)
        if seen is not None and not seen.live and await resetting.heir_of(self._reader, parent) is None:
            await controlling.let_go(client, self._reader, {id: how})

    async def published(self, id: str, name: str) -> bytes | None:
        """See Engine."""
        await self.open()
        return await controlling.published(self._reader, id, name)

    async def attributes(self, id: str) -> dict[str, str]:
        """See Engine."""
        await self.open()
        seen = await self._reader.find(id)
        return {} if seen is None else listing.attributes(seen)

    async def past(self, id: str) -> Past | None:
        """See Engine."""
        client = await self.open()
        seen = await self._reader.find(id)
        return None if seen is None else await resetting.past(client, self._reader, seen)

    async def replay(self, id: str, registry: Registry, settings: Settings) -> Replayed | None:
        """See Engine."""
        return await replaying.try_replay(await self.open(), self._reader, id, registry, settings, self.coverage)

    async def reset(self, id: str, new_id: str, commit: int) -> str:
        """See Engine."""
        client, now = await self.open(), from_micros(self.now())
        return await resetting.reset(client, self._reader, self._starter, id, commit, now)

    async def heir_of(self, id: str) -> str | None:
        """The execution that one goes on as, if it was reset."""
        await self.open()
        return await resetting.heir_of(self._reader, id)

    async def inheritance(self, of: Heirloom) -> Inheritance:
        """What is there for a workflow that goes on from a row of another run."""
        await self.open()
        return await resetting.inheritance(self._reader, of.id, of.run, of.commit)

    async def redrive(self, id: str, new_id: str) -> str | None:
        """See Engine."""
        await self.open()
        seen = await self._reader.find(id)
        if seen is not None and (refusal := self.coverage.refusal_again(self.definitions.get(seen.card.name))):
            raise refusal
        return await controlling.redrive(self._starter, self._reader, id, from_micros(self.now()))

    async def configure(self, queues: Mapping[str, QueueSettings]) -> None:
        """See Engine."""
        client = await self.open()
        self._settings = replace(self._settings, queues=dict(queues))
        await queueing.configure(client, queues)

    async def queues(self) -> list[QueueState]:
        """See Engine."""
        client = await self.open()
        return await queueing.queues(client, self._reader, self._settings.queues, from_micros(self.now()))

    async def workers(self) -> list[WorkerState]:
        """See Engine."""
        return await presence.workers(await self.open())

    async def waiting(self) -> list[Waiting]:
        """See Engine."""
        await self.open()
        return await listing.waiting(self._reader)

    async def unserved(self, workers: Sequence[WorkerState]) -> list[Waiting]:
        """Some of what waits for a function, or on a queue, that none of these workers has."""
        await self.open()
        return await listing.unserved(self._reader, workers)

    def worker(self, registry: Registry, queues: Sequence[str] | None, settings: Settings) -> Worker:
        """See Engine."""
        return TemporalWorker(self, registry, queues, settings)

    async def clean(self) -> int:
        """See Engine."""
        client = await self.open()
        looked = await cleaning.clean(client, self._reader, from_micros(self.now()))
        await self.records.clean(self._lives)
        return looked

    async def _lives(self, executions: Sequence[str]) -> set[str]:
        found = [await self._reader.find(execution) for execution in executions]
        return {one.id for one in found if one is not None and one.live}

    async def queues_of(self, names: Sequence[str], but: Collection[str]) -> set[str]:
        """Queues where executions of these names wait, besides some."""
        await self.open()
        among = f"ExecutionStatus = 'Running' AND WorkflowType IN ({', '.join(map(listing.quoted, names))})"
        return await queueing.used(self._reader, f"{among} AND {migrating.ATTRIBUTE} IS NOT NULL", but)

    async def settled(self, id: str, run: str) -> bool:
        """Has a workflow heard of all that came for it?"""
        seen = await self._reader.describe(id, run)
        return seen is None or seen.details is None or not seen.details.HasField("pending_workflow_task")

    async def migrate(self, progress: Callable[[str], None]) -> list[str]:
        """See Engine."""
        client = await connect(self.target)
        done = await migrating.migrate(client, self._needs(), progress)
        return done + await self.records.migrate(progress)

    async def doctor(self) -> list[Finding]:
        """See Engine."""
        client = await connect(self.target)
        findings = await examine(client, self._needs(), self._clock)
        if all(finding.ok for finding in findings if finding.what == "namespace"):
            try:
                workers = await self.workers()
                findings += examine_service(await listing.waiting(self._reader, find_ready=not workers), workers)
            except EngineError as error:
                findings.append(Finding(True, "functions", error.message))
        if any(finding.what == "search attribute" and finding.ok for finding in findings):
            failing = await listing.with_failed_messages(Reader(client, self._needs()), MOST_SHOWN + 1)
            findings.append(failed_messages_finding(failing))
        return findings + await self.records.doctor()

    async def close(self) -> None:
        """See Engine."""
        await self.records.close()
