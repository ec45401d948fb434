"""The Engine protocol. An engine starts, finds, explains, cancels and serves executions.

Nothing here speaks of tables or rows: the same verbs are served by SQLite, by PostgreSQL, and by a
cluster that has neither.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from semel.contract.decision import Decision
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo, Execution, Suppressed, Undelivered
from semel.define.context import Running
from semel.define.registry import Registry
from semel.engine.caller_connection import CallerConnection
from semel.engine.events import WorkerEvent
from semel.engine.schedules import EngineSchedules
from semel.engine.start_request import StartRequest
from semel.engine.subscriptions import EngineEvents, Publication, Receipt
from semel.settings import QueueSettings, Settings


class Message(Struct, frozen=True):
    """A message to an entity. `start` is how to make the entity, should it be missing."""

    start: StartRequest
    name: str
    payload: bytes
    key: str | None


class Admission(Struct, frozen=True, gc=False):
    """The answer: `id` is the execution that the caller shares or owns."""

    id: str
    decision: Decision


class Outcome(Struct, frozen=True):
    """How an execution ended."""

    status: Status
    output: bytes | None
    error: ErrorInfo | None
    expired: bool
    mark: str | None = None
    """Of the answer of an entity: what the message is compared by that it answers."""
    unknown: bool = False
    """The engine has no trace of it: it was forgotten in its time, or lost with a database that went back."""


class RecordedRun(Struct, frozen=True):
    """All that a flow can be run again from: who it is, how its run began, and what was written since."""

    id: str
    name: str
    key: str
    namespace: str
    queue: str
    generation: int
    seed: str
    """The execution that its dice were first thrown for; another one than `id` after a reset."""
    parent: str | None
    input: bytes | None
    """None: past its retention."""
    snapshot: bytes | None = None
    """What its run began with, if it has continued as new."""
    base: int = 0
    """The number of the last commit before this run; those up to it are gone."""
    commits: tuple[bytes, ...] = ()
    kind: str = "workflow"
    """Or entity: its snapshot is its state, and the commits are those since it last rested."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """How one history went with the code of today."""

    id: str
    name: str
    key: str
    error: str = ""
    """Why it would be parked; empty if it would go on."""
    expected: str = ""
    """What its journal says."""
    found: str = ""
    """What the code does instead."""
    where: str = ""
    """The line of the code, as file:line."""
    missing: bool = False
    """This code has no function of its name: nobody would run it."""

    @property
    def ok(self) -> bool:
        """Would it go on?"""
        return not self.error


@dataclass(frozen=True, slots=True)
class Filter:
    """Which executions to list; None matches all. Newest first, older than `before`."""

    status: Status | None = None
    queue: str | None = None
    name: str | None = None
    kind: str | None = None
    before: str | None = None
    limit: int = 50
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Search attributes of workflows, all of which must be as given."""
    scheduled: tuple[datetime, datetime] | None = None
    """Runs of schedules whose slot is in this range, its end not included; by their slots, newest first."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue and the work in it."""

    name: str
    ready: int
    running: int
    delayed: int
    settings: QueueSettings


@dataclass(frozen=True, slots=True)
class QueueLag:
    """How far workers are behind with a queue."""

    name: str
    pending: int
    """Executions that wait for a worker and for nothing else; very many are not all counted."""
    oldest: float | None
    """Seconds for which the oldest of them has waited; None: none waits, or it is not known."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker that holds a lease."""

    id: int
    name: str
    queues: str
    started_at: datetime
    expires_at: datetime
    functions: frozenset[str] | None = None
    """The names of the tasks, workflows and entities that it has; None: it does not tell."""
    homes: Mapping[str, str] = field(default_factory=dict)
    """Where the code of each of them is, such as `shop.tasks.charge`, as far as it tells."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Executions of one function that wait on one queue, for a worker or for something to happen."""

    kind: str
    name: str
    queue: str
    count: int
    id: str
    """The oldest of those that are ready; where none is, the oldest of all."""
    key: str | None
    ready: int = 0
    """So many of them wait for a worker and for nothing else, as far as was looked at."""
    since: datetime | None = None
    """When the oldest of those was asked for; where it was not looked at how many are ready, the oldest of all."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `semel doctor` looked at."""

    ok: bool
    what: str
    detail: str


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can promise beyond the contract; printed in the docs' engine table."""

    name: str
    many_machines: bool
    """Workers may run on several machines."""
    in_order: bool
    """Work of one queue and priority begins in the order in which it was asked for, and every priority is honoured."""
    limits: bool
    """Limits hold over all workers: rates with their burst, concurrency of a queue, concurrency keys."""
    hears_in_steps: bool
    """A workflow hears at once of what comes while one of its steps runs."""
    foreign_workflows: bool = False
    """Workflows that other people's workers run can be started by name."""
    joins_transactions: bool = False
    """Starts can be part of a transaction of the caller's, on a connection to the engine's own database."""


MOST_SHOWN = 10
"""Entities with failed messages that doctor names."""


def failed_messages_finding(entities: Sequence[str]) -> Finding:
    """What doctor says of entities with messages that failed; the first ones are named."""
    if not entities:
        return Finding(True, "failed messages", "none")
    more = " and more" if len(entities) > MOST_SHOWN else ""
    return Finding(True, "failed messages", f"of {', '.join(entities[:MOST_SHOWN])}{more}. See semel entities failed")


class Worker(Protocol):
    """Something that runs tasks until it is stopped."""

    @property
    def healthy(self) -> bool:
        """Are all of its loops alive?"""

    @property
    def busy(self) -> Sequence[Running]:
        """What it runs now."""

    async def start(self) -> None:
        """Take a lease and begin."""

    async def stop(self, grace: timedelta | None = None) -> None:
        """Take no new work, let running tasks finish within `grace`, give the rest back.

        Asked a second time, it waits no longer and gives back at once what still runs.
        """


class EngineVerbs(Protocol):
    """What an engine does on its own connections, and in a transaction of the caller's as well."""

    def start(self, request: StartRequest) -> Awaitable[Admission]:
        """Ask for one execution. When this returns, the answer is committed.

        The same request sent again, after a lost reply or by a relay that crashed before its note of it, gives the
        same execution, as Admit: also when that has ended meanwhile, and whatever `reuse` says.
        """

    async def start_many(self, requests: Sequence[StartRequest]) -> list[Admission]:
        """Ask for many, in as few commits as the engine can."""

    async def get(self, id: str) -> Execution | None:
        """An execution by id, or by the beginning of an id if only one begins so."""

    async def input_of(self, id: str) -> bytes | None:
        """The input of an execution, while retention keeps it."""

    async def outcome(self, id: str, timeout: float | None) -> Outcome | None:
        """Wait until it has ended. None: it has not within `timeout`. A forgotten one is expired."""

    async def cancel(self, id: str) -> Status | None:
        """Cancel what waits, ask what runs to stop. The status afterwards; None: no such execution."""

    async def signal(self, id: str, name: str, payload: bytes | None, key: str | None) -> Status | None:
        """Hand a signal to a workflow. Its status if it has ended, `running` if not, None: no such execution."""

    async def send(self, message: Message) -> str:
        """Hand a message to an entity, which is made if it is missing. When this returns, it is committed; its id."""

    async def schedules(self) -> EngineSchedules:
        """The schedules of this engine. ConfigError: it has no place for them."""


class JoinedVerbs(EngineVerbs, Protocol):
    """The verbs of an engine that are part of a transaction of the caller's."""

    async def publish(self, publication: Publication) -> Receipt:
        """Record an event and start its runs. KeyConflict: its id stands for another event."""


class Engine(EngineVerbs, Protocol):
    """Where executions live."""

    capabilities: Capabilities

    async def join(self, connection: CallerConnection) -> JoinedVerbs | None:
        """The verbs that can be part of the caller's transaction: what they write is there when that is committed.

        None: the connection is to another database, or the engine has not the capability `joins_transactions`.
        """

    async def look_up(self, request: StartRequest) -> Admission | None:
        """What `start` would answer to a request that is in already, or whose key is taken. Nothing is written.

        None: it would be a new execution.
        """

    async def find(self, kind: str, key: str) -> Execution | None:
        """The newest execution under a key."""

    async def executions(self, which: Filter) -> list[Execution]:
        """Executions, newest first."""

    async def explain(self, kind: str, key: str) -> tuple[list[Execution], list[Suppressed] | None, datetime]:
        """Every execution under a key, every suppressed duplicate, and the time by the engine's clock.

        None: how many duplicates there were is not known, for want of a place where they are counted.
        """

    async def answer(self, id: str, key: str, timeout: float | None) -> Outcome | None:
        """Wait for what an entity answers to the message with this key. None: not within `timeout`."""

    async def state_of(self, key: str) -> tuple[bool, bytes | None]:
        """Is there an entity under this key, and what was it after its last message?"""

    async def undelivered(self, kind: str, key: str) -> Undelivered:
        """Messages that an entity failed to handle or refused, or the last signal that a workflow refused."""

    async def failing_entities(self, most: int) -> list[str]:
        """The keys of living entities with messages that failed, at most so many, those that failed last first.

        An engine that does not know when they failed gives those that were started last.
        """

    async def terminate(self, id: str, why: str) -> Status | None:
        """End a workflow at once; its code hears nothing of it. The status afterwards; None: no such execution."""

    async def published(self, id: str, name: str) -> bytes | None:
        """A value that a workflow has published."""

    async def attributes(self, id: str) -> dict[str, str]:
        """The search attributes of a workflow."""

    async def past(self, id: str) -> RecordedRun | None:
        """What happened to a workflow since it last continued as new, or to an entity since it last rested.

        None: no such execution. NotFound: the engine has no journal of it.
        """

    async def replay(self, id: str, registry: Registry, settings: Settings) -> Replayed | None:
        """Would this code go on with what a flow has recorded? Nothing is written, and no step or task runs.

        None: no such execution, or its input is gone.
        """

    async def reset(self, id: str, new_id: str, commit: int) -> str:
        """Let a workflow go on from one of its commits, as a new execution under the same key; the old one ends.

        The new one's id: `new_id` where the engine takes it.

        All or nothing. NotFound, or NotResettable which says why.
        """

    async def redrive(self, id: str, new_id: str) -> str | None:
        """Run a failed execution again as a new one. None if it did not fail, or its key has moved on."""

    async def configure(self, queues: Mapping[str, QueueSettings]) -> None:
        """Queue settings, for every worker."""

    async def queues(self) -> list[QueueState]:
        """Queues that exist, and what is in them."""

    async def queue_lags(self) -> list[QueueLag]:
        """How far workers are behind with each queue; cheap enough to be asked every few seconds."""

    async def workers(self) -> list[WorkerState]:
        """Workers that hold a lease."""

    async def waiting(self) -> list[Waiting]:
        """What has not ended and does not run, by function and queue; of very many, the newest."""

    async def events(self) -> EngineEvents:
        """The events of this engine. ConfigError: it has no place for them."""

    def worker(self, registry: Registry, queues: Sequence[str] | None, settings: Settings) -> Worker:
        """A worker for these queues (None: all), not yet started."""

    async def clean(self) -> int:
        """Drop what is past its retention now; how many executions were looked at."""

    async def migrate(self, progress: Callable[[str], None]) -> list[str]:
        """Bring the engine's own structures up to date; what was applied."""

    async def doctor(self) -> list[Finding]:
        """Look at everything that could be wrong."""

    async def close(self) -> None:
        """Write down what is still in memory and let go."""


class Observer(Protocol):
    """Something that wants to know what an engine does: tracing, metrics, dashboards.

    Inherit from it to implement only one of the two. Both are called in the event loop and must return at once; what
    they raise is logged and changes nothing.
    """

    def observe(self, verb: str, seconds: float, error: BaseException | None) -> None:
        """One call of one verb of the engine has ended."""

    def event(self, event: WorkerEvent) -> None:
        """Something happened in a worker of this app, or a duplicate of this app's did not run."""
