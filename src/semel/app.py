"""App: the tasks you define and the one engine they run on. The composition root."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack, overload
from weakref import WeakKeyDictionary

from semel.contract.durations import Duration
from semel.contract.keys import ID_LENGTH, KINDS, check_attribute, check_key, check_kind, check_name, check_queues
from semel.contract.lifecycle import Status
from semel.contract.rates import Rate
from semel.contract.records import Execution, Explanation, FailedMessage, Undelivered
from semel.contract.words import explain_text
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
from semel.definitions import Definitions
from semel.engine.ids import new_id
from semel.engine.observed import observed
from semel.engine.protocol import (
    Engine,
    Filter,
    Finding,
    Observer,
    QueueState,
    Replayed,
    Waiting,
    Worker,
    WorkerState,
)
from semel.engine.requests import foreign_request, request, workflow_request
from semel.engine.served_functions import describe_unserved, is_unserved, unserved
from semel.engine.start_request import StartRequest
from semel.engine.transaction_guard import forbid_app_in_transaction
from semel.engines.factory import Opener
from semel.engines.temporal.url import located
from semel.entity_ref import Ref, find_failed_messages, send_failed_messages_again
from semel.errors import EngineError, InvalidValue, NotFound, NotRedrivable
from semel.flow import history_file
from semel.flow.context import Context
from semel.flow.guard import refuse_app
from semel.flow.replay import try_replay
from semel.handle import Batch, Handle, handle_of, refusal
from semel.replay import own_flows, without_code
from semel.runtime.events import Events
from semel.runtime.failure_hook import OnFailure
from semel.runtime.loop_watch import LoopWatch
from semel.settings import load, read_worker

if TYPE_CHECKING:
    from temporalio.client import Interceptor
    from temporalio.converter import PayloadCodec

    from semel.sync import SyncApp

R = TypeVar("R")
Ts = TypeVarTuple("Ts")
S = TypeVar("S")


class App(Definitions):
    """Tasks, workflows, and where they run.

    `url` is `sqlite:///file.db`, `sqlite:///:memory:`, `postgresql://…` or `temporal://host:7233/namespace`; without it
    SEMEL_URL, then `semel.toml`, then `sqlite:///semel.db`. SQLite makes its tables on first use; the others want
    `semel migrate`, or `auto_migrate=True`. `records` is the database beside a Temporal cluster, for what the cluster
    does not keep; `codec` encrypts what goes there, and `interceptors` are Temporal's. `on_failure` is called with a
    `Failure` for each task, workflow or message of an entity that fails in a worker of this app: a plain function, in a
    thread, or an async one. `observer` hears of each call and of what workers do; `clock` is for tests.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        records: str | None = None,
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
        settings = located(settings, namespace)
        check_name(settings.namespace, "namespace")
        self.settings = settings
        self._observer = observer
        self._events = Events(observer, on_failure)
        self._opener = Opener(settings, self.tasks, auto_migrate, clock, codec, interceptors, self._events)
        self._engines: WeakKeyDictionary[asyncio.AbstractEventLoop, Engine] = WeakKeyDictionary()
        self._last: tuple[asyncio.AbstractEventLoop, Engine] | tuple[None, None] = (None, None)
        self._unconfigured = bool(settings.queues)

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
            engine = self._opener.open(self.settings.namespace)
            if self._observer is not None:
                engine = observed(engine, self._observer)
            self._engines[loop] = engine
        self._last = (loop, engine)
        return engine

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
        self._refuse_foreign(task)
        return await self._admit(request(self.settings, task, args, by_name, **options), options)

    async def enqueue_many(self, calls: Iterable[Batch], **options: Unpack[StartOptions]) -> list[Handle[Any]]:
        """Many at once: `charge.call(…)`, or pairs `(charge.call(…), task_id)`. Handles come back in order.

        Everything is validated before anything is written; a thousand share a commit. A KeyConflict, or with
        `on_duplicate="raise"` a duplicate, is raised after the others are in.
        """
        refuse_unknown("enqueue_many", options, StartOptions)
        starts = []
        for entry in calls:
            call, key = entry if isinstance(entry, tuple) else (entry, None)
            self._refuse_foreign(call)
            starts.append(request(self.settings, call, (), {}, task_id=key, **options))
        if self._unconfigured:
            await self._configure()
        admissions = await self.engine.start_many(starts)
        on_duplicate = options.get("on_duplicate", "return")
        handles = []
        for start, admission in zip(starts, admissions, strict=True):
            handle = handle_of(self, start, admission, on_duplicate)
            if handle is None:
                raise await refusal(self, start, admission)
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

        The id is a key like any other: a duplicate gets a handle to the same execution, or an error with
        `on_duplicate="raise"`; the same id with other input is a KeyConflict. A name instead of a function starts a
        workflow of a Temporal cluster that other workers run, on their `task_queue`. Arguments are given by position,
        or by name with `process_order.call(…)`.
        """
        refuse_missing("start_workflow", options)
        options, by_name = split_options(options, WorkflowOptions)
        if task_queue is not None:
            by_name = {**by_name, "task_queue": task_queue}
        if isinstance(workflow, str):
            able = self.engine.capabilities
            start = foreign_request(self.settings, able, workflow, args, by_name, **options)
        else:
            self._refuse_foreign(workflow)
            start = workflow_request(self.settings, workflow, args, by_name, **options)
        return await self._admit(start, options)

    async def _admit(self, start: StartRequest, options: StartOptions) -> Handle[Any]:
        if self._unconfigured:
            await self._configure()
        admission = await self.engine.start(start)
        handle = handle_of(self, start, admission, options.get("on_duplicate", "return"))
        if handle is None:
            raise await refusal(self, start, admission)
        return handle

    def _refuse_foreign(self, asked: object) -> None:
        """InvalidValue: a function of another app. What is no function at all is refused by the request."""
        one = asked.task if isinstance(asked, Call) else asked.workflow if isinstance(asked, WorkflowCall) else asked
        if isinstance(one, Task) or isinstance(one, Workflow):  # noqa: SIM101, one union a call costs more than both
            self.tasks.refuse_foreign(one)

    def _ref(self, entity: Entity[S], id: str) -> Ref[S]:
        return Ref(self, entity, id)

    async def find(self, key: str, *, kind: str | None = None) -> Handle[Any] | None:
        """A handle to the newest execution under a key, or None; of a task, else of a workflow, else of an entity."""
        key = check_key(key, "key")
        for one in KINDS if kind is None else (check_kind(kind),):
            execution = await self.engine.find(one, key)
            if execution is not None:
                return self._handle(execution)
        return None

    async def get(self, id: str) -> Handle[Any]:
        """A handle by execution id, or by the beginning of one. NotFound if there is none."""
        execution = await self.engine.get(check_key(id, "id", ID_LENGTH))
        if execution is None:
            raise NotFound(
                f"no execution {id!r}, or more than one whose id begins so, in namespace "
                f"{self.settings.namespace!r}. See: semel list"
            )
        return self._handle(execution)

    def _handle(self, execution: Execution) -> Handle[Any]:
        return Handle(self, execution.id, execution.name, execution.key, duplicate=False)

    async def list(
        self,
        *,
        status: Status | str | None = None,
        queue: str | None = None,
        name: str | None = None,
        kind: str | None = None,
        attributes: Mapping[str, str] | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[Execution]:
        """Executions, newest first; for the next page pass the last id as `before`.

        `attributes={"scope": "eu"}` finds workflows by their search attributes.
        """
        if not 1 <= limit <= 1000:
            raise InvalidValue(f"limit={limit!r}: give a whole number from 1 to 1000, and page with before=….")
        try:
            wanted = None if status is None else Status(status)
        except ValueError:
            raise InvalidValue(f"status={status!r}: there are {', '.join(Status)}.") from None
        words = dict(check_attribute(word, value) for word, value in (attributes or {}).items())
        kind = None if kind is None else check_kind(kind)
        return await self.engine.executions(Filter(wanted, queue, name, kind, before, limit, words))

    async def replay(
        self,
        *,
        status: Status | str | None = None,
        name: str | None = None,
        since: Duration | None = None,
        limit: int = 1000,
        progress: Callable[[int, int], None] = lambda done, of: None,
        missing: bool = True,
    ) -> Sequence[Replayed]:
        """Run the code of this app against what its workflows and entities have recorded: would they go on?

        The newest `limit` of them, begun within `since`. Nothing is written, and no step or task runs. With `missing`,
        the answer also names what waits for a function that this app does not have: one task, workflow or entity of
        each function.
        """
        found = await own_flows(self, status, name, since, limit)
        answers = []
        for done, execution in enumerate(found, 1):
            replayed = await self.engine.replay(execution.id, self.tasks, self.settings)
            if replayed is not None:
                answers.append(replayed)
            progress(done, len(found))
        return [*answers, *(await without_code(self, name) if missing else ())]

    def replay_history(self, text: str | bytes) -> Replayed:
        """The same for one history that `handle.export()` or `semel workflows export` made. Needs no database.

        For tests: `assert app.replay_history(path.read_text()).ok`. InvalidValue: the text is no history.
        """
        return try_replay(self.tasks, self.settings, history_file.load(text))

    async def redrive(self, id: str) -> Handle[Any]:
        """Run a failed, cancelled or timed-out task or workflow again, as a new execution; the old one stays."""
        old = await (await self.get(id)).describe()
        if old.kind == "entity":
            raise NotRedrivable(
                f"{old.key!r} is an entity: its next message begins a new one, which knows its "
                f"keys. Messages that failed are sent again with: semel entities redrive {old.key}"
            )
        redriven = await self.engine.redrive(old.id, new_id())
        if redriven is None:
            raise NotRedrivable(
                f"execution {old.id} is {old.status}: only a failed, cancelled or timed-out one that is the newest "
                "under its key and within its retention can be run again."
            )
        return Handle(self, redriven, old.name, old.key, duplicate=False)

    async def explain(self, key: str, *, kind: str | None = None) -> Explanation:
        """Everything known of a key, also in words: `print(await app.explain("order-1"))`.

        Tasks, workflows and entities do not share keys: without a `kind` it is the first of these that is there, and
        `other_kinds` names the others.
        """
        key = check_key(key, "key")
        if kind is not None:
            return await self._explain(check_kind(kind), key)
        found = [await self._explain(one, key) for one in KINDS]
        known = [one for one in found if one.executions] or found[:1]
        return replace(known[0], other_kinds=tuple(one.kind for one in known[1:]))

    async def _explain(self, kind: str, key: str) -> Explanation:
        executions, suppressed, now = await self.engine.explain(kind, key)
        found = Undelivered()
        if kind != "task" and executions:
            found = await self.engine.undelivered(kind, key)
        text = explain_text(key, executions, suppressed, now, await self._why_it_waits(executions), found)
        return Explanation(key, kind, tuple(executions), tuple(suppressed or ()), now, text, found)

    async def failed_messages(self, key: str | None = None) -> Sequence[FailedMessage]:
        """The messages of an entity (`Class/id`), or of all that live, that failed and were not sent again.

        Newest first, at most 100, for 30 days; of all entities, those of the 100 that failed last (on Temporal: that
        were started last). NotFound if there is no such entity.
        """
        return await find_failed_messages(self, key)

    async def redrive_messages(self, key: str, number: int | None = None) -> Sequence[FailedMessage]:
        """Send messages of an entity that failed again, oldest first, each under its own key; what was sent.

        All of them whose arguments were kept, or the one with this number: NotRedrivable if that is not there.
        """
        return await send_failed_messages_again(self, key, number)

    async def _why_it_waits(self, executions: Sequence[Execution]) -> str:
        newest = executions[0] if executions else None
        if newest is None or newest.status not in (Status.PENDING, Status.WAITING):
            return ""
        try:
            workers = await self.engine.workers()
        except EngineError:  # a server that keeps no list of workers
            return ""
        missing = is_unserved(workers, newest.name, newest.queue)
        return describe_unserved(newest.kind, newest.name, newest.queue) if missing else ""

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
    ) -> AsyncIterator[Worker]:
        """A worker in this process: `async with app.worker(): …`. Leaving the block drains it."""
        values = {
            "concurrency": concurrency,
            "lease": lease,
            "grace": grace,
            "clean_every": clean_every,
            "cached_workflows": cached_workflows,
            "decode_timeout": decode_timeout,
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
        return await self.engine.doctor()

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
