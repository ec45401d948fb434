"""A flow inside a workflow of Temporal.

Semel's own instance runs the code, as on every engine: it is fed what arrives, and says what the code asked for.
Temporal makes both durable: what arrives comes from its history, what is asked for becomes its commands. So `ctx`,
signals, cancellation and entities mean the same everywhere.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from asyncio import events
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw
from temporalio import workflow
from temporalio.common import RawValue

from semel.contract.lifecycle import Status
from semel.contract.records import MessageConflict
from semel.define.workflow import Workflow
from semel.engines.temporal import carryover, parking
from semel.engines.temporal.arrivals import CANCEL, Incoming, Look, signal_source, sort_arrivals
from semel.engines.temporal.carryover import Carried, ForkPoint, Inheritance
from semel.engines.temporal.coverage import Coverage
from semel.engines.temporal.inside.clock import Clock
from semel.engines.temporal.inside.commands import Commands, call_worker
from semel.engines.temporal.inside.events import report_parked, report_turn
from semel.engines.temporal.inside.journal import Journal, adopt, began_with, row_of
from semel.engines.temporal.inside.key_reservation import reserved, settled
from semel.engines.temporal.inside.message_counts import MessageCounts
from semel.engines.temporal.inside.sandbox_errors import park_refusals
from semel.engines.temporal.inside.task import card_of_this, drop, is_overdue, memo_of_this
from semel.engines.temporal.memo import BEGUN, PUBLISHED, ExecutionMemo
from semel.engines.temporal.names import execution_id, updates_of
from semel.engines.temporal.payloads import conclude, memo_value, unwrap, wrap
from semel.engines.temporal.worker_requests import FORK, ForkRequest, StepResult
from semel.errors import Forbidden, NonDeterminism
from semel.flow import entries, snapshot
from semel.flow.commands import IN_PLACE, Command, Kind
from semel.flow.entries import NOTHING, Began, Happening, Signalled, Stopped
from semel.flow.instance import Instance
from semel.flow.snapshot import Snapshot
from semel.flow.turn import Arrival, Ended, Identity, Turn
from semel.runtime.events import FromThreads
from semel.runtime.long_journal import warn_of_long_journal
from semel.settings import Settings

T = TypeVar("T")
TOO_LONG: Final = ", and Temporal ends what has 50,000 events"
BASELINE: Final = "semel.version."
"""How markers begin that say which version of a workflow a run began with."""
REFUSED: Final = "semel.refused."
"""How markers begin that say that the code was refused something, for which older histories have no marker."""
ORDERED: Final = "semel.ordered"
"""The marker of a run that asks its history when things came; runs that are older let timers go first."""
CONFLICTS: Final = "semel.conflicts"
"""The marker that says that signals which were refused are counted."""
UNBEGUN: Final = "semel.unbegun"
"""The marker of a run that did not begin, since it was cancelled before; older ones began and were told then."""
FIRST: Final = 1
"""The version that leaves no marker, since most workflows have no other."""


park_refusals()
_held: Final[set[Instance]] = set()
"""What lives here: left to the garbage collector, people's clean-up code would run at any time, and half of it."""


def let_go(settings: Settings) -> None:
    """A worker has stopped: what it still holds goes on elsewhere."""
    for one in [one for one in list(_held) if one.settings.worker is settings.worker]:
        one.close()


class Patching(Instance):
    """An instance whose patches are Temporal's, since it is Temporal that replays."""

    outer: asyncio.AbstractEventLoop

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _held.add(self)

    def close(self) -> None:
        """See Instance."""
        _held.discard(self)
        super().close()

    def patched(self, name: str) -> bool:
        """See Instance."""
        if self._expected is not None:
            return super().patched(name)  # rows of a run that it was reset from
        if name not in self._patches:
            self._patches[name] = self._marked(name)
            if self._patches[name]:
                self.ask(Command(Kind.PATCH, name))
        return self._patches[name]

    def recorded(self, kind: Kind, name: str) -> bool:
        """See Instance. Temporal does not tell what comes next; where it did not come, there is a marker."""
        if self._expected is not None:
            return super().recorded(kind, name)
        return not self._marked(f"{REFUSED}{kind}.{name}")

    def _marked(self, name: str) -> bool:
        inner = events._get_running_loop()
        events._set_running_loop(self.outer)  # Temporal knows its workflow by its loop
        try:
            return workflow.patched(name)
        finally:
            events._set_running_loop(inner)


class FlowHost(ABC):
    """One run of one flow."""

    journal: Journal | None = None
    """Of a workflow; an entity has none."""
    commands: Commands
    events: FromThreads | None = None
    """Who watches the worker; None: nobody, as where a history is replayed from a file."""
    coverage: Coverage | None = None
    """What the cluster can keep; None: all that is asked for is taken, as where a history is replayed from a file."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = Clock()
        self.card = ExecutionMemo("workflow", "")
        self._arrivals: list[Incoming] = []
        self._came = 0
        self._signals: dict[str, int] = {}
        """How many signals of each name came in this run."""
        self._due: int | None = None
        """When the code's next timer is due, or the idle period of an entity is over."""
        self._given: list[Incoming] = []
        """What the turn under way was given."""
        self._alarm: tuple[int, int, asyncio.TimerHandle] | None = None
        self._rung = False
        self._poked = False
        self._mismatch: NonDeterminism | None = None
        self.position = 0
        """The number of its last row."""

    def arrive(self, what: Happening, at: int | None = None, source: str | None = None) -> None:
        """Something for the code to know of. `source` is the event of history it came with, see `arrivals`."""
        self._came += 1
        now, task = self.clock.now(), workflow.info().get_current_history_length()
        self._arrivals.append(Incoming(what, now if at is None else at, self._came, source, task, now))

    def count_signal(self, name: str) -> str:
        """A signal came: the source of what it brings."""
        self._signals[name] = self._signals.get(name, 0) + 1
        return signal_source(name, self._signals[name])

    def made(self, made: StepResult, row: bytes | None) -> None:
        """A step has its answer. The row of the journal that asked for it is there too, if it went along."""
        if self.journal is not None:
            try:
                if row is not None:
                    self.journal.compare(row, bytes(made.row))
            except NonDeterminism as error:
                self._mismatch = error
            self.journal.answer(made.number, made.output)

    async def run(self, input: RawValue, carried: RawValue) -> RawValue:
        """Serve the code to its end; raises what tells Temporal how else it ended."""
        self.card = card_of_this()
        if unwrap(carried) is None and _was_stopped():
            return conclude(Ended(Status.CANCELLED))
        if unwrap(carried) is None and is_overdue(self.card, self.clock):
            return conclude(drop())
        data = unwrap(input) or b"{}"
        info = workflow.info()
        id_ = execution_id(info.first_execution_run_id, info.workflow_id)
        if self.card.ledger and (other := await self._through(reserved(self.card, id_, data))) is not None:
            return conclude(other)
        instance = await self._instance(data, unwrap(carried))
        try:
            ended = await self._serve(instance)
            await self._through(self.commands.settled())
            await self._through(self.commands.close())
            if self.card.ledger:
                await self._through(settled(id_, ended, self.clock.now()))
            return conclude(ended)
        finally:
            self.commands.forget()
            instance.close()

    def _identity(self, input: bytes, seed: str = "") -> Identity:
        info, card = workflow.info(), self.card
        id_ = execution_id(info.first_execution_run_id, info.workflow_id)
        return Identity(
            id_,
            card.key or info.workflow_id,
            card.name,
            info.namespace,
            info.task_queue,
            card.generation,
            input,
            card.parent,
            seed or id_,
        )

    @abstractmethod
    async def _instance(self, input: bytes, carried: bytes | None) -> Instance:
        """What runs the code, with its commands."""

    def _cover(self, instance: Instance) -> Instance:
        """Let an instance refuse what the cluster could not keep."""
        if self.coverage is not None:
            instance.refusal = self.coverage.refusal_inside
        return instance

    async def _serve(self, instance: Instance) -> Ended:
        while True:
            await self._order_arrivals()
            arrivals = self._taken()
            self._rung = False
            turn = await self._turn(instance, arrivals)
            self._due = turn.due
            self.commands.carry_out(turn, await self._note(instance, turn))
            report_turn(self.events, self.card.kind, instance, turn)
            if turn.ended is not None:
                return turn.ended
            if turn.again is not None:
                instance = await self._again(instance, turn.again)
            elif not self._waits:
                self._set_alarm(turn.due)
                await self._rest(instance, turn)
            if self._mismatch is not None:
                raise self._mismatch

    @property
    def _waits(self) -> bool:
        """Is there something for the code to hear of?"""
        return bool(self._arrivals) or self._rung or self.commands.ready or self._mismatch is not None

    async def _order_arrivals(self) -> None:
        """Find out what came first, where a timer or a cancellation was found together with something else.

        A task of Temporal that begins when a timer is due may bring what came before that. It is not asked for where
        all of it came before, so that it costs nothing but where there is a doubt.
        """
        last = self._arrivals[-1] if self._arrivals else None
        if last is None or not (self._timer_may_be_first(last) or self._cancel_may_be_late()):
            return
        if workflow.patched(ORDERED):
            look = Look(last.task, dict(self._signals))
            moments = await self._through(self.commands.look(look))
            due = last.task_at if self._due is None else self._due
            self._arrivals = sort_arrivals(self._arrivals, moments, look.upto, due)

    def _timer_may_be_first(self, last: Incoming) -> bool:
        return self._due is not None and self._due <= last.task_at

    def _cancel_may_be_late(self) -> bool:
        """Temporal tells of cancellation before answers."""
        kinds = {type(one.what) for one in self._arrivals}
        return Stopped in kinds and len(kinds) > 1

    def _taken(self) -> list[Arrival]:
        """What the code hears of next: all that came with one task of Temporal, or one step.

        Replayed, the same has to come together. What a task brings does; when a step ends is no part of it.
        """
        came, self._arrivals = self._arrivals, []
        self._given = came
        if not came and self.commands.ready:
            return [Arrival(self.clock.now(), self.commands.next_made())]
        return [one.arrival() for one in came]

    async def _turn(self, instance: Instance, arrivals: Sequence[Arrival]) -> Turn:
        def turn() -> Turn:
            instance.loop.replaying = workflow.unsafe.is_replaying()
            made = instance.turn(self.clock.now(), arrivals)
            taken = set(made.consumed)  # not all of it, where the code came to its end before
            self._arrivals[:0] = [one for one in self._given if one.row not in taken]
            self._given = []
            return made

        return await self._or_park(turn)

    async def _or_park(self, go: Callable[[], T]) -> T:
        """Let the code go on, if it can.

        One that was woken and still cannot go on fails its task, and is not woken again: each signal would
        begin a new task at once, and fill its history without an end.
        """
        try:
            made = go()
        except (Forbidden, NonDeterminism, workflow.NondeterminismError) as error:
            report_parked(self.events, self.card.kind, self._identity(b""), error)
            info, woken = workflow.info(), self._poked or workflow.unsafe.is_replaying()
            if not woken and parking.poke(info.namespace, info.workflow_id, info.run_id):
                await self._through(workflow.wait_condition(lambda: self._poked))
            raise
        self._poked = False
        return made

    async def _call_worker(self, name: str, ask: Any) -> RawValue:
        return await call_worker(name, ask, self.settings)

    async def _through(self, work: Awaitable[T]) -> T:
        """Wait for something that cancelling does not end: the code hears of that in its own time."""
        task = asyncio.ensure_future(work)
        while True:
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                if task.done() or _leaving():
                    raise
                self.arrive(Stopped(), source=CANCEL)

    async def _rest(self, instance: Instance, turn: Turn) -> None:
        await self._through(workflow.wait_condition(lambda: self._waits))

    @abstractmethod
    async def _again(self, instance: Instance, taken: Snapshot) -> Instance:
        """What goes on from here, if it is not a new run of Temporal's."""

    async def _note(self, instance: Instance, turn: Turn) -> bytes | None:
        """Write down what a turn did. A row that goes along with its only step is given back."""
        row = None
        if self.journal is not None and turn.entries:
            row = row_of(turn.entries, self.commands.steps)
            self.position += 1
            warn_of_long_journal(workflow.logger, instance, turn, also=TOO_LONG)
            if not _one_step(turn):
                then = await self._through(self.commands.write(row))
                self.journal.compare(row, then or row)
                if then is not None and then != row:
                    adopt(then, turn.commands)
                row = None
        if changed := [c.name for c in turn.commands if c.kind is Kind.ATTRIBUTE]:
            workflow.upsert_search_attributes(updates_of(self.card, instance.attributes, changed))
        published = {PUBLISHED + c.name: memo_value(c.payload) for c in turn.commands if c.kind is Kind.PUBLISH}
        if published:
            workflow.upsert_memo(published)
        return row

    def _set_alarm(self, due: int | None) -> None:
        """One timer at a time, kept while it is the right one: each is two events of history."""
        if self._alarm is not None:
            if self._alarm[:2] == (due, self.clock.ahead):
                return
            self._alarm[2].cancel()
            self._alarm = None
        if due is not None:
            wait = max(0.0, (due - self.clock.now()) / 1e6)
            handle = asyncio.get_running_loop().call_later(wait, self._ring)
            self._alarm = (due, self.clock.ahead, handle)

    def _ring(self) -> None:
        self._alarm = None
        self._rung = True

    def poke(self) -> None:
        """Somebody thinks that it may go on."""
        self._poked = self._rung = True


class WorkflowHost(FlowHost):
    """One run of one workflow. `versions` are the functions of its name that there are."""

    def __init__(self, versions: Sequence[Workflow[..., Any]], settings: Settings) -> None:
        super().__init__(settings)
        self._versions = sorted(versions, key=lambda one: one.version, reverse=True)

    async def _instance(self, input: bytes, carried: bytes | None) -> Instance:
        given = carryover.load(carried)
        if self.card.due is not None and carried is None:
            await self.clock.until(self.card.due)
            if _was_stopped():
                raise asyncio.CancelledError
            workflow.upsert_memo({BEGUN: True})
        left = await self._inherit(given.fork_point) if given.fork_point is not None else Inheritance(given)
        rows = [bytes(row) for row in left.rows]
        start = Snapshot(input) if left.carried.start == NOTHING else snapshot.load(bytes(left.carried.start))
        code = await self._version(rows)
        who = self._identity(input, given.seed)
        made = Patching(code, who, self.settings, start)
        made.outer = asyncio.get_running_loop()
        self._cover(made)
        made.timeout = self.card.timeout_or(code.timeout)
        self.commands = Commands(self, made)
        self.commands.bound_children.update({**given.bound_children, **left.bound_children})
        self.journal = Journal(lambda: self._cover(Instance(code, who, self.settings, start)), rows)
        self.position = left.carried.base + len(rows)
        if given.stopped:
            self.arrive(Stopped())
        if given.fork_point is not None:
            await self._go_on(made, left)
        return made

    async def _note(self, instance: Instance, turn: Turn) -> bytes | None:
        row = await super()._note(instance, turn)
        self._count_conflicts(turn.conflicts)
        return row

    def _count_conflicts(self, conflicts: Sequence[MessageConflict]) -> None:
        # Histories from before have no such command: Temporal would miss it when it replays them.
        if conflicts and workflow.patched(CONFLICTS):
            MessageCounts().refuse(self.clock.now(), conflicts)
        warn_of_conflicts(self.card.key, conflicts)

    async def _inherit(self, fork_point: ForkPoint) -> Inheritance:
        ask = ForkRequest(workflow.info().workflow_id, fork_point.run, fork_point.commit)
        return carryover.unpack(unwrap(await self._through(self._call_worker(FORK, ask))) or b"{}")

    async def _go_on(self, instance: Instance, left: Inheritance) -> None:
        """From where another run was: what it had asked for and not been told is asked for again."""
        history = [entry for row in left.rows for entry in entries.load(bytes(row))]
        await self._or_park(lambda: instance.replay(history))
        if instance.attributes:
            workflow.upsert_search_attributes(updates_of(self.card, instance.attributes, instance.attributes))
        for signal in left.signals:
            self.arrive(signal)
        self.commands.resume({answer.command: answer for answer in left.answers})

    async def _version(self, rows: Sequence[bytes]) -> Workflow[..., Any]:
        """The newest for a run that begins, and for others the one they began with."""
        began = next((entry for row in rows for entry in entries.load(row)), None)
        for one in self._versions:
            if began is None and (one.version == FIRST or workflow.patched(f"{BASELINE}{one.version}")):
                return one
            if isinstance(began, Began) and began.version == one.version:
                return one
        row = rows[0] if rows else None
        if row is None:
            spare = Instance(self._versions[0], self._identity(b"{}"), self.settings, Snapshot(b"{}"))
            row = await Commands(self, spare).write(b"[]")
        raise began_with(row or b"[]", self._versions[0].name, [one.version for one in self._versions])

    async def _again(self, instance: Instance, taken: Snapshot) -> Instance:
        """Signals that came meanwhile go along, and so does the wish that it stop."""
        await self._through(self.commands.settled(goes_on=True))
        came = [(one.what, one.at) for one in self._arrivals]
        late, conflicts = instance.take_late([(what, at) for what, at in came if isinstance(what, Signalled)])
        self._count_conflicts(conflicts)
        start = msgspec.structs.replace(taken, signals=(*taken.signals, *late))
        carried = Carried(
            Raw(snapshot.dump(start)),
            self.position,
            instance.who.seed,
            self.commands.bound_children,
            any(isinstance(what, Stopped) for what, _ in came),
        )
        workflow.continue_as_new(args=[wrap(taken.input), wrap(msgspec.json.encode(carried))], memo=memo_of_this())


def _one_step(turn: Turn) -> bool:
    """Does a turn ask for a step and nothing else? One local activity does for both, then."""
    return (
        len(turn.commands) == 1
        and turn.commands[0].kind in IN_PLACE
        and not turn.dropped
        and turn.ended is None
        and turn.again is None
    )


def warn_of_conflicts(key: str | None, conflicts: Sequence[MessageConflict]) -> None:
    """Say in the log of the worker which messages were refused; a replay does not say it again."""
    for conflict in conflicts:
        workflow.logger.warning("%s has refused a message: %s", key, conflict)


def _was_stopped() -> bool:
    """Was a workflow that has not begun asked to stop? It never begins then; Temporal would tell of it afterwards.

    Whoever cancels relies on this: what was asked to stop, and is with no worker, may be ended without its code.
    """
    return workflow.cancellation_reason() is not None and workflow.patched(UNBEGUN)


def _leaving() -> bool:
    """Is this workflow let go of here, to go on elsewhere? Temporal cancels all of it then, as if it were to stop."""
    return bool(getattr(asyncio.get_running_loop(), "_deleting", False))
