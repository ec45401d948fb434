"""The sync face: the same verbs without await, run by a loop in a thread of its own. No logic here."""

from __future__ import annotations

import asyncio
import atexit
import functools
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack, overload

from semel.contract.records import Execution, Explanation, FailedMessage
from semel.contract.runs import Change
from semel.contract.sweeps import SweepReport
from semel.define.options import StartOptions, TaskOptions, WorkflowOptions
from semel.define.task import Call
from semel.define.workflow import WorkflowCall
from semel.engine.protocol import Replayed
from semel.engine.transaction_guard import forbid_app_in_transaction
from semel.flow.context import Context
from semel.flow.guard import refuse_app
from semel.sync_verbs import SyncEvents, SyncHandle, SyncOutbox, SyncPublished, SyncRef, SyncSchedules, wait_for_runs
from semel.transactional.bound import bound_connection
from semel.transactional.caller_thread import CallerThread

if TYPE_CHECKING:
    from semel.app import App
    from semel.events import AnyEvent, PublishOptions
    from semel.handle import Batch

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")
Ts = TypeVarTuple("Ts")
T_co = TypeVar("T_co", covariant=True)


class SyncApp:
    """`app.sync`: safe to use from any number of threads, also where an event loop runs elsewhere."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def _start_over(self) -> None:
        """Forget the thread and its loop: a forked child has them not. The next call makes new ones."""
        self._lock = threading.Lock()
        self._loop = None

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of this app to its end. If a connection is bound, it may be used in this thread only."""
        try:
            refuse_app("app.sync")
        except BaseException:
            work.close()
            raise
        if bound_connection(self._app) is None:
            return asyncio.run_coroutine_threadsafe(work, self._running()).result()
        return self._serve(work)

    def _serve(self, work: Coroutine[Any, Any, T]) -> T:
        thread = CallerThread()
        with thread.offered():
            running = asyncio.run_coroutine_threadsafe(work, self._running())
        return thread.serve(running)

    def _perform(self, verb: str, connection: Any, work: Callable[..., Coroutine[Any, Any, T]]) -> T:
        """Run a verb of this app that can be part of a transaction, which this thread then serves."""
        connection = self._app._connection(connection, verb)
        if connection is None:
            with self._app.bind(None):  # whoever is to be warned has been
                return self.wait(work(connection=None))
        refuse_app("app.sync")
        return self._serve(work(connection=connection))

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="semel-sync", daemon=True)
                self._thread.start()
                atexit.register(self.close)
            return self._loop

    @overload
    def enqueue(self, call: Call[R], /, **options: Unpack[TaskOptions]) -> SyncHandle[R]: ...

    @overload
    def enqueue(
        self, task: Callable[[*Ts], Coroutine[Any, Any, R]], /, *args: *Ts, **options: Unpack[TaskOptions]
    ) -> SyncHandle[R]: ...

    @overload
    def enqueue(self, task: Callable[[*Ts], R], /, *args: *Ts, **options: Unpack[TaskOptions]) -> SyncHandle[R]: ...

    def enqueue(self, task: Any, /, *args: object, **options: Unpack[TaskOptions]) -> SyncHandle[Any]:
        """See App.enqueue."""
        connection = options.pop("connection", None)
        work = functools.partial(self._app.enqueue, task, *args, **options)
        return SyncHandle(self, self._perform("enqueue", connection, work))

    def enqueue_many(self, calls: Iterable[Batch], **options: Unpack[StartOptions]) -> list[SyncHandle[Any]]:
        """See App.enqueue_many."""
        connection = options.pop("connection", None)
        work = functools.partial(self._app.enqueue_many, calls, **options)
        return [SyncHandle(self, handle) for handle in self._perform("enqueue_many", connection, work)]

    @overload
    def start_workflow(
        self,
        workflow: Callable[[Context, *Ts], Coroutine[Any, Any, R]],
        /,
        *args: *Ts,
        **options: Unpack[WorkflowOptions],
    ) -> SyncHandle[R]: ...

    @overload
    def start_workflow(self, call: WorkflowCall[R], /, **options: Unpack[WorkflowOptions]) -> SyncHandle[R]: ...

    @overload
    def start_workflow(
        self, name: str, /, *args: object, task_queue: str, **options: Unpack[WorkflowOptions]
    ) -> SyncHandle[Any]: ...

    def start_workflow(
        self, workflow: Any, /, *args: object, connection: Any = None, **options: Any
    ) -> SyncHandle[Any]:
        """See App.start_workflow."""
        work = functools.partial(self._app.start_workflow, workflow, *args, **options)
        return SyncHandle(self, self._perform("start_workflow", connection, work))

    def entity(self, cls: type[S], id: str, /) -> SyncRef[S]:
        """See App.entity."""
        return SyncRef(self, self._app.entity(cls, id))

    def find(self, key: str, *, kind: str | None = None) -> SyncHandle[Any] | None:
        """See App.find."""
        handle = self.wait(self._app.find(key, kind=kind))
        return None if handle is None else SyncHandle(self, handle)

    def get(self, id: str) -> SyncHandle[Any]:
        """See App.get."""
        return SyncHandle(self, self.wait(self._app.get(id)))

    def list(self, **which: Any) -> Sequence[Execution]:
        """See App.list."""
        return self.wait(self._app.list(**which))

    def redrive(self, id: str) -> SyncHandle[Any]:
        """See App.redrive."""
        return SyncHandle(self, self.wait(self._app.redrive(id)))

    def replay(self, **which: Any) -> Sequence[Replayed]:
        """See App.replay."""
        return self.wait(self._app.replay(**which))

    def failed_messages(self, key: str | None = None) -> Sequence[FailedMessage]:
        """See App.failed_messages."""
        return self.wait(self._app.failed_messages(key))

    def redrive_messages(self, key: str, number: int | None = None) -> Sequence[FailedMessage]:
        """See App.redrive_messages."""
        return self.wait(self._app.redrive_messages(key, number))

    @property
    def schedules(self) -> SyncSchedules:
        """See App.schedules."""
        return SyncSchedules(self, self._app.schedules)

    @property
    def events(self) -> SyncEvents:
        """See App.events."""
        return SyncEvents(self, self._app.events)

    @property
    def outbox(self) -> SyncOutbox:
        """See App.outbox."""
        return SyncOutbox(self, self._app.outbox)

    def publish(self, event: AnyEvent, **options: Unpack[PublishOptions]) -> SyncPublished:
        """See App.publish."""
        connection = options.pop("connection", None)
        work = functools.partial(self._app.publish, event, **options)
        return wait_for_runs(self, self._perform("publish", connection, work))

    def publish_many(self, events: Iterable[AnyEvent], **options: Unpack[PublishOptions]) -> Sequence[SyncPublished]:
        """See App.publish_many."""
        connection = options.pop("connection", None)
        work = functools.partial(self._app.publish_many, events, **options)
        return [wait_for_runs(self, one) for one in self._perform("publish_many", connection, work)]

    def apply(self, *, prune: bool = False, take_over: bool = False, dry_run: bool = False) -> Sequence[Change]:
        """See App.apply."""
        return self.wait(self._app.apply(prune=prune, take_over=take_over, dry_run=dry_run))

    def sweep(self, name: str, *, dry_run: bool = False) -> SweepReport:
        """See App.sweep."""
        return self.wait(self._app.sweep(name, dry_run=dry_run))

    def explain(self, key: str, *, kind: str | None = None) -> Explanation:
        """See App.explain."""
        return self.wait(self._app.explain(key, kind=kind))

    def migrate(self) -> Sequence[str]:
        """See App.migrate."""
        return self.wait(self._app.migrate())

    def close(self) -> None:
        """Write down what is in memory and end the thread. Called at exit by itself."""
        forbid_app_in_transaction()
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._app.close(), loop).result(10)
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(10)
            loop.close()
            atexit.unregister(self.close)
