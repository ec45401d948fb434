"""A flow as the database has it, as it is once it is in memory, and as a worker holds it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from semel.define.context import Running
from semel.engines.journal.claiming import Claim
from semel.engines.journal.hub import Bell
from semel.flow import entries
from semel.flow.instance import Instance
from semel.flow.turn import Arrival


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
