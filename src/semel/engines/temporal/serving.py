"""What workers do for workflows besides tasks: see `bridge.py`."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
import uuid
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import msgspec
from temporalio import activity
from temporalio.common import RawValue

from semel.contract.decision import Reason, Refuse
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.define.context import Running, enter
from semel.engine import conflicts
from semel.engine.outcomes import describe
from semel.engines.temporal import inheriting, steps
from semel.engines.temporal.bridge import ASKED, CLOSE, FORK, INHERIT, OUTCOME, START, STEP, Ask, Heirloom, Made, Told
from semel.engines.temporal.payloads import unwrap, wrap
from semel.engines.temporal.reserving import RESERVE, SETTLE, Ending, Taking, held_by
from semel.engines.temporal.running import Interruptible, Runner
from semel.errors import ConfigError, InputError
from semel.flow.commands import Command, Kind
from semel.flow.entries import raw
from semel.flow.turn import Identity

if TYPE_CHECKING:
    from semel.engines.temporal.engine import TemporalEngine


class Service:
    """The built-in activities of one worker."""

    def __init__(self, engine: TemporalEngine, runner: Runner) -> None:
        self._engine = engine
        self._runner = runner

    @property
    def activities(self) -> list[Callable[..., Any]]:
        """For whichever worker."""
        errands = {
            START: self.start, OUTCOME: self.outcome, CLOSE: self.close, FORK: self.fork, RESERVE: self.reserve,
            SETTLE: self.settle, INHERIT: self.inherit,
        }  # fmt: skip
        return [_activity(name, method, self._runner.errands) for name, method in errands.items()]

    @property
    def local(self) -> list[Callable[..., Any]]:
        """For the process that holds the workflow."""
        return [_activity(STEP, self.step, self._runner.steps)]

    async def start(self, data: bytes) -> RawValue:
        """Ask for an execution under a key that is taken."""
        ask = msgspec.json.decode(data, type=Ask)
        info = activity.info()
        same = uuid.uuid5(uuid.NAMESPACE_OID, f"{info.workflow_run_id}/{info.activity_id}")
        admission = await self._engine.start_for(ask.start(str(same)), ask.parent)
        if isinstance(admission.decision, Refuse):
            return wrap(msgspec.json.encode(await self._refusal(ask, admission.decision)))
        return wrap(msgspec.json.encode(Told(admission.id)))

    async def _refusal(self, ask: Ask, refuse: Refuse) -> Told:
        prior, reason = refuse.prior, refuse.reason
        known = await self._engine.input_of(prior.id) if reason is Reason.INPUT_DIFFERS else None
        error = conflicts.conflict(ask.key, ask.name, prior, reason, known, bytes(ask.payload))
        refused = ErrorInfo("semel.KeyConflict", error.message)
        return Told(prior.id, output=raw(conflicts.dump(error)), refused=refused)

    async def reserve(self, data: bytes) -> RawValue:
        """Take a key in the ledger; of another one that holds it, how it ended."""
        taking = msgspec.json.decode(data, type=Taking)
        records = self._engine.records
        if not records.there or taking.card.held <= self._engine.kept:  # the cluster remembers for long enough
            return wrap(held_by(taking.execution, Status.RUNNING, None, None))
        holder = await records.reserve(taking.reservation())
        found = None if holder.id == taking.execution else await records.outcome(holder.id)
        if found is None:
            return wrap(held_by(holder.id, holder.status, None, None))
        return wrap(held_by(holder.id, found.status, found.output, found.error))

    async def settle(self, data: bytes) -> RawValue:
        """Write down in the ledger how a run ended."""
        if self._engine.records.there:
            await self._engine.records.settle(msgspec.json.decode(data, type=Ending).settlement())
        return wrap(None)

    async def outcome(self, data: bytes) -> RawValue:
        """Wait for the end of an execution; of one that is reset, for the end of the one it goes on as."""
        id_ = msgspec.json.decode(data, type=str)
        while True:
            activity.heartbeat()
            found = await self._engine.outcome(id_, 1.0)
            if found is None:
                continue
            heir = await self._engine.heir_of(id_) if found.status is Status.CANCELLED else None
            if heir is None:
                break
            id_ = heir
        return wrap(msgspec.json.encode(Told(id_, found.status.value, raw(found.output), found.error)))

    async def inherit(self, data: bytes) -> RawValue:
        """What an entity knows of the one that has ended under its key."""
        return wrap(await self._engine.keys_of(msgspec.json.decode(data, type=str)))

    async def close(self, data: bytes) -> RawValue:
        """End executions that go with another one, each as it was agreed."""
        wards = msgspec.json.decode(data, type=dict[str, str])
        for id_ in [id_ for id_, how in wards.items() if how == ASKED]:
            await self._engine.cancel(id_)
            del wards[id_]
        await self._engine.let_go(wards)
        return wrap(None)

    async def fork(self, data: bytes) -> RawValue:
        """What is there for a workflow that goes on from a row of another run."""
        return wrap(inheriting.pack(await self._engine.inheritance(msgspec.json.decode(data, type=Heirloom))))

    async def step(self, data: bytes) -> RawValue:
        """Run a function that a workflow has left here, and write down the row it came with."""
        place = msgspec.json.decode(data, type=steps.Place)
        if not place.number:
            return wrap(msgspec.json.encode(Made(row=place.row)))
        command, who = _left(place)
        do = self._step if command.kind is Kind.STEP else self._transaction
        try:
            output = await do(command, who)
            made = Made(place.number, steps.ended(place.room), output=raw(output), row=place.row)
        except _Failed as failed:
            made = Made(
                place.number, steps.ended(place.room), Status.FAILED.value, error=failed.error, row=place.row
            )  # fmt: skip
        return wrap(msgspec.json.encode(made))

    async def _step(self, command: Command, who: Identity) -> bytes | None:
        count = 0
        while True:
            count += 1
            enter(_running(command, who, count))
            try:
                return command.write(await self._call(command.call or _nothing))
            except BaseException as error:
                dropped = self._runner.steps.over or activity.is_cancelled()
                if dropped and isinstance(error, asyncio.CancelledError):
                    raise  # any other one is the step's own, and an error like others
                names = [f"{c.__module__}.{c.__qualname__}" for c in type(error).__mro__]
                last = dropped or count >= command.tries.max_attempts
                if last or isinstance(error, InputError) or command.tries.hopeless(names):
                    raise _Failed(describe(error)) from None
            await asyncio.sleep(command.tries.delay(count, random.random()))

    async def _transaction(self, command: Command, who: Identity) -> bytes | None:
        """The same inside a transaction of the records database, exactly once."""
        records = self._engine.records
        call: Callable[..., Any] = command.call or _nothing
        try:
            if not records.there:
                raise ConfigError(
                    "ctx.transaction() on Temporal happens in the records database, and none is given: "
                    "App('temporal://…', records='postgresql://…')."
                )
            return await records.transact(who.id, str(command.number), lambda tx: command.write(call(tx)))
        except Exception as error:
            raise _Failed(describe(error)) from None

    async def _call(self, call: Callable[[], Any]) -> Any:
        if inspect.iscoroutinefunction(call.func if isinstance(call, functools.partial) else call):
            return await call()
        value = await self._runner.threads().run(copy_context(), call)
        return await value if inspect.isawaitable(value) else value


def _activity(name: str, method: Callable[[bytes], Any], among: Interruptible) -> Callable[..., Any]:
    async def call(ask: RawValue) -> RawValue:
        with among:
            found: RawValue = await method(unwrap(ask) or b"{}")
            return found

    return activity.defn(name=name)(call)


class _Failed(Exception):
    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(error.message)
        self.error = error


def _left(place: steps.Place) -> tuple[Command, Identity]:
    found = steps.take(place)
    if found is None:  # its workflow has left this process: whoever has it now runs the step
        raise RuntimeError(f"step {place.number} is not here any more")
    return found


def _running(command: Command, who: Identity, count: int) -> Running:
    return Running(
        who.id, command.effect, command.name, "step", who.namespace, who.queue, count, command.tries.max_attempts, 0,
        command.number,
    )  # fmt: skip


def _nothing(*_: object) -> None:
    return None
