"""A cluster that is connected to, with everything that client and worker need of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from temporalio.client import Client

from semel.contract.decision import Admit, Join, Refuse, decide, reason_of
from semel.contract.lifecycle import Status
from semel.contract.records import Execution
from semel.contract.times import from_micros
from semel.define.registry import Registry
from semel.engine.protocol import Admission, Outcome, Waiting, WorkerState
from semel.engine.start_request import StartRequest
from semel.engines.temporal import control, lists, namespace, queues, reset, retention, run_history, workers
from semel.engines.temporal.arrivals import Look, Moment, read_moments
from semel.engines.temporal.carryover import ForkPoint, Inheritance
from semel.engines.temporal.coverage import Coverage, too_short
from semel.engines.temporal.executions import Reader, Seen
from semel.engines.temporal.messages import Mail, Questions
from semel.engines.temporal.names import ATTRIBUTE, kind_of, split
from semel.engines.temporal.namespace import longest
from semel.engines.temporal.records import Records
from semel.engines.temporal.start import Starter
from semel.engines.temporal.worker_requests import ForkRequest
from semel.errors import MigrationNeeded
from semel.runtime.events import Events
from semel.settings import QueueSettings, Settings

FRESH = timedelta(seconds=5)
"""A result that was just given is within any retention: it was to be delivered."""


class Cluster:
    """One namespace of a cluster: its client, and what reads, starts and sends there. Whole from the beginning."""

    def __init__(
        self,
        client: Client,
        retention: timedelta,
        records: Records,
        settings: Settings,
        definitions: Registry,
        clock: Callable[[], float],
        events: Events,
    ) -> None:
        self.client = client
        self.namespace = client.namespace
        self.retention = retention
        """How long the namespace keeps what has ended."""
        self.records = records
        self.settings = settings
        self.definitions = definitions
        self.events = events
        self._clock = clock
        self.coverage = Coverage(client.namespace, retention, records.there)
        self.reader = Reader(client, retention)
        self.starter = Starter(client, self.reader, self.now)
        self.mail = Mail(client, self.reader, self.starter, self.now)
        self.questions = Questions(self.reader)

    def now(self) -> int:
        """Microseconds since 1970."""
        return round(self._clock() * 1_000_000)

    async def start(self, request: StartRequest) -> Admission:
        """Start an execution, or join or refuse it."""
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
        if request.key is None or options.kind == "entity" or options.window <= self.retention:
            return await self.starter.start(request)
        prior = await self.records.prior(options.kind, request.key)
        if prior is None:
            return await self.starter.start(request, ledger=True)
        decision = decide(prior, request.contract_request(), from_micros(self.now()))
        if isinstance(decision, Admit):
            return await self.starter.start(request, after=decision, ledger=True)
        if isinstance(decision, Refuse) or prior.previous is not None:  # the ledger does not know whose request it was
            sent = await self.starter.sent(request)
            if sent is not None:
                return sent
        if isinstance(decision, Join):
            await self.starter.join(prior.id, request)
        return Admission(prior.id, decision)

    async def look_up(self, request: StartRequest) -> Admission | None:
        """What `start` would answer to a request that is in already, or whose key is taken; None: it would be new."""
        found = await self.starter.look_up(request)
        if found is not None or request.key is None or not self.records.there:
            return found
        prior = await self.records.prior(request.options.kind, request.key)
        if prior is None:
            return None
        decision = decide(prior, request.contract_request(), from_micros(self.now()))
        return None if isinstance(decision, Admit) else Admission(prior.id, decision)

    def check(self) -> None:
        """ConfigError: what is declared is to be kept for longer than it would be."""
        needs, whose = longest(self.definitions, self.settings, windows=not self.records.there)
        if needs > self.retention and (needs, whose) != longest((), Settings()):
            raise too_short(self.namespace, self.retention, needs, whose)

    async def get(self, id: str) -> Execution | None:
        """An execution by its id, or by how its id begins."""
        seen = await self.reader.find(id) or await lists.by_beginning(self.reader, id)
        if seen is None:
            return await self.records.get(id) if self.records.there else None
        return await self.execution_of(seen)

    async def execution_of(self, seen: Seen) -> Execution:
        """The record of a workflow, without what is past its retention."""
        return lists.aged(await self.reader.execution(seen), from_micros(self.now()))

    async def input_of(self, id: str) -> bytes | None:
        """What an execution was given, while that is kept."""
        seen, found = await self.reader.find(id), split(id)
        if seen is None and self.records.there:
            return await self.records.input_of(id)
        if seen is None or found is None or (await self.execution_of(seen)).expired:
            return None
        return await self.reader.given(found[1], found[0])

    async def outcome(self, id: str, timeout: float | None) -> Outcome | None:
        """Wait for the end of an execution; None: it has not ended in time."""
        found = split(id)
        forgotten = Outcome(Status.COMPLETED, None, None, expired=True, unknown=True)
        if found is None:
            return forgotten
        if timeout == 0 and (there := await self.get(id)) is not None and not there.status.terminal:
            return None  # the cluster has no question about an end that it does not answer later
        try:
            async with asyncio.timeout(timeout or None):
                ended = await self.reader.wait(found[1], found[0])
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
        """Ask an execution to stop."""
        return await control.cancel(self.client, self.reader, id)

    async def keys_of(self, id: str) -> bytes | None:
        """What an entity that has ended leaves to the next one."""
        return await self.questions.keys_of(id)

    async def moments(self, id: str, run: str, look: Look) -> dict[str, Moment]:
        """When everything came that a workflow task of a run brought."""
        return await read_moments(self.reader.backwards(id, run), look)

    async def let_go(self, bound_children: Mapping[str, str]) -> None:
        """What a workflow stops wanting ends as it was agreed, unless others have joined it."""
        await control.let_go(self.client, self.reader, bound_children)

    async def close_orphan(self, id: str, parent: str, how: str) -> None:
        """End a child whose parent was terminated while the child was being started: its end could not name it."""
        seen = await self.reader.find(parent)
        if seen is not None and not seen.live and await reset.reset_successor(self.reader, parent) is None:
            await control.let_go(self.client, self.reader, {id: how})

    async def reset_successor(self, id: str) -> str | None:
        """The execution that one goes on as, if it was reset."""
        return await reset.reset_successor(self.reader, id)

    async def inheritance(self, of: ForkRequest) -> Inheritance:
        """What is there for a workflow that goes on from a row of another run."""
        return await run_history.inheritance(self.reader, of.id, ForkPoint(of.run, of.commit))

    async def configure(self, settings: Mapping[str, QueueSettings]) -> None:
        """Set what is declared for queues."""
        self.settings = replace(self.settings, queues=dict(settings))
        await queues.configure(self.client, settings)

    async def workers(self) -> list[WorkerState]:
        """The workers that live."""
        return await workers.workers(self.client)

    async def unserved(self, workers: Sequence[WorkerState]) -> list[Waiting]:
        """Some of what waits for a function, or on a queue, that none of these workers has."""
        return await lists.unserved(self.reader, workers)

    async def clean(self) -> int:
        """Delete what is past its retention; how many were looked at."""
        looked = await retention.clean(self.client, self.reader, from_micros(self.now()))
        await self.records.clean(self._lives)
        return looked

    async def _lives(self, executions: Sequence[str]) -> set[str]:
        found = [await self.reader.find(execution) for execution in executions]
        return {one.id for one in found if one is not None and one.live}

    async def queues_of(self, names: Sequence[str], but: Collection[str]) -> set[str]:
        """Queues where executions of these names wait, besides some."""
        among = f"ExecutionStatus = 'Running' AND WorkflowType IN ({', '.join(map(lists.quoted, names))})"
        return await queues.used(self.reader, f"{among} AND {ATTRIBUTE} IS NOT NULL", but)

    async def is_settled(self, id: str, run: str) -> bool:
        """Has a workflow heard of all that came for it?"""
        seen = await self.reader.describe(id, run)
        return seen is None or seen.details is None or not seen.details.HasField("pending_workflow_task")


async def look_at_namespace(client: Client) -> timedelta:
    """How long the namespace keeps what has ended. MigrationNeeded: it is missing, or not ready for Semel."""
    kept = await namespace.look(client)
    if kept is None:
        raise MigrationNeeded(
            f"there is no namespace {client.namespace!r} on this Temporal server. "
            f"Run: semel migrate --namespace {client.namespace}"
        )
    if not kept.indexed:
        await namespace.check(client, timedelta(0))
    return kept.retention
