"""What a flow asks for, as commands of Temporal."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    TerminatedError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)
from temporalio.workflow import ParentClosePolicy

from semel.contract.lifecycle import Status
from semel.engine.protocol import Start
from semel.engines.temporal import steps
from semel.engines.temporal.attempts import FOR_EVER, Slip, attempts, priority_of
from semel.engines.temporal.attributes import attributes_of
from semel.engines.temporal.bridge import ASKED, CLOSE, OUTCOME, START, STEP, Ask, Made, made_of, told_of
from semel.engines.temporal.card import card_of, to_memo
from semel.engines.temporal.failures import ended_of
from semel.engines.temporal.names import TASK, execution_id, split, workflow_id
from semel.engines.temporal.payloads import unwrap, wrap
from semel.flow.commands import Command, Kind
from semel.flow.entries import NOTHING, Resolved, raw, stored
from semel.flow.instance import Instance
from semel.flow.turn import Ended, Turn
from semel.settings import Settings

if TYPE_CHECKING:
    from semel.engines.temporal.hosting import FlowHost

CLOSED: Final = "semel.close"
"""The memo field of a child that says how it goes when its parent ends."""
STAYS: Final = (Status.COMPLETED.value, "started", "refused")
"""Answers that stay true when a workflow goes back: what failed is tried again."""
AT_ONCE: Final = timedelta(milliseconds=1)
"""A step that its worker has interrupted waits in history for another one, with those before it recorded."""
KEPT: Final = "semel.kept"
ABANDONED: Final = "semel.abandoned"
"""Markers in a history: it is not older than that an execution goes on when it is asked for again at once, or when it
was to be abandoned."""
PATIENT: Final = RetryPolicy()
"""For what may be asked again and again: a question, or a start under an id of its own."""


class Commands:
    """The commands of one run."""

    def __init__(self, host: FlowHost, instance: Instance) -> None:
        self._host = host
        self._instance = instance
        self._room = steps.room()
        self._asked: dict[int, asyncio.Task[None]] = {}
        self._children: dict[str, asyncio.Task[Ended]] = {}
        self._births: set[asyncio.Task[Any]] = set()
        """What has to have reached Temporal before this run may end."""
        self._letters: dict[str, asyncio.Task[Any]] = {}
        """The last signal that was sent to a workflow, by its id."""
        self.wards: dict[str, str] = {}
        """Children that are to be closed with this workflow, and how. Temporal's own policy would close them when it
        continues as new or is reset, too."""
        self._begun: dict[int, tuple[str, asyncio.Task[Ended]]] = {}
        """Executions that it has begun and waits for, by command: given up, they are cancelled."""
        self._running: set[int] = set()
        """Steps without an answer."""
        self._made: list[tuple[int, int, Made]] = []
        """Answers of steps that the code has not heard of: a heap, first the one that came first."""
        self._heard = 0
        """The last one that it has heard of."""
        self.steps: set[int] = set()
        """All steps of this run."""

    def carry_out(self, turn: Turn, row: bytes | None = None) -> None:
        """Do what a turn asks for, and no longer what it does not want any more. `row` goes along with its step."""
        kept = [(old, heir) for old, heir in turn.kept if self._keeps(old)]
        gone = {old.number: old for old in [*turn.dropped, *(old for old, _ in turn.kept)]}
        done = self._hand_on(kept)
        for number in {*gone}:
            task = self._asked.pop(number, None)
            self._running.discard(number)
            if task is not None:
                task.cancel()
            begun = self._begun.pop(number, None)
            if begun is not None and not _abandoned(gone[number]):
                self._bear(self._bridge(CLOSE, {begun[0]: "cancel"}))
        for command in turn.commands:
            if command.number not in gone and command.number not in done:
                self._carry_out(command, row)

    def _keeps(self, old: Command) -> bool:
        """Does what a command has begun go on, since another one wants it?"""
        return old.number in self._begun and workflow.patched(KEPT)

    def _hand_on(self, kept: Sequence[tuple[Command, Command]]) -> set[int]:
        """Commands that wait for what others have begun; the numbers of those that are done with that."""
        done = set()
        for old, heir in kept:
            ref, running = self._begun.pop(old.number)
            if heir.kind in (Kind.TASK, Kind.WORKFLOW) and heir.waits and heir.number not in self._asked:
                self._begun[heir.number] = ref, running
                self._ask(heir, self._end_for(heir))
                done.add(heir.number)
        return done

    def _carry_out(self, command: Command, row: bytes | None) -> None:
        match command.kind:
            case Kind.TASK if command.start is not None and command.start.key is None:
                self._ask(command, self._task(command, command.start))
            case Kind.TASK | Kind.WORKFLOW if command.start is not None:
                self._ask(command, self._execution(command, command.start))
            case Kind.WORKFLOW:
                self._ask(command, self._join(command))
            case Kind.ENQUEUE if command.start is not None:
                self._bear(self._enqueue(command, command.start))
            case Kind.STEP | Kind.TRANSACTION:
                self._running.add(command.number)
                self.steps.add(command.number)
                self._asked[command.number] = asyncio.create_task(self._step(command, row))
            case Kind.SEND:
                self._bear(self._send(command))
            case Kind.CANCEL:
                self._bear(self._cancel(command))
            case _:
                pass  # timers are the host's, signals come by themselves, and the rest is noted

    def _ask(self, command: Command, work: Any) -> None:
        async def do() -> None:
            try:
                self._host.arrive(await work)
            finally:
                self._asked.pop(command.number, None)

        self._asked[command.number] = asyncio.create_task(do())

    def _bear(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._births.add(task)
        task.add_done_callback(self._births.discard)
        return task

    def resume(self, answers: Mapping[int, Resolved]) -> None:
        """Do again what had no answer, or none that stays true."""
        for number, command in sorted(self._instance.pending.items()):
            found = answers.get(number)
            if found is not None and found.status in STAYS:
                self._host.arrive(found)
            else:
                self._carry_out(command, None)

    async def settled(self) -> None:
        """All that was asked for without waiting has reached Temporal, and nothing else is under way."""
        for task in list(self._asked.values()):
            task.cancel()
        while self._births:
            await asyncio.wait(list(self._births))

    async def close(self) -> None:
        """Close the children that are to go with it."""
        if self.wards:
            await self._bridge(CLOSE, self.wards)

    def forget(self) -> None:
        """Its steps are not run here any more."""
        steps.forget(self._room)

    async def _task(self, command: Command, start: Start) -> Resolved:
        """A task without a key of its own is an activity of this workflow."""
        terms, who = start.terms, self._instance.who
        if terms.delay is not None:
            await self._host.clock.until(self._host.clock.now() + round(terms.delay.total_seconds() * 1_000_000))
        id_ = f"{who.id}#{command.number}"

        def slip(attempt: int) -> Slip:
            return Slip(id_, terms.name, None, attempt, terms.max_attempts, 0, start.root, who.id)

        ended = await attempts(
            self._host.clock, terms.name, terms.queue, start.payload, slip, max_attempts=terms.max_attempts,
            lease=self._host.settings.worker.lease, priority=terms.priority, mark=marked(command),
        )  # fmt: skip
        return _resolved(command, ended, id_)

    async def _execution(self, command: Command, start: Start) -> Resolved:
        """A child where the key is free; else whatever the contract says about the one that holds it."""
        try:
            ref, running = await self._start_child(start, command.on_close or "abandon")
        except WorkflowAlreadyStartedError:
            return await self._share(command, start)
        if not command.waits:
            self._children[ref] = running
            return Resolved(command.number, "started", ref=ref)
        self._begun[command.number] = ref, running
        return await self._end_for(command)

    async def _end_for(self, command: Command) -> Resolved:
        """The end of what a command has begun."""
        ref, running = self._begun[command.number]
        ended = await asyncio.shield(running)
        self._begun.pop(command.number, None)
        return _resolved(command, ended, ref)

    async def _start_child(self, start: Start, on_close: str) -> tuple[str, asyncio.Task[Ended]]:
        terms = start.terms
        id_ = workflow_id(terms.kind, start.key) if start.key is not None else self._nameless(start)
        clock = self._host.clock
        card = card_of(start, clock.now(), parent=self._instance.who.id, skipped=clock.skipped)
        handle: Any = await workflow.start_child_workflow(
            terms.name, wrap(start.payload), id=id_, task_queue=terms.queue, result_type=RawValue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE, parent_close_policy=ParentClosePolicy.ABANDON,
            memo=to_memo(card) | ({} if on_close == "abandon" else {CLOSED: on_close}),
            search_attributes=attributes_of(card), priority=priority_of(terms.priority),
        )  # fmt: skip
        ref = execution_id(handle.first_execution_run_id, id_)
        if on_close != "abandon":
            self.wards[ref] = on_close
        return ref, asyncio.create_task(self._end_of(handle, ref))

    async def _end_of(self, handle: Any, ref: str) -> Ended:
        try:
            return Ended(Status.COMPLETED, unwrap(await handle))
        except ChildWorkflowError as error:
            if isinstance(error.cause, TerminatedError):
                return await self._outcome(ref)  # it may go on, reset, as another one
            return ended_of(error.cause)
        finally:
            self.wards.pop(ref, None)

    def _nameless(self, start: Start) -> str:
        """An id that is the same each time this is replayed."""
        return f"{TASK}{self._instance.who.id}/{start.root}"

    async def _share(self, command: Command, start: Start) -> Resolved:
        found = told_of(await self._bridge(START, Ask.of(start, self._host.clock.now(), self._instance.who.id)))
        if found.refused is not None:
            # Histories may be older than what is told beside the message.
            ref = None if found.output == NOTHING else found.id
            return Resolved(command.number, "refused", found.output, found.refused, ref)
        if not command.waits:
            return Resolved(command.number, "started", ref=found.id)
        return _resolved(command, await self._outcome(found.id), found.id)

    async def _join(self, command: Command) -> Resolved:
        """Wait for a child that was started before."""
        ref = command.ref or ""
        running = self._children.get(ref)
        ended = await (self._outcome(ref) if running is None else asyncio.shield(running))
        return _resolved(command, ended, ref)

    async def _outcome(self, id: str) -> Ended:
        return told_of(await self._bridge(OUTCOME, id)).ended()

    async def _bridge(self, name: str, ask: Any) -> RawValue:
        return await bridge(name, ask, self._host.settings)

    async def _enqueue(self, command: Command, start: Start) -> None:
        try:
            await self._start_child(start, "abandon")
        except WorkflowAlreadyStartedError:
            await self._bridge(START, Ask.of(start, self._host.clock.now(), self._instance.who.id))

    async def write(self, row: bytes) -> bytes | None:
        """Write a row of the journal into history; what it says there, if this is a replay."""
        return stored((await self._local(steps.Place(self._room, row=raw(row)))).row)

    async def _step(self, command: Command, row: bytes | None) -> None:
        """In the process that holds the workflow, with what it closes over: only its result goes into history."""
        number = command.number
        try:
            made = await self._local(steps.put(self._room, command, self._instance.who, raw(row)))
        except ActivityError as error:
            if is_cancelled_exception(error):
                return
            raise
        finally:
            self._asked.pop(number, None)
            self._running.discard(number)
        steps.heard(self._room, made.order)
        heapq.heappush(self._made, (made.order, number, made))
        self._host.made(made, row)

    async def _local(self, place: steps.Place) -> Made:
        return made_of(
            await workflow.execute_local_activity(
                STEP, wrap(msgspec.json.encode(place)), result_type=RawValue, start_to_close_timeout=FOR_EVER,
                retry_policy=PATIENT, local_retry_threshold=AT_ONCE,
            )
        )  # fmt: skip

    @property
    def ready(self) -> bool:
        """Is there the answer of a step that the code is to hear of next?

        Replayed, many steps end at once, in the order in which they began: who ended later has to wait for who ended
        before it, be that one about to begin.
        """
        return bool(self._made) and (self._made[0][0] <= self._heard + 1 or not self._running)

    def next_made(self) -> Resolved:
        """That answer."""
        order, _, made = heapq.heappop(self._made)
        self._heard = max(self._heard, order)
        return made.resolved()

    async def _send(self, command: Command) -> None:
        """One after the other to the same workflow: Temporal does not keep the order of what is under way at once."""
        found = split(command.ref or "")
        me = asyncio.current_task()
        if found is None or me is None:
            return
        before = self._letters.get(found[1])
        self._letters[found[1]] = me
        if before is not None and not before.done():
            await asyncio.wait([before])
        target: workflow.ExternalWorkflowHandle[Any] = workflow.get_external_workflow_handle(found[1])
        try:
            await target.signal(
                command.name, args=[wrap(command.payload), wrap(msgspec.json.encode(command.mark or None))]
            )
        except ApplicationError:
            workflow.logger.info("signal %r: %s has ended", command.name, command.ref)

    async def _cancel(self, command: Command) -> None:
        await self._bridge(CLOSE, {command.ref or "": ASKED})


async def bridge(name: str, ask: Any, settings: Settings) -> RawValue:
    """Have a worker do something, for as long as it takes."""
    found: RawValue = await workflow.execute_activity(
        name, wrap(msgspec.json.encode(ask)), result_type=RawValue, start_to_close_timeout=FOR_EVER,
        heartbeat_timeout=settings.worker.lease, retry_policy=PATIENT,
    )  # fmt: skip
    return found


def marked(command: Command) -> str:
    """What was asked for, as an id: Temporal parks a replay whose ids differ, and so one whose names or inputs do."""
    return f"{command.number}:{command.name}:{command.mark.removeprefix('#')}"


def _abandoned(command: Command) -> bool:
    return command.on_close == "abandon" and workflow.patched(ABANDONED)


def _resolved(command: Command, ended: Ended, ref: str) -> Resolved:
    return Resolved(command.number, ended.status.value, raw(ended.output), ended.error, ref)
