"""The sync face: the same verbs without await, run by a loop in a thread of its own. No logic here."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple, Unpack, overload

from semel.contract.durations import Duration
from semel.contract.lifecycle import Status
from semel.contract.records import Execution, Explanation, FailedMessage
from semel.define.options import StartOptions, TaskOptions, WorkflowOptions
from semel.define.task import Call
from semel.define.workflow import WorkflowCall
from semel.engine.protocol import Replayed
from semel.engine.transaction_guard import forbid_app_in_transaction
from semel.flow.context import Context, EntityContext
from semel.flow.guard import refuse_app
from semel.flow.history import Event
from semel.handle import Handle

if TYPE_CHECKING:
    from semel.app import App
    from semel.entity_ref import Ref
    from semel.handle import Batch

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
        self.id = handle.id
        self.key = handle.key
        self.name = handle.name
        self.duplicate = handle.duplicate

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

    def cancel(self) -> Status:
        """See Handle.cancel."""
        return self._face.wait(self._handle.cancel())

    def signal(self, name: str, payload: Any = None, *, dedup_key: str | None = None) -> None:
        """See Handle.signal."""
        self._face.wait(self._handle.signal(name, payload, dedup_key=dedup_key))

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
    ) -> None: ...

    @overload
    def send(self, handler: str, /, *args: object, dedup_key: str | None = None, **kwargs: object) -> None: ...

    def send(self, handler: Any, /, *args: object, **kwargs: Any) -> None:
        """See Ref.send."""
        self._face.wait(self._ref.send(handler, *args, **kwargs))

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


class SyncApp:
    """`app.sync`: safe to use from any number of threads, also where an event loop runs elsewhere."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of this app to its end."""
        try:
            refuse_app("app.sync")
        except BaseException:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._running()).result()

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
        return SyncHandle(self, self.wait(self._app.enqueue(task, *args, **options)))

    def enqueue_many(self, calls: Iterable[Batch], **options: Unpack[StartOptions]) -> list[SyncHandle[Any]]:
        """See App.enqueue_many."""
        return [SyncHandle(self, handle) for handle in self.wait(self._app.enqueue_many(calls, **options))]

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

    def start_workflow(self, workflow: Any, /, *args: object, **options: Any) -> SyncHandle[Any]:
        """See App.start_workflow."""
        return SyncHandle(self, self.wait(self._app.start_workflow(workflow, *args, **options)))

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
