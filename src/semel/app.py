"""App: the tasks you define and the one engine they run on. The composition root."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack, cast, overload
from weakref import WeakKeyDictionary, WeakSet

from semel.contract.durations import Duration
from semel.contract.keys import check_name, check_queues
from semel.contract.rates import Rate
from semel.define.entity import Entity
from semel.define.options import (
    StartOptions,
    TaskOptions,
    WorkflowOptions,
    refuse_missing,
    refuse_unknown,
    split_options,
)
from semel.define.task import Call, Task
from semel.define.workflow import Workflow, WorkflowCall
from semel.engine.bounded import bounded
from semel.engine.observed import Observers, observed
from semel.engine.protocol import (
    Engine,
    EngineVerbs,
    Finding,
    Observer,
    QueueState,
    Waiting,
    Worker,
    WorkerState,
)
from semel.engine.requests import foreign_request, request, workflow_request
from semel.engine.served_functions import unserved
from semel.engine.start_request import StartRequest
from semel.engine.transaction_guard import forbid_app_in_transaction
from semel.engines.factory import Opener
from semel.engines.temporal.url import located
from semel.entity_ref import Ref
from semel.errors import ConfigError
from semel.flow.context import Context
from semel.flow.guard import refuse_app
from semel.gauges import GaugeSource, examine_lags
from semel.handle import Batch, Handle, handle_of, refusal, write_starts
from semel.inspection import Inspection
from semel.runtime.events import Events
from semel.runtime.failure_hook import OnFailure
from semel.runtime.loop_watch import LoopWatch
from semel.settings import load, read_worker
from semel.sweepers import Sweeping
from semel.transactional.outbox.verbs import OutboxVerbs
from semel.transactions import Transactions

if TYPE_CHECKING:
    from temporalio.client import Interceptor
    from temporalio.converter import PayloadCodec

    from semel.sync import SyncApp

R = TypeVar("R")
Ts = TypeVarTuple("Ts")
S = TypeVar("S")
_apps: WeakSet[App] = WeakSet()


class App(Inspection, Sweeping, Transactions):
    """Tasks, workflows, and where they run.

    `url` is `sqlite:///file.db`, `sqlite:///:memory:`, `postgresql://…` or `temporal://host:7233/namespace`; without it
    SEMEL_URL, then `semel.toml`, then `sqlite:///semel.db`. SQLite makes its tables on first use; the others want
    `semel migrate`, or `auto_migrate=True`. `records` is the database beside a Temporal cluster, for what the cluster
    does not keep; `codec` encrypts what goes there, and `interceptors` are Temporal's. `outbox` is the database whose
    outbox `relay()` serves. `on_failure` is called with a `Failure` for each task, workflow or message of an entity
    that fails in a worker of this app: a plain function, in a thread, or an async one. `observer` hears of each call
    and of what workers do; `clock` is for tests.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        records: str | None = None,
        outbox: str | None = None,
        config: str | os.PathLike[str] | None = "semel.toml",
        auto_migrate: bool | None = None,
        codec: PayloadCodec | None = None,
        interceptors: Sequence[Interceptor] = (),
        observer: Observer | None = None,
        on_failure: OnFailure | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__()
        settings = load(config)
        if url is not None:  # records that are set elsewhere belong to a cluster that is set elsewhere
            kept = settings.records if url.startswith("temporal:") else None
            settings = replace(settings, url=url, records=kept)
        if namespace is not None:
            settings = replace(settings, namespace=namespace)
        if records is not None:
            settings = replace(settings, records=records)
        if outbox is not None:
            settings = replace(settings, outbox=outbox)
        settings = located(settings, namespace)
        check_name(settings.namespace, "namespace")
        self.settings = settings
        self._observer = observer
        self._events = Events(observer, on_failure)
        self._opener = Opener(settings, self.tasks, auto_migrate, clock, codec, interceptors, self._events)
        self._engines: WeakKeyDictionary[asyncio.AbstractEventLoop, Engine] = WeakKeyDictionary()
        self._last: tuple[asyncio.AbstractEventLoop, Engine] | tuple[None, None] = (None, None)
        self._unconfigured = bool(settings.queues)
        self.gauge_sources: list[GaugeSource] = []
        """What measures something besides queues, schedules, sweepers and events, for `semel.metrics`."""
        _apps.add(self)

    def _start_over(self) -> None:
        """In a forked child: open everything anew. What the parent had open is the parent's, and is never touched."""
        self._of_parent = (self._engines, self._last, self._opener)
        self._engines, self._last, self._opener = WeakKeyDictionary(), (None, None), self._opener.copy()
        if "sync" in self.__dict__:
            self.sync._start_over()

    def add_observer(self, observer: Observer) -> None:
        """Have an observer told of what happens, besides those that there are. Before the app is used."""
        if self._engines:
            raise ConfigError(
                "an observer is added before the app is used: give it to App(observer=…), or add it when your program "
                "starts."
            )
        self._observer = observer if self._observer is None else Observers(self._observer, observer)
        self._events.set_observer(self._observer)

    @property
    def engine(self) -> Engine:
        """The engine of the running event loop; opened on first use."""
        forbid_app_in_transaction()
        loop = asyncio.get_running_loop()
        if loop is self._last[0]:
            return self._last[1]
        engine = self._engines.get(loop)
        if engine is None:
            refuse_app("app")
            opened = self._opener.open(self.settings.namespace)
            engine = bounded(opened, self.settings.call_timeout.total_seconds())
            if self._observer is not None:
                engine = observed(engine, self._observer)
            self._engines[loop] = engine
        self._last = (loop, engine)
        return engine

    def _running_loop(self) -> asyncio.AbstractEventLoop | None:
        """An event loop that runs and uses this app; for what is asked from other threads."""
        return next((loop for loop in list(self._engines) if loop.is_running()), None)

    @cached_property
    def sync(self) -> SyncApp:
        """The same verbs without await, for scripts, Flask and Django."""
        from semel.sync import SyncApp  # a thread and a loop of its own: only for those who ask

        return SyncApp(self)

    @overload
    async def enqueue(self, call: Call[R], /, **options: Unpack[TaskOptions]) -> Handle[R]: ...

    @overload
    async def enqueue(
        self, task: Callable[[*Ts], Coroutine[Any, Any, R]], /, *args: *Ts, **options: Unpack[TaskOptions]
    ) -> Handle[R]: ...

    @overload
    async def enqueue(self, task: Callable[[*Ts], R], /, *args: *Ts, **options: Unpack[TaskOptions]) -> Handle[R]: ...

    async def enqueue(self, task: Any, /, *args: object, **options: Unpack[TaskOptions]) -> Handle[Any]:
        """Ask for one execution. When this returns, it is committed.

        Arguments are given by position, options by keyword; `charge.call(…)` takes arguments by name. With a `task_id`
        it runs once: a duplicate gets a handle to the same execution (`handle.duplicate` is True), or with
        `on_duplicate="raise"` TaskAlreadyExists or TaskAlreadyCompleted. `reuse` says which finished executions give
        their key back. Same key, other input: KeyConflict.
        """
        options, by_name = split_options(options, TaskOptions)
        connection = self._connection(options.pop("connection", None), "enqueue")
        self._refuse_foreign(task)
        start = request(self.settings, task, args, by_name, **cast("dict[str, Any]", options))
        return await self._admit(start, options, connection)

    async def enqueue_many(self, calls: Iterable[Batch], **options: Unpack[StartOptions]) -> list[Handle[Any]]:
        """Many at once: `charge.call(…)`, or pairs `(charge.call(…), task_id)`. Handles come back in order.

        Everything is validated before anything is written; a thousand share a commit. A KeyConflict, or with
        `on_duplicate="raise"` a duplicate, is raised after the others are in.
        """
        refuse_unknown("enqueue_many", options, StartOptions)
        connection = self._connection(options.pop("connection", None), "enqueue_many")
        starts = []
        for entry in calls:
            call, key = entry if isinstance(entry, tuple) else (entry, None)
            self._refuse_foreign(call)
            starts.append(request(self.settings, call, (), {}, task_id=key, **cast("dict[str, Any]", options)))
        verbs = await self._ready_verbs(connection)
        on_duplicate = options.get("on_duplicate", "return")
        if isinstance(verbs, OutboxVerbs):
            return await write_starts(self, verbs, starts, on_duplicate)
        admissions = await verbs.start_many(starts)
        handles = []
        for start, admission in zip(starts, admissions, strict=True):
            handle = handle_of(self, start, admission, on_duplicate, connection is not None)
            if handle is None:
                raise await refusal(self, verbs, start, admission)
            handles.append(handle)
        return handles

    @overload
    async def start_workflow(
        self,
        workflow: Callable[[Context, *Ts], Coroutine[Any, Any, R]],
        /,
        *args: *Ts,
        **options: Unpack[WorkflowOptions],
    ) -> Handle[R]: ...

    @overload
    async def start_workflow(self, call: WorkflowCall[R], /, **options: Unpack[WorkflowOptions]) -> Handle[R]: ...

    @overload
    async def start_workflow(
        self, name: str, /, *args: object, task_queue: str, **options: Unpack[WorkflowOptions]
    ) -> Handle[Any]: ...

    async def start_workflow(
        self, workflow: Any, /, *args: object, task_queue: str | None = None, **options: Unpack[WorkflowOptions]
    ) -> Handle[Any]:
        """Start a workflow under its id. When this returns, it is committed.

        The id is a key like any other: a duplicate gets a handle to the same execution, or with `on_duplicate="raise"`
        WorkflowAlreadyExists or WorkflowAlreadyCompleted; the same id with other input is a KeyConflict.
        A name instead of a function starts a workflow of a Temporal cluster that other workers run, on their
        `task_queue`. Arguments are given by position, or by name with `process_order.call(…)`.
        """
        refuse_missing("start_workflow", options)
        options, by_name = split_options(options, WorkflowOptions)
        connection = self._connection(options.pop("connection", None), "start_workflow")
        if task_queue is not None:
            by_name = {**by_name, "task_queue": task_queue}
        if isinstance(workflow, str):
            able = self.engine.capabilities
            start = foreign_request(self.settings, able, workflow, args, by_name, **cast("dict[str, Any]", options))
        else:
            self._refuse_foreign(workflow)
            start = workflow_request(self.settings, workflow, args, by_name, **cast("dict[str, Any]", options))
        return await self._admit(start, options, connection)

    async def _admit(self, start: StartRequest, options: StartOptions, connection: Any) -> Handle[Any]:
        on_duplicate = options.get("on_duplicate", "return")
        if connection is None and not self._unconfigured:
            verbs: EngineVerbs | OutboxVerbs = self.engine
        else:
            verbs = await self._ready_verbs(connection)
        if isinstance(verbs, OutboxVerbs):
            return (await write_starts(self, verbs, [start], on_duplicate))[0]
        admission = await verbs.start(start)
        handle = handle_of(self, start, admission, on_duplicate, connection is not None)
        if handle is None:
            raise await refusal(self, verbs, start, admission)
        return handle

    async def _ready_verbs(self, connection: Any) -> EngineVerbs | OutboxVerbs:
        # Settings of queues are for workers, which write them as well: a transaction of the caller's goes without.
        if self._unconfigured and connection is None:
            await self._configure()
        return await self._verbs(connection)

    def _refuse_foreign(self, asked: object) -> None:
        """InvalidValue: a function of another app. What is no function at all is refused by the request."""
        one = asked.task if isinstance(asked, Call) else asked.workflow if isinstance(asked, WorkflowCall) else asked
        if isinstance(one, Task) or isinstance(one, Workflow):  # noqa: SIM101, one union a call costs more than both
            self.tasks.refuse_foreign(one)

    def _ref(self, entity: Entity[S], id: str) -> Ref[S]:
        return Ref(self, entity, id)

    def configure_queue(
        self,
        name: str,
        *,
        retention: Duration | None = None,
        dedup_window: Duration | None = None,
        rate_limit: str | Rate | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Settings of a queue, on top of semel.toml. Limits hold over all workers of the cluster."""
        values = {
            "retention": retention,
            "dedup_window": dedup_window,
            "rate_limit": rate_limit,
            "concurrency": concurrency,
        }
        self.settings = self.settings.with_queue(name, values)
        self._unconfigured = True

    async def _configure(self) -> None:
        await self.engine.configure(self.settings.queues)
        self._unconfigured = False

    @asynccontextmanager
    async def worker(
        self,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        lease: Duration | None = None,
        grace: Duration | None = None,
        clean_every: Duration | None = None,
        cached_workflows: int | None = None,
        decode_timeout: Duration | None = None,
        schedules: bool | None = None,
    ) -> AsyncIterator[Worker]:
        """A worker in this process: `async with app.worker(): …`. Leaving the block drains it."""
        values = {
            "concurrency": concurrency,
            "lease": lease,
            "grace": grace,
            "clean_every": clean_every,
            "cached_workflows": cached_workflows,
            "decode_timeout": decode_timeout,
            "schedules": schedules,
        }
        settings = read_worker(values, self.settings.worker)
        check_queues(queues)
        if self._unconfigured:
            await self._configure()
        worker = self.engine.worker(self.tasks, queues, replace(self.settings, worker=settings))
        await worker.start()
        watch = LoopWatch(self._events)
        watch.start()
        try:
            await self.schedules.warn_unapplied()
            yield worker
        finally:
            watch.stop()
            await worker.stop()
            await self._events.drain()

    async def queues(self) -> Sequence[QueueState]:
        """Queues, what is in them, and their limits."""
        if self._unconfigured:
            await self._configure()
        return await self.engine.queues()

    async def workers(self) -> Sequence[WorkerState]:
        """Workers that hold a lease."""
        return await self.engine.workers()

    async def unserved(self) -> Sequence[Waiting]:
        """Work that waits although workers run, since none of them has its function: by function and queue.

        Its function was renamed or removed, or its workers are not started.
        """
        return unserved(await self.engine.waiting(), await self.engine.workers())

    async def clean(self) -> int:
        """Drop what is past its retention now, as workers do by themselves; how many were looked at."""
        return await self.engine.clean()

    async def migrate(self, progress: Callable[[str], None] = lambda _: None) -> Sequence[str]:
        """Make or update the tables; the migrations that were applied."""
        return await self.engine.migrate(progress)

    async def doctor(self) -> Sequence[Finding]:
        """Look at everything that could be wrong."""
        found = await self.engine.doctor()
        if any(one.what == "clock" for one in found):  # else there are no tables, and none shall be made
            found = [*found, *await examine_lags(self.engine)]
        if any(one.what == "schedules" and one.detail != "none" for one in found):
            found = [*found, *await self.sweepers.examine()]
        return found if self.settings.outbox is None else [*found, *await self.outbox.doctor()]

    async def close(self) -> None:
        """Write down what is in memory and let go of the database."""
        forbid_app_in_transaction()
        engine = self._engines.pop(asyncio.get_running_loop(), None)
        self._last = (None, None)
        if engine is not None:
            await engine.close()
        if not self._engines:
            await self._opener.close()

    async def __aenter__(self) -> App:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _start_over_in_child() -> None:
    """A forked child has neither the threads nor the connections of its parent."""
    for app in list(_apps):
        app._start_over()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_over_in_child)
