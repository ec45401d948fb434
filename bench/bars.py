"""What must hold, and where we want to be: ratios in one run to a peer, to the limit, or to ourselves."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from bench.figures import Figures
from bench.plan import (
    ABSURD,
    APSCHEDULER_POSTGRES,
    APSCHEDULER_SQLITE,
    CELERY,
    DBOS,
    HUEY,
    LIMIT_POSTGRES,
    LIMIT_SQLITE,
    PGQUEUER,
    PROCRASTINATE,
    RESTATE,
    RHYTHM,
    SEMEL_POSTGRES,
    SEMEL_SQLITE,
    SEMEL_TEMPORAL,
    TEMPORAL_SCHEDULES,
    Contender,
)

LIMIT = {SEMEL_POSTGRES: LIMIT_POSTGRES, SEMEL_SQLITE: LIMIT_SQLITE}
BOTH = (SEMEL_POSTGRES, SEMEL_SQLITE)
PART_OF = {
    "W1": "throughput",
    "W2": "throughput",
    "W3": "throughput",
    "W4": "steps",
    "W5": "latency",
    "W6": "history",
    "memory": "memory",
    "idle": "idle",
    "held": "held",
    "sleepers": "sleepers",
    "entities": "entities",
    "endless": "endless",
    "schedules": "schedules",
    "events": "events",
    "T": "cluster",
    "starts": "transactions",
}


@dataclass(frozen=True)
class Bar:
    """`ours` divided by `theirs` is at least, or below, the bound. Without `theirs` the figure itself is."""

    kind: Literal["bar", "aim"]
    contender: Contender
    ours: str
    bound: float
    less: bool = False
    against: Contender | None = None
    theirs: str | None = None

    def asked(self, parts: set[str], peers: bool) -> bool:
        """Whether a run of these parts, with or without peers, can judge it."""
        return PART_OF[self.ours.split(" ")[0].rstrip(",")] in parts and (
            peers or self.against in (None, self.contender)
        )

    @property
    def wanted(self) -> str:
        sign = "<" if self.less else "≥"
        if self.against is None:
            return f"{sign} {self.bound:g}"
        whose = self.theirs if self.against == self.contender else self.against.name
        return f"{sign} {self.bound:g} × {whose}"


@dataclass(frozen=True)
class Verdict:
    """A bar in the light of a run. `measured` is None when a figure is missing."""

    bar: Bar
    figure: float | None
    measured: float | None

    @property
    def holds(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured < self.bar.bound if self.bar.less else self.measured >= self.bar.bound

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.bar.kind,
            "contender": self.bar.contender.name,
            "work": self.bar.ours,
            "wanted": self.bar.wanted,
            "measured": self.measured,
            "holds": self.holds,
        }


def bars() -> Iterator[Bar]:
    for semel in BOTH:
        yield from beside_peers(semel)
        yield from beside_the_limit(semel)
        yield from beside_ourselves(semel)
        yield from of_flows(semel)
        yield from of_schedules(semel)
        yield from of_events(semel)
    yield Bar("bar", SEMEL_POSTGRES, "idle", 20, less=True)
    yield from of_transactions()
    yield from beside_the_sdk()


def beside_peers(semel: Contender) -> Iterator[Bar]:
    yield Bar("bar", semel, "W1 x1", 1.3, against=ABSURD, theirs="W1 x1")
    yield Bar("bar", semel, "W1 many", 5, against=RHYTHM, theirs="W1 many")
    yield Bar("bar", semel, "W1 bulk", 1.2, against=PGQUEUER, theirs="W1 bulk")
    if semel == SEMEL_POSTGRES:
        yield Bar("bar", semel, "W2", 1.3, against=PGQUEUER, theirs="W2")
        yield Bar("bar", semel, "W2", 20, against=ABSURD, theirs="W2")
    else:
        yield Bar("bar", semel, "W2", 6, against=HUEY, theirs="W2")
    yield Bar("bar", semel, "W3", 5, against=RHYTHM, theirs="W3")
    yield Bar("bar", semel, "W4 500x10", 8, against=RESTATE, theirs="W4 500x10")
    yield Bar("bar", semel, "W4 1x1000", 2.5, against=ABSURD, theirs="W4 1x1000")
    yield Bar("bar", semel, "W5 p50", 1, less=True, against=CELERY, theirs="W5 p50")


def beside_the_limit(semel: Contender) -> Iterator[Bar]:
    shares = {"W1 x1": 0.8, "W1 many": 0.5, "W1 bulk": 0.6, "W2": 0.45, "W3": 0.5, "W4 500x10": 0.25, "W4 1x1000": 0.7}
    for work, share in shares.items():
        yield Bar("aim", semel, work, share, against=LIMIT[semel], theirs=work)
    yield Bar("aim", semel, "W5 p50", 1.2, less=True, against=LIMIT[semel], theirs="W5 p50")


def beside_ourselves(semel: Contender) -> Iterator[Bar]:
    yield Bar("bar", semel, "W2 sync", 0.3, against=semel, theirs="W2")
    yield Bar("bar", semel, "W2 with logs", 0.8, against=semel, theirs="W2")
    yield Bar("aim", semel, "W2 two workers", 1.3, against=semel, theirs="W2")
    yield Bar("bar", semel, "W5 p99", 3, less=True, against=semel, theirs="W5 p50")
    yield Bar("bar", semel, "W6", 0.95, against=semel, theirs="W6 without history")
    yield Bar("bar", semel, "memory", 150, less=True)
    yield Bar("aim", semel, "memory, twice the tasks", 1.05, less=True, against=semel, theirs="memory")
    yield Bar("bar", semel, "held", 0.8, against=None)


def of_flows(semel: Contender) -> Iterator[Bar]:
    """Figures of workflows and entities that stand for themselves."""
    yield Bar("bar", semel, "sleepers, idle CPU", 2, less=True)
    yield Bar("bar", semel, "sleepers, memory", 200, less=True)
    yield Bar("bar", semel, "sleepers, waking", 5, less=True)
    yield Bar("bar", semel, "entities, many", 10_000)
    yield Bar("bar", semel, "entities, one", 1_500)
    yield Bar("bar", semel, "endless, keys kept", 20_002, less=True)  # `max_keys`, late answers, and the first question
    yield Bar("bar", semel, "endless, journal rows", 2, less=True)


def of_events(semel: Contender) -> Iterator[Bar]:
    """An event with its run beside a task, in the same run."""
    yield Bar("bar", semel, "events, lists", 0.35, against=semel, theirs="events, tasks in lists")
    yield Bar("bar", semel, "events, many callers", 0.4, against=semel, theirs="events, tasks of many callers")
    yield Bar("bar", semel, "events, duplicates", 0.7, against=semel, theirs="events, duplicates of tasks")


def of_schedules(semel: Contender) -> Iterator[Bar]:
    """A look costs by what is due, and not by how many schedules there are. No scheduler beside us comes near."""
    yield Bar("bar", semel, "schedules, many", 20, less=True)
    yield Bar("bar", semel, "schedules, many", 1.5, less=True, against=semel, theirs="schedules, few")
    yield Bar("bar", semel, "schedules, due", 0.5, against=semel, theirs="schedules, bulk")
    for scheduler in (APSCHEDULER_POSTGRES, APSCHEDULER_SQLITE, CELERY, TEMPORAL_SCHEDULES):
        yield Bar("bar", semel, "schedules, due", 10, against=scheduler, theirs="schedules, due")


def of_transactions() -> Iterator[Bar]:
    """A start on the caller's connection beside the same transaction without it; and how fast a relay is."""
    for work in ("starts, on the connection", "starts, in an outbox"):
        yield Bar("bar", SEMEL_POSTGRES, work, 0.6, against=SEMEL_POSTGRES, theirs=f"{work}, without a start")
        for peer in (PGQUEUER, PROCRASTINATE, DBOS):
            yield Bar("bar", SEMEL_POSTGRES, work, 1, against=peer, theirs="starts, on the connection")
    yield Bar("bar", SEMEL_POSTGRES, "starts, relayed", 0.3, against=SEMEL_POSTGRES, theirs="starts, bulk")
    yield Bar("bar", SEMEL_POSTGRES, "starts, until begun p50", 20, less=True)
    yield Bar("bar", SEMEL_TEMPORAL, "starts, relayed, Semel", 0.9, against=SEMEL_TEMPORAL, theirs="starts, SDK")


def beside_the_sdk() -> Iterator[Bar]:
    """Semel on Temporal: what it costs over the bare SDK for the same work."""
    for work in ("T starts", "T tasks", "T steps"):
        yield Bar("bar", SEMEL_TEMPORAL, f"{work}, Semel", 0.9, against=SEMEL_TEMPORAL, theirs=f"{work}, SDK")
    latency = ("T latency, Semel", "T latency, SDK")
    yield Bar("bar", SEMEL_TEMPORAL, latency[0], 1.11, less=True, against=SEMEL_TEMPORAL, theirs=latency[1])


def judge(figures: Figures) -> list[Verdict]:
    return [verdict(bar, figures) for bar in bars()]


def verdict(bar: Bar, figures: Figures) -> Verdict:
    ours = figures.median(bar.contender, bar.ours)
    if bar.against is None or bar.theirs is None:
        return Verdict(bar, ours, ours)
    theirs = figures.median(bar.against, bar.theirs)
    return Verdict(bar, ours, ours / theirs if ours is not None and theirs else None)
