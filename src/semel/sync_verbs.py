"""What the sync face gives: handles, references to entities, schedules, backfills and events. No logic here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Coroutine, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, TypeVarTuple, Unpack, overload

from semel.backfills import BackfillOptions, Backfills
from semel.contract.backfill import BackfillInfo, BackfillPlan
from semel.contract.durations import Duration
from semel.contract.events import EventInfo, SubscriptionInfo
from semel.contract.lifecycle import Status
from semel.contract.occurrences import Occurrence
from semel.contract.reconciliation import Difference
from semel.contract.records import Execution, FailedMessage
from semel.contract.runs import Change, ScheduleInfo, ScheduleRun, SkippedSlots
from semel.define.schedule import ScheduleOptions
from semel.define.task import Call
from semel.define.workflow import WorkflowCall
from semel.flow.context import EntityContext
from semel.flow.history import Event
from semel.handle import Handle

if TYPE_CHECKING:
    from semel.entity_ref import Ref
    from semel.events import EventPage, Events, Published
    from semel.outbox import Outbox, OutboxState
    from semel.schedules import Schedules
    from semel.sync import SyncApp
    from semel.transactional.outbox.events import OutboxEvent, OutboxStatus

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")
Ts = TypeVarTuple("Ts")
T_co = TypeVar("T_co", covariant=True)


class SyncHandle(Generic[T_co]):
    """A handle whose methods wait instead of being awaited."""

    def __init__(self, face: SyncApp, handle: Handle[T_co]) -> None:
        self._face = face
        self._handle = handle
        self.key = handle.key
        self.name = handle.name

    @property
    def id(self) -> str:
        """See Handle."""
        return self._handle.id

    @property
    def duplicate(self) -> bool:
        """See Handle."""
        return self._handle.duplicate

    def __repr__(self) -> str:
        return f"<Sync{repr(self._handle)[1:]}"

    def result(self, timeout: Duration | None = None) -> T_co:
        """See Handle.result."""
        return self._face.wait(self._handle.result(timeout))

    def output(self, timeout: Duration | None = None) -> Any:
        """See Handle.output."""
        return self._face.wait(self._handle.output(timeout))

    def input(self) -> dict[str, Any] | None:
        """See Handle.input."""
        return self._face.wait(self._handle.input())

    def state(self) -> dict[str, Any] | None:
        """See Handle.state."""
        return self._face.wait(self._handle.state())

    def describe(self) -> Execution:
        """See Handle.describe."""
        return self._face.wait(self._handle.describe())

    def status(self) -> Status:
        """See Handle.status."""
        return self._face.wait(self._handle.status())

    def cancel(self, *, connection: Any = None) -> Status:
        """See Handle.cancel."""
        return self._face._perform("cancel", connection, self._handle.cancel)

    def signal(self, name: str, payload: Any = None, *, dedup_key: str | None = None, connection: Any = None) -> None:
        """See Handle.signal."""
        signal = functools.partial(self._handle.signal, name, payload, dedup_key=dedup_key)
        self._face._perform("signal", connection, signal)

    def terminate(self, why: str = "terminated") -> Status:
        """See Handle.terminate."""
        return self._face.wait(self._handle.terminate(why))

    def published(self, name: str, default: Any = None) -> Any:
        """See Handle.published."""
        return self._face.wait(self._handle.published(name, default))

    def attributes(self) -> dict[str, str]:
        """See Handle.attributes."""
        return self._face.wait(self._handle.attributes())

    def history(self) -> list[Event]:
        """See Handle.history."""
        return self._face.wait(self._handle.history())

    def export(self) -> str:
        """See Handle.export."""
        return self._face.wait(self._handle.export())

    def reset(self, to: int | str) -> SyncHandle[T_co]:
        """See Handle.reset."""
        return SyncHandle(self._face, self._face.wait(self._handle.reset(to)))


class SyncRef(Generic[S]):
    """One entity, with methods that wait instead of being awaited."""

    def __init__(self, face: SyncApp, ref: Ref[S]) -> None:
        self._face = face
        self._ref = ref
        self.id = ref.id
        self.key = ref.key

    def __repr__(self) -> str:
        return f"<Sync{repr(self._ref)[1:]}"

    @overload
    def send(
        self,
        handler: Callable[[S, EntityContext, *Ts], Coroutine[Any, Any, object]],
        /,
        *args: *Ts,
        dedup_key: str | None = None,
        connection: Any = None,
    ) -> None: ...

    @overload
    def send(
        self, handler: str, /, *args: object, dedup_key: str | None = None, connection: Any = None, **kwargs: object
    ) -> None: ...

    def send(self, handler: Any, /, *args: object, connection: Any = None, **kwargs: Any) -> None:
        """See Ref.send."""
        self._face._perform("send", connection, functools.partial(self._ref.send, handler, *args, **kwargs))

    @overload
    def ask(
        self,
        handler: Callable[[S, EntityContext, *Ts], Coroutine[Any, Any, R]],
        /,
        *args: *Ts,
        dedup_key: str | None = None,
        timeout: Duration | None = None,
    ) -> R: ...

    @overload
    def ask(
        self,
        handler: str,
        /,
        *args: object,
        dedup_key: str | None = None,
        timeout: Duration | None = None,
        **kwargs: object,
    ) -> Any: ...

    def ask(self, handler: Any, /, *args: object, **kwargs: Any) -> Any:
        """See Ref.ask."""
        return self._face.wait(self._ref.ask(handler, *args, **kwargs))

    @overload
    def query(self, query: Callable[[S, *Ts], R], /, *args: *Ts) -> R: ...

    @overload
    def query(self, query: str, /, *args: object, **kwargs: object) -> Any: ...

    def query(self, query: Any, /, *args: object, **kwargs: Any) -> Any:
        """See Ref.query."""
        return self._face.wait(self._ref.query(query, *args, **kwargs))

    def state(self) -> S:
        """See Ref.state."""
        return self._face.wait(self._ref.state())

    def failed(self) -> Sequence[FailedMessage]:
        """See Ref.failed."""
        return self._face.wait(self._ref.failed())

    def redrive(self, number: int | None = None) -> Sequence[FailedMessage]:
        """See Ref.redrive."""
        return self._face.wait(self._ref.redrive(number))


SyncPublished: TypeAlias = "Published[SyncHandle[Any]]"
"""The answer to a publication, with handles whose methods wait instead of being awaited."""


def wait_for_runs(face: SyncApp, one: Published[Handle[Any]]) -> SyncPublished:
    """The answer to a publication for the sync face."""
    return one.with_runs(tuple(SyncHandle(face, run) for run in one.runs))


class SyncEvents:
    """The events of an app, with methods that wait instead of being awaited."""

    def __init__(self, face: SyncApp, events: Events) -> None:
        self._face = face
        self._events = events

    def list(self, **which: Any) -> Sequence[EventInfo]:
        """See Events.list."""
        return self._face.wait(self._events.list(**which))

    def get(self, event_id: str) -> EventPage:
        """See Events.get."""
        return self._face.wait(self._events.get(event_id))

    def subscriptions(self) -> Sequence[SubscriptionInfo]:
        """See Events.subscriptions."""
        return self._face.wait(self._events.subscriptions())

    def replay(self, event_id: str, **which: Any) -> SyncPublished:
        """See Events.replay."""
        return wait_for_runs(self._face, self._face.wait(self._events.replay(event_id, **which)))

    def backfill(self, activity: str, **which: Any) -> Sequence[str]:
        """See Events.backfill."""
        return self._face.wait(self._events.backfill(activity, **which))

    def pause(self, activity: str, note: str | None = None) -> None:
        """See Events.pause."""
        self._face.wait(self._events.pause(activity, note))

    def resume(self, activity: str, note: str | None = None) -> None:
        """See Events.resume."""
        self._face.wait(self._events.resume(activity, note))


class SyncOutbox:
    """The outbox of an app, with methods that wait instead of being awaited."""

    def __init__(self, face: SyncApp, outbox: Outbox) -> None:
        self._face = face
        self._outbox = outbox

    def add(self, event_type: str, payload: Any = None, *, key: str | None = None, connection: Any) -> None:
        """See Outbox.add."""
        work = functools.partial(self._outbox.add, event_type, payload, key=key)
        self._face._perform("outbox.add", connection, work)

    def init(self, database: str | None = None) -> None:
        """See Outbox.init."""
        self._face.wait(self._outbox.init(database))

    def list(self, **which: Any) -> Sequence[OutboxEvent]:
        """See Outbox.list."""
        return self._face.wait(self._outbox.list(**which))

    def get(self, id: int, *, database: str | None = None) -> OutboxEvent:
        """See Outbox.get."""
        return self._face.wait(self._outbox.get(id, database=database))

    def redrive(self, id: int, *, database: str | None = None) -> None:
        """See Outbox.redrive."""
        self._face.wait(self._outbox.redrive(id, database=database))

    def redrive_failed(self, *, limit: int = 1000, database: str | None = None) -> int:
        """See Outbox.redrive_failed."""
        return self._face.wait(self._outbox.redrive_failed(limit=limit, database=database))

    def redrive_processed(self, since: datetime, *, database: str | None = None) -> int:
        """See Outbox.redrive_processed."""
        return self._face.wait(self._outbox.redrive_processed(since, database=database))

    def find_start(self, key: str, *, database: str | None = None) -> OutboxEvent | None:
        """See Outbox.find_start."""
        return self._face.wait(self._outbox.find_start(key, database=database))

    def purge(self, status: OutboxStatus | str, **which: Any) -> int:
        """See Outbox.purge."""
        return self._face.wait(self._outbox.purge(status, **which))

    def state(self, *, database: str | None = None) -> OutboxState:
        """See Outbox.state."""
        return self._face.wait(self._outbox.state(database=database))


class SyncSchedules:
    """The schedules of an app, with methods that wait instead of being awaited."""

    def __init__(self, face: SyncApp, schedules: Schedules) -> None:
        self._face = face
        self._schedules = schedules

    def put(
        self, id: str, function: Any, *args: object, connection: Any = None, **options: Unpack[ScheduleOptions]
    ) -> ScheduleInfo:
        """See Schedules.put."""
        work = functools.partial(self._schedules.put, id, function, *args, **options)
        return self._face._perform("schedules.put", connection, work)

    def call(self, function: Any, **arguments: Any) -> Call[Any] | WorkflowCall[Any]:
        """See Schedules.call."""
        return self._schedules.call(function, **arguments)

    def edit(
        self, id: str, *, reset: Collection[str] = (), connection: Any = None, **options: Unpack[ScheduleOptions]
    ) -> ScheduleInfo:
        """See Schedules.edit."""
        work = functools.partial(self._schedules.edit, id, reset=reset, **options)
        return self._face._perform("schedules.edit", connection, work)

    def get(self, id: str) -> ScheduleInfo:
        """See Schedules.get."""
        return self._face.wait(self._schedules.get(id))

    def list(self) -> Sequence[ScheduleInfo]:
        """See Schedules.list."""
        return self._face.wait(self._schedules.list())

    def pause(self, id: str, note: str | None = None, *, connection: Any = None) -> None:
        """See Schedules.pause."""
        self._face._perform("schedules.pause", connection, functools.partial(self._schedules.pause, id, note))

    def resume(self, id: str, note: str | None = None, *, connection: Any = None) -> None:
        """See Schedules.resume."""
        self._face._perform("schedules.resume", connection, functools.partial(self._schedules.resume, id, note))

    def delete(self, id: str, *, connection: Any = None) -> None:
        """See Schedules.delete."""
        self._face._perform("schedules.delete", connection, functools.partial(self._schedules.delete, id))

    def trigger(self, id: str, request_key: str | None = None, *, connection: Any = None) -> SyncHandle[Any]:
        """See Schedules.trigger."""
        work = functools.partial(self._schedules.trigger, id, request_key)
        return SyncHandle(self._face, self._face._perform("schedules.trigger", connection, work))

    def runs(self, id: str, *, before: datetime | None = None, limit: int = 50) -> Sequence[ScheduleRun]:
        """See Schedules.runs."""
        return self._face.wait(self._schedules.runs(id, before=before, limit=limit))

    def skipped(self, id: str, *, before: datetime | None = None, limit: int = 50) -> Sequence[SkippedSlots]:
        """See Schedules.skipped."""
        return self._face.wait(self._schedules.skipped(id, before=before, limit=limit))

    def next(self, id: str, count: int = 10) -> Sequence[Occurrence]:
        """See Schedules.next."""
        return self._face.wait(self._schedules.next(id, count))

    def unapplied(self) -> Sequence[Change]:
        """See Schedules.unapplied."""
        return self._face.wait(self._schedules.unapplied())

    def reconcile(self, *, fix: bool = False, prune: bool = False) -> Sequence[Difference]:
        """See Schedules.reconcile."""
        return self._face.wait(self._schedules.reconcile(fix=fix, prune=prune))

    @overload
    def backfill(
        self, id: str, start: datetime, end: datetime, *, dry_run: Literal[True], **options: Unpack[BackfillOptions]
    ) -> BackfillPlan: ...

    @overload
    def backfill(
        self,
        id: str,
        start: datetime,
        end: datetime,
        *,
        dry_run: Literal[False] = False,
        **options: Unpack[BackfillOptions],
    ) -> BackfillInfo: ...

    def backfill(
        self, id: str, start: datetime, end: datetime, *, dry_run: bool = False, **options: Unpack[BackfillOptions]
    ) -> BackfillInfo | BackfillPlan:
        """See Schedules.backfill."""
        if dry_run:
            return self._face.wait(self._schedules.backfill(id, start, end, dry_run=True, **options))
        return self._face.wait(self._schedules.backfill(id, start, end, **options))

    @property
    def backfills(self) -> SyncBackfills:
        """See Schedules.backfills."""
        return SyncBackfills(self._face, self._schedules.backfills)


class SyncBackfills:
    """The backfills of an app, with methods that wait instead of being awaited."""

    def __init__(self, face: SyncApp, backfills: Backfills) -> None:
        self._face = face
        self._backfills = backfills

    def get(self, id: str) -> BackfillInfo:
        """See Backfills.get."""
        return self._face.wait(self._backfills.get(id))

    def list(self, schedule: str | None = None, *, limit: int = 50) -> Sequence[BackfillInfo]:
        """See Backfills.list."""
        return self._face.wait(self._backfills.list(schedule, limit=limit))

    def pause(self, id: str, note: str | None = None) -> BackfillInfo:
        """See Backfills.pause."""
        return self._face.wait(self._backfills.pause(id, note))

    def resume(self, id: str, note: str | None = None) -> BackfillInfo:
        """See Backfills.resume."""
        return self._face.wait(self._backfills.resume(id, note))

    def cancel(self, id: str, note: str | None = None) -> BackfillInfo:
        """See Backfills.cancel."""
        return self._face.wait(self._backfills.cancel(id, note))

    def wait(self, id: str, timeout: Duration | None = None) -> BackfillInfo:
        """See Backfills.wait."""
        return self._face.wait(self._backfills.wait(id, timeout))
