"""Workflows and entities as rows: loaded from the database, and written after a turn."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from msgspec.structs import replace

from semel.contract.lifecycle import Status
from semel.contract.records import MessageConflict
from semel.contract.times import instant
from semel.define.context import Running
from semel.engines.journal.admit import Wanted
from semel.engines.journal.claims import Claim
from semel.engines.journal.lanes import Lanes
from semel.engines.journal.notifications import Bell
from semel.engines.journal.script import Row
from semel.engines.journal.turns import ChildStart, Commit, waiters_of
from semel.flow import entity_messages, entries, snapshot
from semel.flow.commands import Command, Kind
from semel.flow.entity_messages import CONFLICT
from semel.flow.instance import Instance
from semel.flow.turn import Arrival, Reply, Turn


class Clock:
    """The database's, in microseconds; between two looks at it this machine's own counts on."""

    def __init__(self, now: int) -> None:
        self.set(now)

    def set(self, now: int) -> None:
        """What the database says."""
        self._now, self._at = now, time.monotonic()

    def __call__(self) -> int:
        return self._now + int((time.monotonic() - self._at) * 1_000_000)


class Loaded:
    """A flow as the database has it."""

    def __init__(
        self,
        base: int,
        snapshot: bytes | None,
        parent: str | None,
        parks: int,
        now: int,
        last: int | None,
        written_by: int | None,
    ) -> None:
        self.base = base
        self.snapshot = snapshot
        self.parent = parent
        self.parks = parks
        self.now = now
        self.last = base if last is None else max(base, last)
        self.written_by = written_by
        self.journal: list[tuple[int, bytes]] = []
        self.arrivals: list[Arrival] = []
        self.gone = False

    @classmethod
    def of_none(cls) -> Loaded:
        """There is no such flow: it was ended from outside."""
        nothing = cls(0, None, None, 0, 0, None, None)
        nothing.gone = True
        return nothing

    @property
    def version(self) -> int | None:
        """The version it began with, if it has begun."""
        if not self.journal:
            return None
        first = entries.load(self.journal[0][1])[0]
        return first.version if isinstance(first, entries.Began) else None


@dataclass(frozen=True, slots=True)
class Ready:
    """A flow that can take its turn."""

    instance: Instance
    arrivals: list[Arrival]
    clock: Clock
    parks: int


class Held:
    """A flow that this worker has claimed."""

    def __init__(self, claim: Claim, running: Running) -> None:
        self.claim = claim
        self.running = running
        self.arrived: list[Arrival] = []
        self.news = False
        """Something may have come for it from outside."""
        self.given: list[Arrival] = []
        """What the turn that is under way was given."""
        self.steps: dict[int, asyncio.Task[None]] = {}
        """Steps that were begun and whose answers the code has not had: none of them is begun twice."""
        self.dropped: set[int] = set()
        """Steps that nobody here waits for any more."""
        self.instance: Instance | None = None
        self._bell = Bell()

    def drop(self, number: int) -> None:
        """Stop a step: the code has given it up, or the worker gives the flow back."""
        self.dropped.add(number)
        self.steps.pop(number).cancel()

    def ring(self) -> None:
        """There is something to do."""
        self._bell.ring()

    async def wait(self, seconds: float | None) -> None:
        """Until something has arrived, or so many seconds have passed."""
        if not self.arrived and not self.news:
            self._bell.rung = False
            await self._bell.wait(seconds)


_EXECUTIONS = (Kind.TASK, Kind.WORKFLOW)


def commit_of(claim: Claim, instance: Instance, turn: Turn, *, rests: bool) -> Commit:
    """What a turn leaves behind, without what it asks of others. `rests`: nothing of it runs here any more."""
    flow = claim.execution
    body = entries.dump(turn.entries) if turn.entries else None
    made = Commit(*claim.fence, instance.position + 1, body, parent=claim.parent)
    if turn.consumed:
        made.consumed = [(flow, *row) for row in turn.consumed]
    if instance.workflow.kind == "entity":
        _remember(made, turn, claim.attempt)
    elif turn.conflicts:
        made.seen = [_last_conflict(made.execution, turn.conflicts[-1])]
    made.conflicts = turn.conflicts
    if turn.again is not None:
        made.restart, made.base = snapshot.dump(turn.again), made.n
    elif turn.ended is not None:
        made.ended = (turn.ended.status, turn.ended.output, turn.ended.error)
        made.fresh = None if turn.fresh is None else snapshot.dump(turn.fresh)
    else:
        made.rests = rests and not turn.more
        made.due = turn.due
    return made


async def carry_out(lanes: Lanes, made: Commit, commands: list[Command], dropped: list[Command]) -> None:
    """What a turn asks of others, or no longer wants of them."""
    unborn = {command.number for command in dropped}
    for command in commands:
        await _carry_out(lanes, made, command, unborn)
    child_commands = {child.command for child in made.child_starts}
    made.stops = [
        c.ref
        for c in dropped
        if c.kind in _EXECUTIONS
        and c.ref is not None
        and c.number not in child_commands
        and c.start is not None
        and c.on_close != "abandon"
    ]


def _remember(made: Commit, turn: Turn, attempt: int) -> None:
    """What an entity keeps of its messages: its state, and the keys it has seen with their answers."""
    if turn.snapshot is not None:
        made.restart = snapshot.dump(turn.snapshot)
        made.base = made.n if made.body is None else made.n - 1
    made.seen = [
        (made.execution, r.n, r.key, r.at, entity_messages.dump(r), r.mark, r.name, r.payload) for r in turn.replies
    ]
    made.forgotten = turn.forgotten
    made.hits, made.overflowed = turn.hits, turn.overflowed
    made.forgives = turn.moved and attempt > 1


def _last_conflict(execution: str, conflict: MessageConflict) -> Row:
    """Of the signals that a workflow refused, the last one is kept, and all are counted."""
    at = instant(conflict.at)
    note = Reply(f"{CONFLICT}1", Status.FAILED, entity_messages.dump_conflict(conflict))
    return (execution, 1, note.key, at, entity_messages.dump(note), None, None, None)


async def _carry_out(lanes: Lanes, made: Commit, command: Command, unborn: set[int]) -> None:
    match command.kind:
        case Kind.TASK | Kind.WORKFLOW if command.start is not None:
            if command.number not in unborn:
                start = replace(command.start, parent=made.execution)
                waiters = waiters_of(made.execution, command.number) if command.waits else None
                wanted = Wanted(start, await lanes.of(start.options), waiters)
                made.child_starts.append(ChildStart(command.number, wanted, command.waits, command.on_close))
        case Kind.ENQUEUE if command.start is not None:
            start = replace(command.start, parent=made.execution)
            wanted = Wanted(start, await lanes.of(start.options))
            made.child_starts.append(ChildStart(command.number, wanted, None, None))
        case Kind.WORKFLOW:
            made.joins.append((command.ref or "", command.number))
        case Kind.PUBLISH:
            made.published.append((made.execution, command.name, command.payload))
        case Kind.ATTRIBUTE:
            made.attributes.append((made.execution, command.name, command.mark))
        case Kind.SEND:
            made.sends.append((command.ref, "signal", command.name, command.mark or None, command.payload, None))
        case Kind.CANCEL:
            made.sends.append((command.ref, "cancel", "", None, None, None))
        case _:
            pass
