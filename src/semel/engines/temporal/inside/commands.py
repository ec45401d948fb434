"""What a flow asks for, as commands of Temporal."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace
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
from semel.contract.times import from_micros
from semel.engine.start_request import StartRequest
from semel.engines.temporal import steps
from semel.engines.temporal.arrivals import Look, Moment, activity_source, child_source
from semel.engines.temporal.failures import ended_of
from semel.engines.temporal.inside.attempts import FOR_EVER, AttemptInfo, attempts, priority_of
from semel.engines.temporal.inside.events import report_lost
from semel.engines.temporal.memo import CLOSE_MODE, card_of, to_memo
from semel.engines.temporal.names import TASK, attributes_of, execution_id, split, workflow_id
from semel.engines.temporal.payloads import unwrap, wrap
from semel.engines.temporal.worker_requests import (
    ASKED,
    CLOSE,
    OUTCOME,
    START,
    STEP,
    ActivityAnswer,
    StepResult,
    made_of,
    told_of,
)
from semel.flow.commands import Command, Kind
from semel.flow.entries import NOTHING, Resolved, raw, stored
from semel.flow.instance import Instance
from semel.flow.turn import Ended, Turn
from semel.settings import Settings

if TYPE_CHECKING:
    from semel.engines.temporal.inside.host import FlowHost

STAYS: Final = (Status.COMPLETED.value, "started", "refused")
"""Answers that stay true when a workflow goes back: what failed is tried again."""
AT_ONCE: Final = timedelta(milliseconds=1)
"""A step that its worker has interrupted waits in history for another one, with those before it recorded."""
KEPT: Final = "semel.kept"
ABANDONED: Final = "semel.abandoned"
"""Markers in a history: it is not older than that an execution goes on when it is asked for again at once, or when it
was to be abandoned."""
UNAWAITED: Final = "semel.unawaited"
"""The marker of a run that ends when what it has started and not awaited has begun, or ended; older ones gave it up."""
FOLLOWED: Final = "semel.followed"
"""The marker of a run that ends what it gave up while a worker was asked to start it; older ones let it go on."""
STARTS: Final = (Kind.TASK, Kind.WORKFLOW)
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
        self._background: set[asyncio.Task[Any]] = set()
        """What has to have reached Temporal before this run may end."""
        self._letters: dict[str, asyncio.Task[Any]] = {}
        """The last signal that was sent to a workflow, by its id."""
        self.bound_children: dict[str, str] = {}
        """Children that are to be closed with this workflow, and how. Temporal's own policy would close them when it
        continues as new or is reset, too."""
        self._begun: dict[int, tuple[str, asyncio.Task[Ended]]] = {}
        """Executions that it has begun and waits for, by command: given up, they are cancelled."""
        self._followed: dict[str, str | None] = {}
        """Of these, those that are no children, since another one had their key: what brings their ends."""
        self._inside: set[int] = set()
        """Tasks that are activities of this run."""
        self._starting: set[int] = set()
        """Commands whose executions have not begun."""
        self._asking: set[int] = set()
        """Of these, those that a worker has been asked to start, since another one had their key."""
        self._unheard: set[int] = set()
        """Tasks of code that has ended, and what was given up before it began: nobody hears of their answers."""
        self._sources: dict[int, str] = {}
        """The events of history that bring the answers to commands, where that is known; see `arrivals`."""
        self._running: set[int] = set()
        """Steps without an answer."""
        self._made: list[tuple[int, int, StepResult]] = []
        """Answers of steps that the code has not heard of: a heap, first the one that came first."""
        self._heard = 0
        """The last one that it has heard of."""
        self.steps: set[int] = set()
        """All steps of this run."""

    def carry_out(self, turn: Turn, row: bytes | None = None) -> None:
        """Do what a turn asks for, and no longer what it does not want any more. `row` goes along with its step."""
        kept = [(old, successor) for old, successor in turn.kept if self._keeps(old)]
        gone = {old.number: old for old in [*turn.dropped, *(old for old, _ in turn.kept)]}
        dropped = {old.number for old in turn.dropped}
        done = self._hand_on(kept)
        for number in {*gone}:
            task = self._asked.pop(number, None)
            self._running.discard(number)
            if task is not None and not (number in dropped and self._lets_begin(number, task)):
                task.cancel()
            begun = self._begun.pop(number, None)
            if begun is not None:
                self._give_up(gone[number], *begun)
        ends = turn.ended is not None or turn.again is not None
        for command in turn.commands:
            if command.number in gone or command.number in done:
                continue
            if ends and command.kind in STARTS and command.start is not None and workflow.patched(UNAWAITED):
                self._spawn(self._start_unawaited(command, command.start))
            else:
                self._carry_out(command, row)

    def _lets_begin(self, number: int, task: asyncio.Task[None]) -> bool:
        """Has a command asked for an execution without knowing which one it is? It learns that, and ends it then."""
        if number not in self._asking or not workflow.patched(FOLLOWED):
            return False
        self._unheard.add(number)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return True

    def _give_up(self, command: Command, ref: str, running: asyncio.Task[Ended]) -> None:
        """Nobody waits any more for what a command has begun."""
        if ref in self._followed:
            running.cancel()
        if not _abandoned(command):
            self._spawn(self._bridge(CLOSE, {ref: "cancel"}))

    def _keeps(self, old: Command) -> bool:
        """Does what a command has begun go on, since another one wants it?"""
        return old.number in self._begun and workflow.patched(KEPT)

    def _hand_on(self, kept: Sequence[tuple[Command, Command]]) -> set[int]:
        """Commands that wait for what others have begun; the numbers of those that are done with that."""
        done = set()
        for old, successor in kept:
            ref, running = self._begun.pop(old.number)
            if successor.kind in (Kind.TASK, Kind.WORKFLOW) and successor.waits and successor.number not in self._asked:
                self._begun[successor.number] = ref, running
                self._ask(successor, self._end_for(successor))
                done.add(successor.number)
        return done

    def _carry_out(self, command: Command, row: bytes | None) -> None:
        match command.kind:
            case Kind.TASK if command.start is not None and command.start.key is None:
                self._inside.add(command.number)
                self._ask(command, self._task(command, command.start))
            case Kind.TASK | Kind.WORKFLOW if command.start is not None:
                self._ask(command, self._execution(command, command.start))
            case Kind.WORKFLOW:
                self._ask(command, self._join(command))
            case Kind.ENQUEUE if command.start is not None:
                self._spawn(self._enqueue(command, command.start))
            case Kind.STEP | Kind.TRANSACTION:
                self._running.add(command.number)
                self.steps.add(command.number)
                self._asked[command.number] = asyncio.create_task(self._step(command, row))
            case Kind.SEND:
                self._spawn(self._send(command))
            case Kind.CANCEL:
                self._spawn(self._cancel(command))
            case _:
                pass  # timers are the host's, signals come by themselves, and the rest is noted

    def _ask(self, command: Command, work: Any) -> None:
        async def do() -> None:
            try:
                answer = await work
                if command.number not in self._unheard:
                    self._host.arrive(answer, source=self._sources.pop(command.number, None))
            finally:
                self._asked.pop(command.number, None)

        self._asked[command.number] = asyncio.create_task(do())

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def resume(self, answers: Mapping[int, Resolved]) -> None:
        """Do again what had no answer, or none that stays true."""
        for number, command in sorted(self._instance.pending.items()):
            found = answers.get(number)
            if found is not None and found.status in STAYS:
                self._host.arrive(found)
            else:
                self._carry_out(command, None)

    async def settled(self, *, goes_on: bool = False) -> None:
        """All that was asked for without waiting has reached Temporal, and nothing else is under way.

        A task without a key lives in this run, and would die with it: it is waited for, unless the workflow `goes_on`
        in another run, which must not be held up. Others live on.
        """
        inside = [self._asked[number] for number in self._inside if number in self._asked and not goes_on]
        if (inside or self._starting) and workflow.patched(UNAWAITED):
            self._unheard |= self._inside
            await workflow.wait_condition(lambda: not self._starting)
            if inside:
                await asyncio.wait(inside)
        for task in list(self._asked.values()):
            task.cancel()
        while self._background:
            await asyncio.wait(list(self._background))

    async def close(self) -> None:
        """Close the children that are to go with it."""
        if self.bound_children:
            await self._bridge(CLOSE, self.bound_children)

    def forget(self) -> None:
        """Its steps are not run here any more."""
        steps.forget(self._room)

    async def _task(self, command: Command, start: StartRequest) -> Resolved:
        """A task without a key of its own is an activity of this workflow."""
        options, who = start.options, self._instance.who
        if options.delay is not None:
            await self._host.clock.until(self._host.clock.now() + round(options.delay.total_seconds() * 1_000_000))
        id_ = f"{who.id}#{command.number}"
        self._sources[command.number] = activity_source(marked(command))

        def slip(attempt: int) -> AttemptInfo:
            return AttemptInfo(id_, options.name, None, attempt, options.max_attempts, 0, start.root, who.id)

        ended = await attempts(
            self._host.clock,
            options.name,
            options.queue,
            start.payload,
            slip,
            max_attempts=options.max_attempts,
            lease=self._host.settings.worker.lease,
            priority=options.priority,
            mark=marked(command),
            lost=partial(report_lost, self._host.events, options.queue),
        )
        return _resolved(command, ended, id_)

    async def _execution(self, command: Command, start: StartRequest) -> Resolved:
        """A child where the key is free; else whatever the contract says about the one that holds it."""
        self._starting.add(command.number)
        try:
            ref, running = await self._start_child(start, command.on_close or "abandon")
        except WorkflowAlreadyStartedError:
            return await self._share(command, start)
        finally:
            self._starting.discard(command.number)
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
        self.bound_children.pop(ref, None)
        source = self._followed.pop(ref, child_source((split(ref) or ("", ""))[1]))
        if source is not None:
            self._sources[command.number] = source
        return _resolved(command, ended, ref)

    async def _start_child(self, start: StartRequest, on_close: str) -> tuple[str, asyncio.Task[Ended]]:
        options = start.options
        id_ = workflow_id(options.kind, start.key) if start.key is not None else self._nameless(start)
        clock = self._host.clock
        card = card_of(replace(start, parent=self._instance.who.id), clock.now())
        handle: Any = await workflow.start_child_workflow(
            options.name,
            wrap(start.payload),
            id=id_,
            task_queue=options.queue,
            result_type=RawValue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            parent_close_policy=ParentClosePolicy.ABANDON,
            memo=to_memo(card) | ({} if on_close == "abandon" else {CLOSE_MODE: on_close}),
            search_attributes=attributes_of(card),
            priority=priority_of(options.priority),
        )
        ref = execution_id(handle.first_execution_run_id, id_)
        if on_close != "abandon":
            self.bound_children[ref] = on_close
        return ref, asyncio.create_task(self._end_of(handle, ref))

    async def _end_of(self, handle: Any, ref: str) -> Ended:
        try:
            return Ended(Status.COMPLETED, unwrap(await handle))
        except ChildWorkflowError as error:
            if isinstance(error.cause, TerminatedError):
                return await self._outcome(ref)  # it may go on, reset, as another one
            return ended_of(error.cause)
        finally:
            self.bound_children.pop(ref, None)

    def _nameless(self, start: StartRequest) -> str:
        """An id that is the same each time this is replayed."""
        return f"{TASK}{self._instance.who.id}/{start.root}"

    async def _share(self, command: Command, start: StartRequest) -> Resolved:
        self._asking.add(command.number)
        found = await self._ask_to_start(command, start)
        self._asking.discard(command.number)
        self._starting.discard(command.number)
        if command.number in self._unheard:
            if found.begun and not _abandoned(command):
                await self._bridge(CLOSE, {found.id: "cancel"})
            return Resolved(command.number, "started", ref=found.id)
        if found.refused is not None:
            # Histories may be older than what is told beside the message.
            ref = None if found.output == NOTHING else found.id
            return Resolved(command.number, "refused", found.output, found.refused, ref)
        if not command.waits:
            return Resolved(command.number, "started", ref=found.id)
        if found.begun:  # histories that are older do not say so: what they have begun goes on when it is given up
            running = asyncio.create_task(self._outcome(found.id, command))
            self._begun[command.number] = found.id, running
            self._followed[found.id] = None
            return await self._end_for(command)
        return _resolved(command, await self._outcome(found.id, command), found.id)

    async def _ask_to_start(self, command: Command, start: StartRequest) -> ActivityAnswer:
        """Start what cannot be a child, since there was another one under its key."""
        on_close = None if command.on_close == "abandon" else command.on_close
        found = told_of(await self._bridge(START, self._request(start, on_close)))
        if found.begun and on_close is not None:
            self.bound_children[found.id] = on_close
        return found

    def _request(self, start: StartRequest, on_close: str | None = None) -> Raw:
        """A request on behalf of this workflow, as the worker reads it that performs it."""
        asked = start.asked_at(from_micros(self._host.clock.now()))
        return Raw(replace(asked, parent=self._instance.who.id, on_parent_close=on_close).to_bytes())

    async def _join(self, command: Command) -> Resolved:
        """Wait for a child that was started before."""
        ref = command.ref or ""
        running = self._children.get(ref)
        ended = await (self._outcome(ref, command) if running is None else asyncio.shield(running))
        if running is not None:
            self._sources[command.number] = child_source((split(ref) or ("", ""))[1])
        return _resolved(command, ended, ref)

    async def _outcome(self, id: str, command: Command | None = None) -> Ended:
        """Have a worker wait for the end of an execution that is no child of this run."""
        asking = call_worker(OUTCOME, id, self._host.settings)
        if command is not None and (number := getattr(asking, "_seq", None)) is not None:
            source = self._sources[command.number] = activity_source(str(number))  # as the SDK calls it
            if id in self._followed:
                self._followed[id] = source
        try:
            return told_of(await asking).ended()
        except ActivityError as error:
            if is_cancelled_exception(error):  # nobody waits for it any more
                raise asyncio.CancelledError from error
            raise

    async def _bridge(self, name: str, ask: Any) -> RawValue:
        return await call_worker(name, ask, self._host.settings)

    async def _start_unawaited(self, command: Command, start: StartRequest) -> None:
        """Start what code that has ended did not wait for: it lives on by itself, or ends with its parent as agreed."""
        try:
            await self._start_child(start, command.on_close or "abandon")
        except WorkflowAlreadyStartedError:
            await self._ask_to_start(command, start)

    async def _enqueue(self, command: Command, start: StartRequest) -> None:
        try:
            await self._start_child(start, "abandon")
        except WorkflowAlreadyStartedError:
            await self._bridge(START, self._request(start))

    async def write(self, row: bytes) -> bytes | None:
        """Write a row of the journal into history; what it says there, if this is a replay."""
        return stored((await self._local(steps.Place(self._room, row=raw(row)))).row)

    async def look(self, look: Look) -> dict[str, Moment]:
        """When everything came that a workflow task brought."""
        return (await self._local(steps.Place(self._room, look=look))).moments

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

    async def _local(self, place: steps.Place) -> StepResult:
        return made_of(
            await workflow.execute_local_activity(
                STEP,
                wrap(msgspec.json.encode(place)),
                result_type=RawValue,
                start_to_close_timeout=FOR_EVER,
                retry_policy=PATIENT,
                local_retry_threshold=AT_ONCE,
            )
        )

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


def call_worker(name: str, ask: Any, settings: Settings) -> workflow.ActivityHandle[RawValue]:
    """Have a worker do something, for as long as it takes; to be awaited."""
    return workflow.start_activity(
        name,
        wrap(msgspec.json.encode(ask)),
        result_type=RawValue,
        start_to_close_timeout=FOR_EVER,
        heartbeat_timeout=settings.worker.lease,
        retry_policy=PATIENT,
    )


def marked(command: Command) -> str:
    """What was asked for, as an id: Temporal parks a replay whose ids differ, and so one whose names or inputs do."""
    return f"{command.number}:{command.name}:{command.mark.removeprefix('#')}"


def _abandoned(command: Command) -> bool:
    return command.on_close == "abandon" and workflow.patched(ABANDONED)


def _resolved(command: Command, ended: Ended, ref: str) -> Resolved:
    return Resolved(command.number, ended.status.value, raw(ended.output), ended.error, ref)
