"""The decorators of an app: what makes a function a task or a workflow."""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, dataclass_transform, overload

from semel.contract.durations import Duration
from semel.contract.rates import Rate
from semel.contract.retry import Retry
from semel.define.entity import Entity
from semel.define.options import KeyScope
from semel.define.registry import Registry
from semel.define.task import AsyncTask, SyncTask, Task
from semel.define.workflow import Workflow
from semel.flow.context import Context

if TYPE_CHECKING:
    from semel.entity_ref import Ref

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
_NO_ID: Final = object()
"""None is what a missing id looks like, and must not be taken for none given."""


class Decorator(Protocol):
    """What `@app.task(...)` gives: makes a sync or an async function a task."""

    @overload  # what is async is also a plain callable, and the first that fits counts
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...


class WorkflowDecorator(Protocol):
    """What `@app.workflow(...)` gives: makes an async function a workflow."""

    def __call__(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...


class Definitions(ABC):
    """What an app knows by name."""

    def __init__(self) -> None:
        self.tasks = Registry()
        """Tasks and workflows, by name."""

    @overload  # as in Decorator
    def task(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def task(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...

    @overload
    def task(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        retry: Retry | int | None = None,
        timeout: Duration | None = None,
        priority: int = 0,
        retention: Duration | None = None,
        dedup_window: Duration | None = None,
        rate_limit: str | Rate | None = None,
        concurrency_key: str | Callable[..., str] | None = None,
        key_scope: KeyScope = "namespace",
    ) -> Decorator: ...

    def task(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        retry: Retry | int | None = None,
        timeout: Duration | None = None,
        priority: int = 0,
        retention: Duration | None = None,
        dedup_window: Duration | None = None,
        rate_limit: str | Rate | None = None,
        concurrency_key: str | Callable[..., str] | None = None,
        key_scope: KeyScope = "namespace",
    ) -> Any:
        """Make a function a task; it stays callable as a plain function.

        `retry` is a policy or a number of attempts, `timeout` is for each attempt, a higher `priority` runs
        first, `retention` and `dedup_window` override the queue's, `rate_limit` holds over all workers, and
        calls that share a `concurrency_key` ("customer:{customer_id}", or a function) run one at a time. With
        `key_scope="function"` or `"queue"` a `task_id` counts for this function, or within the queue, alone.
        """

        def decorate(function: Callable[..., Any]) -> Task[..., Any]:
            form: type[Task[..., Any]] = AsyncTask if inspect.iscoroutinefunction(function) else SyncTask
            task = form(
                function,
                name=name,
                queue=queue,
                retry=retry,
                timeout=timeout,
                priority=priority,
                retention=retention,
                dedup_window=dedup_window,
                rate_limit=rate_limit,
                concurrency_key=concurrency_key,
                key_scope=key_scope,
            )
            self.tasks.add(task)
            return task

        return decorate if fn is None else decorate(fn)

    @overload
    def workflow(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...

    @overload
    def workflow(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        timeout: Duration | None = None,
        retention: Duration | None = None,
        dedup_window: Duration | None = None,
        version: int = 1,
    ) -> WorkflowDecorator: ...

    def workflow(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        timeout: Duration | None = None,
        retention: Duration | None = None,
        dedup_window: Duration | None = None,
        version: int = 1,
    ) -> Any:
        """Make an async function a workflow: `async def process_order(ctx: semel.Context, order_id: str)`.

        `timeout` is for the whole of it. Two functions of one name and different `version`s may live side by side: what
        began with a version ends with it, and new ones begin with the highest.
        """

        def decorate(function: Callable[..., Any]) -> Workflow[..., Any]:
            workflow: Workflow[..., Any] = Workflow(
                function,
                name=name,
                queue=queue,
                priority=priority,
                timeout=timeout,
                retention=retention,
                dedup_window=dedup_window,
                version=version,
            )
            self.tasks.add(workflow)
            return workflow

        return decorate if fn is None else decorate(fn)

    @overload
    def entity(
        self,
        cls: None = None,
        /,
        *,
        name: str | None = None,
        window: Duration = "3d",
        max_keys: int = 10_000,
        queue: str = "default",
        retention: Duration | None = None,
    ) -> Callable[[type[S]], type[S]]: ...

    @overload
    def entity(self, cls: type[S], /) -> type[S]: ...

    @overload
    def entity(self, cls: type[S], id: str, /) -> Ref[S]: ...

    @dataclass_transform(field_specifiers=(dataclasses.field, dataclasses.Field))
    def entity(
        self,
        cls: type[Any] | None = None,
        id: Any = _NO_ID,
        /,
        *,
        name: str | None = None,
        window: Duration = "3d",
        max_keys: int = 10_000,
        queue: str = "default",
        retention: Duration | None = None,
    ) -> Any:
        """Make a class an entity: `@app.entity(window="3d")`; or point at one of them: `app.entity(Rewards, "c-1")`.

        Message keys are remembered for `window`, at most `max_keys` of them.
        """
        if cls is not None and id is not _NO_ID:
            return self._ref(self.tasks.entity(cls), id)

        def decorate(decorated: type[Any]) -> type[Any]:
            self.tasks.add(
                Entity(decorated, name=name, window=window, max_keys=max_keys, queue=queue, retention=retention)
            )
            return decorated

        return decorate if cls is None else decorate(cls)

    @abstractmethod
    def _ref(self, entity: Entity[S], id: str) -> Ref[S]:
        """One entity, as an app reaches it."""
