"""What the tables must hold, in plain Python on top of `contract/`: small enough to be believed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from semel.contract.decision import Admit, Decision, Prior, Request, Reuse, decide
from semel.contract.lifecycle import RELEASED, Status
from semel.contract.retention import Retention, RetentionAction, retention_action
from semel.contract.times import from_micros, micros
from semel.engines.journal.leases import SUSPECT_AFTER

SECOND = 1_000_000


@dataclass
class Modelled:
    """One execution."""

    id: str
    key: str | None
    name: str
    print: bytes
    most: int
    keep: Retention
    status: Status = Status.PENDING
    attempt: int = 0
    crashes: int = 0
    generation: int = 0
    current: bool = True
    finished: int | None = None
    stripped: bool = False
    due: int | None = None
    """When it leaves the waiting room; None when it stands in line or has ended."""
    place: int = 0
    token: int = 0
    """Where it stands in line."""
    owner: int | None = None
    cancel: bool = False
    suspect: bool = False
    look: int = 0
    """When the cleaner looks at it."""

    @property
    def ready(self) -> bool:
        return self.status.live and self.due is None


@dataclass
class Model:
    """Executions, workers and the clock."""

    now: int
    all: dict[str, Modelled] = field(default_factory=dict)
    workers: dict[int, int] = field(default_factory=dict)
    """Lease ends by worker."""
    places: int = 0

    def holder(self, key: str | None) -> Modelled | None:
        """Who has the key."""
        return next((e for e in self.all.values() if key is not None and e.key == key and e.current), None)

    def enqueue(self, new: Modelled, reuse: Reuse, delay: int | None) -> Decision:
        """The contract decides; an admitted one takes its place."""
        held = self.holder(new.key)
        prior = None
        if held is not None:
            ends = None if held.finished is None else from_micros(held.finished) + held.keep.window
            prior = Prior(held.id, held.name, held.print, held.status, held.generation, ends)
        decision = decide(prior, Request(new.name, new.print, reuse), from_micros(self.now))
        if isinstance(decision, Admit):
            if held is not None:
                held.current = False
            new.generation = decision.generation
            self.all[new.id] = new
            if delay is None:
                self.line_up(new)
            else:
                new.due = self.now + delay
        return decision

    def line_up(self, one: Modelled) -> None:
        """To the end of the line."""
        self.places += 1
        one.place, one.due, one.owner = self.places, None, None

    def claimable(self, names: list[str]) -> list[Modelled]:
        """In the order in which they must be given out: suspects after the others of their lane."""
        free = [e for e in self.all.values() if e.ready and e.owner is None and e.name in names]
        return sorted(free, key=lambda e: (e.suspect, e.place))

    def end(self, one: Modelled, status: Status) -> None:
        """For good."""
        one.status, one.finished, one.owner = status, self.now, None
        one.look = self.now + max(micros(one.keep.retention), 5 * SECOND)

    def put_off(self, one: Modelled, delay: int) -> None:
        """Another attempt, later."""
        one.owner, one.due = None, self.now + delay

    def promote(self) -> None:
        """The waiting room empties by the clock."""
        due = [e for e in self.all.values() if e.due is not None and e.status.live and e.due <= self.now]
        for one in sorted(due, key=lambda e: (e.due, e.id)):
            self.line_up(one)

    def lose(self, workers: list[int], of_their_own_will: bool = False) -> None:
        """The tasks of workers that died, or that left and handed them back."""
        for worker in workers:
            self.workers.pop(worker, None)
        lost = [e for e in self.all.values() if e.status.live and e.owner in workers]
        for one in sorted(lost, key=lambda e: e.place):
            if one.cancel:
                self.end(one, Status.CANCELLED)
            elif of_their_own_will:
                one.attempt -= 1
                self.line_up(one)
            elif one.attempt >= one.most:
                self.end(one, Status.FAILED)
            else:
                one.crashes += 1
                one.suspect = one.suspect or one.crashes >= SUSPECT_AFTER
                self.line_up(one)

    def expired(self, lease: int) -> list[int]:
        """Workers that are taken for dead: their lease has run out, or ends later than it can (the clock went back)."""
        return [worker for worker, ends in self.workers.items() if not self.now <= ends <= self.now + 2 * lease]

    def cancel(self, one: Modelled) -> Status:
        """Status afterwards."""
        if one.status.terminal:
            return one.status
        if one.owner is not None:
            one.cancel = True
            return Status.RUNNING
        self.end(one, Status.CANCELLED)
        one.due = None
        return Status.CANCELLED

    def may_be_redriven(self, one: Modelled) -> bool:
        """A failed one that is the newest under its key and still has its input."""
        return one.status in RELEASED and one.current and not one.stripped

    def clean(self) -> None:
        """What retention says of everything whose time has come."""
        for one in list(self.all.values()):
            if one.finished is None or one.look > self.now:
                continue
            match retention_action(
                one.keep, from_micros(one.finished), one.key is not None and one.current, from_micros(self.now)
            ):
                case RetentionAction.KEEP:
                    one.look = one.finished + micros(one.keep.retention)
                case RetentionAction.STRIP:
                    one.stripped = True
                    one.look = one.finished + micros(one.keep.window)
                case RetentionAction.FORGET:
                    del self.all[one.id]


def keeping(retention: int, window: int) -> Retention:
    """In seconds."""
    return Retention(timedelta(seconds=retention), timedelta(seconds=window))
