"""Who is measured, on what, how much of it, and in which order."""

from dataclasses import dataclass
from typing import Literal

Store = Literal["postgresql", "sqlite", "redis", "temporal", "its own"]


@dataclass(frozen=True)
class Contender:
    """A program that measures one system. Peers have an environment of their own; the rest use ours."""

    name: str
    module: str
    store: Store
    tasks: int  # fast systems get more, so that every measure takes about a second or longer
    peer: str | None = None

    @property
    def ours(self) -> bool:
        return self.module in ("bench.semel_client", "bench.temporal_client")


SEMEL_POSTGRES = Contender("Semel, PostgreSQL", "bench.semel_client", "postgresql", 30_000)
SEMEL_SQLITE = Contender("Semel, SQLite", "bench.semel_client", "sqlite", 30_000)
LIMIT_POSTGRES = Contender("limit, PostgreSQL", "bench.limits_postgres", "postgresql", 30_000)
LIMIT_SQLITE = Contender("limit, SQLite", "bench.limits_sqlite", "sqlite", 30_000)
SEMEL_TEMPORAL = Contender("Semel, Temporal", "bench.temporal_client", "temporal", 200)
ABSURD = Contender("Absurd", "bench.peers.absurd_postgres", "postgresql", 10_000, "absurd")
RHYTHM = Contender("Rhythm", "bench.peers.rhythm_postgres", "postgresql", 10_000, "rhythm")
PGQUEUER = Contender("PgQueuer", "bench.peers.pgqueuer_postgres", "postgresql", 30_000, "pgqueuer")
PROCRASTINATE = Contender("Procrastinate", "bench.peers.procrastinate_postgres", "postgresql", 10_000, "procrastinate")
DBOS = Contender("DBOS", "bench.peers.dbos_postgres", "postgresql", 5_000, "dbos")
HUEY = Contender("Huey, SQLite", "bench.peers.huey_sqlite", "sqlite", 10_000, "huey")
CELERY = Contender("Celery, Redis", "bench.peers.celery_redis", "redis", 1_000, "celery")
RESTATE = Contender("Restate", "bench.peers.restate_http", "its own", 0, "restate")
APSCHEDULER_POSTGRES = Contender(
    "APScheduler, PostgreSQL", "bench.peers.apscheduler_sql", "postgresql", 1_000, "apscheduler"
)
APSCHEDULER_SQLITE = Contender("APScheduler, SQLite", "bench.peers.apscheduler_sql", "sqlite", 1_000, "apscheduler")
TEMPORAL_SCHEDULES = Contender("Temporal Schedules", "bench.temporal_schedules", "temporal", 200)

CONTENDERS = (
    SEMEL_POSTGRES,
    SEMEL_SQLITE,
    SEMEL_TEMPORAL,
    ABSURD,
    RHYTHM,
    PGQUEUER,
    PROCRASTINATE,
    DBOS,
    HUEY,
    CELERY,
    RESTATE,
    APSCHEDULER_POSTGRES,
    APSCHEDULER_SQLITE,
    TEMPORAL_SCHEDULES,
    LIMIT_POSTGRES,
    LIMIT_SQLITE,
)


@dataclass(frozen=True)
class Part:
    """A set of workloads that one process measures. `once` parts are long and not repeated in every round."""

    name: str
    what: str
    contenders: tuple[Contender, ...]
    once: bool = False


PARTS = (
    Part(
        "throughput",
        "W1, W2, W3: enqueue, drain, enqueue again",
        (SEMEL_POSTGRES, ABSURD, LIMIT_POSTGRES, RHYTHM, PGQUEUER, SEMEL_SQLITE, HUEY, LIMIT_SQLITE),
    ),
    Part(
        "latency",
        "W5: from start to result, client and worker in two processes",
        (SEMEL_POSTGRES, CELERY, LIMIT_POSTGRES, SEMEL_SQLITE, LIMIT_SQLITE),
    ),
    Part("history", "W6: drain with and without finished rows", (SEMEL_POSTGRES, SEMEL_SQLITE)),
    Part(
        "steps",
        "W4: recorded steps, of many workflows and of a long one",
        (SEMEL_POSTGRES, ABSURD, LIMIT_POSTGRES, RESTATE, SEMEL_SQLITE, LIMIT_SQLITE),
    ),
    Part("cluster", "Semel on Temporal and the bare SDK, by turns", (SEMEL_TEMPORAL,)),
    Part("entities", "messages to many entities, and to one", (SEMEL_POSTGRES, SEMEL_SQLITE)),
    Part(
        "schedules",
        "looks at schedules, and 10,000 slots at one instant",
        (SEMEL_POSTGRES, APSCHEDULER_POSTGRES, SEMEL_SQLITE, APSCHEDULER_SQLITE, CELERY, TEMPORAL_SCHEDULES),
    ),
    Part("events", "events beside tasks, one of 100 activities matching", (SEMEL_POSTGRES, SEMEL_SQLITE)),
    Part(
        "transactions",
        "starts in a transaction of the caller's, and by an outbox",
        (SEMEL_POSTGRES, PGQUEUER, PROCRASTINATE, DBOS, SEMEL_TEMPORAL),
    ),
    Part("memory", "a worker's memory after many tasks", (SEMEL_POSTGRES, SEMEL_SQLITE), once=True),
    Part("idle", "queries of 100 idle workers", (SEMEL_POSTGRES,), once=True),
    Part("held", "work beside a held transaction", (SEMEL_POSTGRES, SEMEL_SQLITE), once=True),
    Part("sleepers", "what sleeping workflows cost, and how fast they wake", (SEMEL_POSTGRES, SEMEL_SQLITE), once=True),
    Part("endless", "what an entity keeps of very many messages", (SEMEL_POSTGRES, SEMEL_SQLITE), once=True),
)


@dataclass(frozen=True)
class Size:
    """How much is run. Figures of two sizes are not compared."""

    name: str
    rounds: int
    share: float  # of each contender's tasks
    samples: int  # latencies
    history: int  # finished rows of W6
    memory: int  # tasks before a worker's memory is read, and once more after as many again
    sleepers: int  # sleeping workflows; a tenth as many wake at one instant
    messages: int  # to the one entity that gets very many
    held: float  # seconds beside a held transaction
    idle: float  # seconds of watching workers that have nothing to do
    patience: float  # seconds until a contender is given up

    def tasks(self, part: Part, contender: Contender) -> int:
        long = {"memory": self.memory, "sleepers": self.sleepers, "endless": self.messages}
        if part.name in long:
            return long[part.name]
        return max(100, round(contender.tasks * self.share))

    def seconds(self, part: Part) -> float:
        return self.idle if part.name in ("idle", "sleepers") else self.held


SIZES = {
    "quick": Size("quick", 1, 0.2, 50, 50_000, 20_000, 5_000, 15_000, 5, 10, 120),
    "normal": Size("normal", 3, 1.0, 300, 1_000_000, 100_000, 100_000, 50_000, 30, 20, 300),
    "full": Size("full", 3, 1.0, 300, 1_000_000, 1_000_000, 100_000, 1_000_000, 300, 30, 1800),
}


def order(parts: tuple[Part, ...], rounds: int, peers: bool) -> list[tuple[int, Part, Contender]]:
    """A B C A B C: what disturbs the machine for a while falls on everyone."""
    steps = [
        (number, part, contender)
        for number in range(rounds)
        for part in parts
        if number == 0 or not part.once
        for contender in part.contenders
        if peers or contender.ours
    ]
    return sorted(steps, key=lambda step: step[1].once)  # the long ones last; stable, so the order stays
