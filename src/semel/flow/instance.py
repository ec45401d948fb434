"""A workflow in memory: fed with what happened, it runs until it waits, and tells what it asked for."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from semel.contract.marks import MarkDifference, compare_marks, signal_mark
from semel.contract.records import MessageConflict
from semel.contract.times import from_micros, micros
from semel.define.entity import Entity
from semel.define.workflow import Workflow
from semel.engine.start_request import StartRequest
from semel.errors import InvalidValue, NonDeterminism, SemelError
from semel.flow.answers import answer, hand
from semel.flow.commands import IN_PLACE, NO_ANSWER, Command, ContinueAsNew, Kind
from semel.flow.compare import alike, difference, matches_older_signature, refused, same
from semel.flow.context import Context
from semel.flow.entries import (
    FORMAT,
    Asked,
    Began,
    Dropped,
    Entry,
    Fired,
    Happening,
    IssuedCommand,
    Resolved,
    Signalled,
    Stopped,
    Turned,
)
from semel.flow.guard import guard
from semel.flow.loop import FlowFuture, FlowLoop, Timer
from semel.flow.randomness import Dice
from semel.flow.signals import Signals
from semel.flow.snapshot import Snapshot
from semel.flow.timers import Timers, recorded_deadline
from semel.flow.turn import Arrival, Identity, Turn, completed, ending, stopped, told_end
from semel.settings import Settings

running_loop: Final[Callable[[], Any]] = asyncio.events._get_running_loop


Refusal = Callable[[Kind, StartRequest], SemelError | None]
"""Why an engine could not keep what is asked for; None: it can."""


def _takes_everything(kind: Kind, start: StartRequest) -> SemelError | None:
    return None


class Instance:
    """One run of one workflow. Not for two threads at once."""

    refusal: Refusal = staticmethod(_takes_everything)
    """What the engine that runs it refuses."""

    def __init__(
        self, workflow: Workflow[..., Any] | Entity[Any], who: Identity, settings: Settings, start: Snapshot
    ) -> None:
        self.workflow = workflow
        self.timeout = workflow.timeout
        self.who = who
        self.settings = settings
        self.run = start.run
        self.position = 0
        """The last row of the journal that this instance has seen."""
        self.written_by: int | None = None
        """The token of the claim that wrote that row, where the host has such."""
        self.entries = 0
        """How long its journal is."""
        self.pending: dict[int, Command] = {}
        """Commands without an answer."""
        self.counts = dict(start.counts)
        """How often something of a name was asked for: the occurrence in effect keys."""
        self.attributes = dict(start.attributes)
        self._dice = Dice(who.seed or who.id)
        self.loop = FlowLoop(self._salt(), self._set_timer)
        self.loop.who = who
        self.began = 0
        """When this run began, in microseconds by the journal."""
        self._guard = guard(f"workflow {who.key!r}")
        self._start = start
        self._numbers = start.numbers
        self._timers = Timers()
        self._signals = Signals(start.signals)
        self._seen = start.seen
        self._main: asyncio.Task[Any] | None = None
        self._late = self._stopped = False
        self._deadline = start.deadline
        self._expected: deque[IssuedCommand] | None = None
        """While a journal is replayed: what the code is to ask for next."""
        self._patches: dict[str, bool] = {}
        self._mismatch: NonDeterminism | None = None
        self._turn, self._carried = Turn(), Turn()

    def _salt(self) -> int:
        return self._dice.salt(self.run)

    @property
    def random(self) -> random.Random:
        """Dice that fall the same way each time this run is replayed."""
        self.check_here("ctx.random")
        return self._dice.of(self.run)

    def check_here(self, what: str) -> None:
        """What is asked for by others than its own code would be lost, and missing when that is replayed."""
        if running_loop() is not self.loop:
            raise InvalidValue(
                f"{what} was used outside of the code of {self.workflow.kind} {self.who.key!r}: a step, a task or "
                "another workflow cannot act for it. Return what is needed, and let its own code ask for it."
            )

    def _renew(self, made: int = 0) -> None:
        """Go on as a new run, as if it had just been made from a snapshot, and so many futures since."""
        self.run += 1
        self.entries = 0
        self._patches.clear()
        self.loop.renumber(self._salt() + made)

    @property
    def carries(self) -> bool:
        """Has its code gone on since the last row of its journal?"""
        return bool(self._carried.entries)

    @property
    def in_place(self) -> list[Command]:
        """Steps without an answer, which whoever holds the workflow has to run."""
        return [command for command in self.pending.values() if command.kind in IN_PLACE]

    def replay(self, entries: Sequence[Entry]) -> None:
        """Do again what the journal says. NonDeterminism: the code did something else."""
        if entries:
            self.entries += len(entries)
            self.loop.replaying = True
            try:
                with self.loop.inside, self._guard:
                    self._replay(entries)
            finally:
                self.loop.replaying = False
            self._expected = None

    def _replay(self, entries: Sequence[Entry]) -> None:
        at, end = 0, len(entries)
        while at < end:
            happening = entries[at]
            at += 1
            first = at
            while at < end and isinstance(entries[at], Asked | Dropped):
                at += 1
            if isinstance(happening, Asked | Dropped):
                raise self._differs(happening, None)
            if at == end and isinstance(happening, Resolved) and happening.alone and first == at:
                self._absorb(entries[first - 1 :])
                break
            self._expected = deque(deed for deed in entries[first:at] if isinstance(deed, Asked | Dropped))
            self._turn = Turn()
            self._happen(happening)
            main = self._main
            if main is not None and main.done() and not main.cancelled() and (refusal := refused(main.exception())):
                raise refusal
            if self._mismatch is None and self._expected:
                self._mismatch = self._differs(self._expected[0], None)
            if self._mismatch is not None:
                raise self._mismatch

    def absorb(self, entries: Sequence[Entry]) -> None:
        """What is in the journal already, without what the code did next: that belongs to the next turn."""
        with self.loop.inside, self._guard:
            self._absorb(entries)

    def _absorb(self, entries: Sequence[Entry]) -> None:
        self._expected = None
        self.loop.replaying = False
        self._turn = self._carried
        for entry in entries:
            if not isinstance(entry, Asked | Dropped):
                self._happen(entry)

    def turn(self, now: int, arrivals: Sequence[Arrival] = ()) -> Turn:
        """Feed what has arrived, and timers whose time has come; run until the code waits again.

        Forbidden or NonDeterminism: the code cannot go on as it is. Nothing of this turn has happened then.
        """
        turn, self._carried = self._carried, Turn()
        self._turn = turn
        with self.loop.inside, self._guard:
            self._take_in(turn, max(now, self.loop.now), deque(arrivals))
        self._conclude(turn)
        self.entries += len(turn.entries)
        return turn

    def _take_in(self, turn: Turn, now: int, waiting: deque[Arrival]) -> None:
        if self._main is None:
            self._feed(Began(FORMAT, self.workflow.version, self.run, now))
        while (main := self._main) is not None and not main.done():
            timer = self._timers.first()
            if timer is not None and timer.due <= now and not (waiting and waiting[0].at < timer.due):
                self._move_to(now)
                self._feed(Fired(timer.number))
                continue
            overdue = self._overdue(now)
            if overdue is not None and not (waiting and waiting[0].at < overdue[0]):
                self._move_to(now)
                self._feed(overdue[1])
                continue
            if not waiting:
                break
            self._deliver_next(turn, now, waiting)

    def _deliver_next(self, turn: Turn, now: int, waiting: deque[Arrival]) -> None:
        """The next of those that wait."""
        if (what := self._next_of(turn, waiting)) is not None:
            self._move_to(now)
            self._feed(what)

    def _next_of(self, turn: Turn, waiting: deque[Arrival]) -> Happening | None:
        """Consumed in any case; None: it does not concern this flow."""
        arrival = waiting.popleft()
        if arrival.row is not None:
            turn.consumed.append(arrival.row)
        return arrival.what if self._concerns(arrival.what, arrival.at) else None

    def _overdue(self, now: int) -> tuple[int, Happening] | None:
        """Something that happens by itself when nothing else does, and since when."""
        return None

    def _concerns(self, what: Happening, at: int) -> bool:
        if type(what) is Resolved:  # the commonest come first
            return what.command in self.pending
        match what:
            case Signalled(key=str()):
                return self._is_new(what, at)
            case Stopped():
                return not self._stopped  # asked again, it may still clean up in peace
            case _:
                return True

    def _is_new(self, signal: Signalled, at: int) -> bool:
        """Has no signal with its key come within the window? Counts those that differ from the one that has."""
        key, mark = signal.key or "", signal_mark(signal.name, bytes(signal.payload))
        if self._seen.push_at(key, at, mark):
            return True
        if (differs := compare_marks(self._seen.held_result(key), mark)) is not None:
            self._refuse(key, differs, at)
        return False

    def _refuse(self, key: str, differs: MarkDifference, at: int) -> MessageConflict:
        conflict = MessageConflict(key, differs.held, differs.offered, differs.fields, from_micros(at))
        self._turn.conflicts.append(conflict)
        return conflict

    def take_late(self, came: Sequence[tuple[Signalled, int]]) -> tuple[list[Signalled], list[MessageConflict]]:
        """Of signals that came after its code had ended: those that the next run takes over, and those refused."""
        self._turn = Turn()
        late = [signal for signal, at in came if self._concerns(signal, at)]
        return late, self._turn.conflicts

    def _remember(self, signal: Signalled) -> None:
        """A journal that is replayed has a signal with a key."""
        self._seen.push_at(signal.key or "", self.loop.now, signal_mark(signal.name, bytes(signal.payload)))

    def _move_to(self, now: int) -> None:
        if now > self.loop.now:
            self.loop.now = now
            self._turn.entries.append(Turned(now))

    def _feed(self, what: Happening) -> None:
        self._turn.entries.append(what)
        self._happen(what)

    def _happen(self, what: Happening) -> None:
        match what:
            case Resolved():  # the commonest come first
                self._answer(what)
            case Signalled():
                if self._expected is not None and what.key is not None:
                    self._remember(what)
                self._deliver(what)
            case Turned(at):
                self.loop.now = at
                return
            case Began(at=at):
                self.loop.now = self.began = at
                self._begin()
            case Fired(number):
                timer = self._timers.take(number)
                if timer is None:
                    self._mismatch = self._mismatch or self._differs(what, None)
                    return
                self.loop.fire(timer)
            case Stopped(late):
                self._late, self._stopped = self._late or late, True
                if self._main is not None:
                    self._main.cancel()
        self.loop.run()

    def _begin(self) -> None:
        assert isinstance(self.workflow, Workflow)
        args, kwargs = self.workflow.shape.decode_input(self._start.input)
        context = contextvars.Context()
        code = context.run(self.workflow.fn, Context(self), *args, **kwargs)
        self._main = self.loop.create_task(code, context=context)
        if self.timeout is not None and self._deadline is None:
            self._deadline = self.loop.now + micros(self.timeout)
        self._deadline, name = recorded_deadline(self._expected, self._deadline)
        if self._deadline is not None:
            self.loop.call_when_due(self._deadline, name, self._time_is_up)

    def _time_is_up(self) -> None:
        if not self._stopped:  # else it cleans up already
            self._late = self._stopped = True
            if self._main is not None:
                self._main.cancel()

    def _answer(self, resolved: Resolved) -> None:
        command = self.pending.pop(resolved.command, None)
        if command is None:
            self._mismatch = self._mismatch or self._differs(resolved, None)
        else:
            answer(command, resolved, self.who.id)

    def _deliver(self, signal: Signalled) -> None:
        command = self._signals.listener(signal)
        if command is not None:
            self.pending.pop(command.number, None)
            hand(command, signal)

    def ask(self, command: Command) -> FlowFuture:
        """A command, and where its answer will be."""
        self.check_here("ctx")
        command.number = self._next()
        future = self.loop.create_future()
        command.future = future
        self._issue(Asked(command.number, command.kind, command.name, command.mark, command.ref), command)
        if self._mismatch is not None:
            return future  # never to be resolved: the code stops here
        if command.kind in NO_ANSWER:
            future.set_result(None)
            return future
        self.pending[command.number] = command
        future.dropped = lambda: self._drop(command)
        if command.kind is Kind.SIGNAL:
            signal = self._signals.listen(command)
            if signal is not None:
                del self.pending[command.number]
                hand(command, signal)
        return future

    def patched(self, name: str) -> bool:
        """Did this run begin after the change, or get to it after the change?"""
        self.check_here("ctx.patched()")
        if name not in self._patches:
            self._patches[name] = self._expected is None or self.recorded(Kind.PATCH, name)
            if self._patches[name]:
                self.ask(Command(Kind.PATCH, name))
        return self._patches[name]

    def recorded(self, kind: Kind, name: str) -> bool:
        """Does a journal that is replayed say that this comes next?"""
        return self._expected is not None and len(self._expected) > 0 and same(self._expected[0], kind, name)

    def check_start(self, kind: Kind, start: StartRequest) -> None:
        """Refuse a start that the engine would refuse from outside; not one that a journal says was made before."""
        error = self.refusal(kind, start)
        if error is not None and not self.recorded(kind, start.options.name):
            raise error

    def count(self, name: str) -> int:
        """The how-many-eth of its name this is; goes on when the workflow continues as new."""
        self.check_here("ctx")
        self.counts[name] = self.counts.get(name, 0) + 1
        return self.counts[name]

    def _drop(self, command: Command) -> None:
        if self.pending.pop(command.number, None) is None:
            return
        if command.kind is Kind.SIGNAL:
            self._signals.leave(command)
        else:
            self._issue(Dropped(command.number), command)

    def _set_timer(self, timer: Timer) -> None:
        timer.number = self._next()
        self._timers.add(timer)
        self._issue(Asked(timer.number, Kind.TIMER, timer.name, str(timer.due)), None)

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def _issue(self, deed: IssuedCommand, command: Command | None) -> None:
        """The code did something: compare it with the journal, or add it to the turn."""
        if self._mismatch is not None:
            return
        if self._expected is not None:
            expected = self._expected.popleft() if self._expected else None
            if expected is None or not (alike(expected, deed) or matches_older_signature(expected, command)):
                self._mismatch = self._differs(expected, deed)
                self.loop.halt()
            elif command is not None and isinstance(expected, Asked):
                command.ref, command.mark = expected.ref, expected.mark
            return
        self._turn.entries.append(deed)
        if command is not None:
            (self._turn.commands if isinstance(deed, Asked) else self._turn.dropped).append(command)

    def _conclude(self, turn: Turn) -> None:
        main = self._main
        if main is None or not main.done():
            turn.due = self._timers.due
            turn.keep(self.pending.values())
            return
        if main.cancelled():
            turn.ended = stopped(self._late, self.timeout)
            return
        match ending(main):
            case None:
                turn.ended = completed(self.workflow, main.result(), self.settings.max_payload)
            case ContinueAsNew(payload=payload):
                turn.again = Snapshot(
                    payload,
                    self.run + 1,
                    self._numbers,
                    self.counts,
                    self.attributes,
                    self._signals.waiting,
                    self._seen,
                    deadline=self._deadline,
                )
            case ended:
                turn.ended = ended

    def _differs(self, expected: Entry | None, found: IssuedCommand | None) -> NonDeterminism:
        return difference(self.who.key, self.who.name, expected, found, told_end(self._main))

    def close(self) -> None:
        """Let go of it: its code does not go on, here."""
        if not self.loop.over:
            self._mismatch = self._mismatch or NonDeterminism("this instance is gone")
            with self._guard:
                self.loop.abandon()
        for command in self.pending.values():
            command.future = None
        self._main = None
        self.loop.dissolve()
