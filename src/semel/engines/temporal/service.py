"""What workers do for workflows besides tasks: see `worker_requests.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from temporalio import activity
from temporalio.common import RawValue

from semel.codec import decoder_of
from semel.contract.decision import Admit, Reason, Refuse
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.engine import conflicts
from semel.engine.outcomes import describe
from semel.engine.start_request import StartRequest
from semel.engines.temporal import carryover, steps
from semel.engines.temporal.activities import CancelGroup, Runner
from semel.engines.temporal.cluster import Cluster
from semel.engines.temporal.inside.key_reservation import RESERVE, SETTLE, held_by, read_ending, read_taking
from semel.engines.temporal.payloads import unwrap, wrap
from semel.engines.temporal.worker_requests import (
    ASKED,
    CLOSE,
    FORK,
    INHERIT,
    OUTCOME,
    START,
    STEP,
    ActivityAnswer,
    StepResult,
    read_fork_request,
    request_id_of,
)
from semel.errors import ConfigError, InputError
from semel.flow.commands import Command, Kind
from semel.flow.entries import raw
from semel.flow.turn import Identity
from semel.runtime.steps import StepOutcome, describe_step, run_step, transaction_of

_read_id = decoder_of(str).decode
_read_bound_children = decoder_of(dict[str, str]).decode


class Service:
    """The built-in activities of one worker."""

    def __init__(self, cluster: Cluster, runner: Runner) -> None:
        self._cluster = cluster
        self._runner = runner

    @property
    def errands(self) -> dict[str, Callable[[bytes], Any]]:
        """What any worker of the queue can do for a workflow, by the name of the activity."""
        return {
            START: self.start,
            OUTCOME: self.outcome,
            CLOSE: self.close,
            FORK: self.fork,
            RESERVE: self.reserve,
            SETTLE: self.settle,
            INHERIT: self.inherit,
        }

    @property
    def activities(self) -> list[Callable[..., Any]]:
        """The errands, and the local activity that runs the steps of the workflows that this process holds."""
        errands = [_activity(name, method, self._runner.errands) for name, method in self.errands.items()]
        return [*errands, _activity(STEP, self.step, self._runner.steps)]

    async def start(self, data: bytes) -> RawValue:
        """Ask for an execution under a key that is taken."""
        start = StartRequest.from_bytes(data)
        info = activity.info()
        start.id = request_id_of(info.workflow_run_id or "", info.activity_id)
        start.shape = self._cluster.definitions.shape_of(start.options.name)
        try:
            admission = await self._cluster.start(start)
        except (ConfigError, InputError) as error:  # for the code that asked: trying again would not help
            refused = ErrorInfo(f"semel.{type(error).__name__}", error.message)
            return wrap(msgspec.json.encode(ActivityAnswer(refused=refused)))
        if isinstance(admission.decision, Refuse):
            return wrap(msgspec.json.encode(await self._refusal(start, admission.decision)))
        begun = isinstance(admission.decision, Admit)
        if begun and start.on_parent_close is not None:
            await self._cluster.close_orphan(admission.id, start.parent or "", start.on_parent_close)
        return wrap(msgspec.json.encode(ActivityAnswer(admission.id, begun=begun)))

    async def _refusal(self, start: StartRequest, refuse: Refuse) -> ActivityAnswer:
        prior, reason = refuse.prior, refuse.reason
        known = await self._cluster.input_of(prior.id) if reason is Reason.INPUT_DIFFERS else None
        error = conflicts.conflict(
            start.key or "", start.options.name, prior, reason, known, start.payload, start.shape
        )
        refused = ErrorInfo("semel.KeyConflict", error.message)
        return ActivityAnswer(prior.id, output=raw(conflicts.dump(error)), refused=refused)

    async def reserve(self, data: bytes) -> RawValue:
        """Take a key in the ledger; of another one that holds it, how it ended."""
        taking = read_taking(data)
        records = self._cluster.records
        if not records.there or taking.card.held <= self._cluster.retention:  # the cluster remembers for long enough
            return wrap(held_by(taking.execution, Status.RUNNING, None, None))
        holder = await records.reserve(taking.reservation(self._cluster.definitions.shape_of(taking.card.name)))
        found = None if holder.id == taking.execution else await records.outcome(holder.id)
        if found is None:
            return wrap(held_by(holder.id, holder.status, None, None))
        return wrap(held_by(holder.id, found.status, found.output, found.error))

    async def settle(self, data: bytes) -> RawValue:
        """Write down in the ledger how a run ended."""
        if self._cluster.records.there:
            await self._cluster.records.settle(read_ending(data).settlement())
        return wrap(None)

    async def outcome(self, data: bytes) -> RawValue:
        """Wait for the end of an execution; of one that is reset, for the end of the one it goes on as."""
        id_ = _read_id(data)
        while True:
            activity.heartbeat()
            found = await self._cluster.outcome(id_, 1.0)
            if found is None:
                continue
            successor = await self._cluster.reset_successor(id_) if found.status is Status.CANCELLED else None
            if successor is None:
                break
            id_ = successor
        return wrap(msgspec.json.encode(ActivityAnswer(id_, found.status.value, raw(found.output), found.error)))

    async def inherit(self, data: bytes) -> RawValue:
        """What an entity knows of the one that has ended under its key."""
        return wrap(await self._cluster.keys_of(_read_id(data)))

    async def close(self, data: bytes) -> RawValue:
        """End executions that go with another one, each as it was agreed."""
        bound_children = _read_bound_children(data)
        for id_ in [id_ for id_, how in bound_children.items() if how == ASKED]:
            await self._cluster.cancel(id_)
            del bound_children[id_]
        await self._cluster.let_go(bound_children)
        return wrap(None)

    async def fork(self, data: bytes) -> RawValue:
        """What is there for a workflow that goes on from a row of another run."""
        return wrap(carryover.pack(await self._cluster.inheritance(read_fork_request(data))))

    async def step(self, data: bytes) -> RawValue:
        """Run a function that a workflow has left here, and write down the row it came with."""
        place = steps.read_place(data)
        if place.look is not None:
            info = activity.info()
            moments = await self._cluster.moments(info.workflow_id or "", info.workflow_run_id or "", place.look)
            return wrap(msgspec.json.encode(StepResult(moments=moments)))
        if not place.number:
            return wrap(msgspec.json.encode(StepResult(row=place.row)))
        command, who = _left(place)
        ended = await (self._step if command.kind is Kind.STEP else self._transaction)(command, who)
        made = StepResult(
            place.number,
            steps.ended(place.room),
            ended.status.value,
            output=raw(ended.output),
            error=ended.error,
            row=place.row,
        )
        return wrap(msgspec.json.encode(made))

    async def _step(self, command: Command, who: Identity) -> StepOutcome:
        return await run_step(
            command,
            lambda attempt: describe_step(command, who, attempt, command.number),
            lambda context, call: self._runner.threads().run(context, call),
            lambda: self._runner.steps.over or activity.is_cancelled(),
            self._runner.events.retried,
        )

    async def _transaction(self, command: Command, who: Identity) -> StepOutcome:
        """The same inside a transaction of the records database, exactly once."""
        records = self._cluster.records
        try:
            if not records.there:
                raise ConfigError(
                    "ctx.transaction() on Temporal happens in the records database, and none is given: "
                    "App('temporal://…', records='postgresql://…')."
                )
            do = transaction_of(command, describe_step(command, who, 1, command.number))
            output = await records.transact(who.id, str(command.number), do)
        except Exception as error:
            return StepOutcome(Status.FAILED, error=describe(error))
        return StepOutcome(Status.COMPLETED, output)


def _activity(name: str, method: Callable[[bytes], Any], among: CancelGroup) -> Callable[..., Any]:
    async def call(ask: RawValue) -> RawValue:
        with among:
            found: RawValue = await method(unwrap(ask) or b"{}")
            return found

    return activity.defn(name=name)(call)


def _left(place: steps.Place) -> tuple[Command, Identity]:
    found = steps.take(place)
    if found is None:  # its workflow has left this process: whoever has it now runs the step
        raise RuntimeError(f"step {place.number} is not here any more")
    return found
