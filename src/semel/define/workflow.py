"""A workflow: an async function whose steps are recorded, and which goes on where it was."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, ParamSpec, TypeVar

from semel.codec import Shape
from semel.contract.durations import Duration
from semel.contract.keys import KEY_LENGTH, check_name
from semel.contract.retry import Retry
from semel.define.options import RESERVED_IN_WORKFLOWS
from semel.define.task import check_priority
from semel.errors import DefinitionError, InvalidValue
from semel.settings import optional_duration

if TYPE_CHECKING:
    from semel.define.registry import Registry

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

VALUES: Final = frozenset({"str", "int", "float", "bool", "bytes", "dict", "list", "tuple", "set"})
"""Annotations that the context of a workflow cannot have: it was forgotten."""
MAX_WORKER_CRASHES = 10
"""A workflow whose worker died this often in one go, without ever coming to rest, is given up."""


@dataclass(frozen=True, slots=True)
class WorkflowCall(Generic[R_co]):
    """A workflow with its arguments, type-checked: what `process_order.call("o-1")` makes."""

    workflow: Workflow[..., R_co]
    bound: dict[str, Any]


class Workflow(Generic[P, R]):
    """A decorated function. Its first parameter is the context; calling it runs it as the plain function it is."""

    kind: ClassVar[str] = "workflow"
    rate_limit: ClassVar[None] = None
    keyed: ClassVar[bool] = False

    def __init__(
        self,
        fn: Callable[..., Coroutine[Any, Any, R]],
        *,
        name: str | None,
        queue: str,
        priority: int,
        timeout: Duration | None,
        retention: Duration | None,
        dedup_window: Duration | None,
        version: int,
    ) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise DefinitionError(f"{fn!r} cannot be a workflow: decorate an `async def` with ctx as first parameter.")
        self.fn = fn
        self.name = check_name(name or fn.__name__, "workflow name", KEY_LENGTH)
        self.queue = check_name(queue, "queue")
        self.priority = check_priority(priority)
        self.timeout: timedelta | None = optional_duration(timeout, "timeout")
        if self.timeout is not None and not self.timeout:
            raise InvalidValue("timeout=0: give a positive duration, or leave it out for none.")
        self.retention = optional_duration(retention, "retention")
        self.dedup_window = optional_duration(dedup_window, "dedup_window")
        self.retry = Retry(max_attempts=MAX_WORKER_CRASHES)
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise InvalidValue(f"version={version!r}: give a whole number, 1 or more.")
        self.version = version
        _refuse_what_cannot_run(fn, self.name)
        self.shape = Shape(fn, self.name, skip=1)
        self.newest: Workflow[..., Any] = self
        """The version of its name that new runs begin with."""
        self.registry: Registry | None = None
        """Of the app that it belongs to."""
        self.recent_options: dict[Any, Any] = {}
        """Options with which it was asked for lately: what was given to what it comes to."""
        functools.update_wrapper(self, fn)

    def __call__(self, ctx: Any, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return self.fn(ctx, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<workflow {self.name!r} version {self.version} on queue {self.queue!r}>"

    def call(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowCall[R]:
        """Bind arguments for `start_workflow`, strictly type-checked; the context is not among them."""
        return WorkflowCall(self, self.shape.bind(args, kwargs))

    def refuse_if_old(self) -> None:
        """InvalidValue: another version of its name is the one that new runs begin with."""
        new = self.newest
        if new.version > self.version:
            raise InvalidValue(
                f"{self.fn.__module__}.{self.fn.__qualname__} is version {self.version} of workflow {self.name!r}, and "
                f"new runs begin with version {new.version}: start {new.fn.__module__}.{new.fn.__qualname__} instead. "
                f"Version {self.version} is there for runs that began with it."
            )

    def concurrency_key_of(self, bound: dict[str, Any]) -> None:
        """Workflows have none: a waiting one holds no slot."""


def _is_value(annotation: Any) -> bool:
    """Does an annotation, which may be text, say that this is an argument, such as `order_id: str`?"""
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return name.partition("[")[0].strip() in VALUES


def _refuse_what_cannot_run(fn: Callable[..., Any], name: str) -> None:
    parameters = list(inspect.signature(fn).parameters.values())
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or parameters[0].kind not in by_position or _is_value(parameters[0].annotation):
        raise DefinitionError(f"workflow {name!r} takes no context: write `async def {name}(ctx: semel.Context, …)`.")
    if parameters[0].name == "self":
        raise DefinitionError(f"workflow {name!r} is a method: decorate a function at module level.")
    for parameter in parameters[1:]:
        if parameter.name in RESERVED_IN_WORKFLOWS:
            raise DefinitionError(
                f"workflow {name!r} has a parameter {parameter.name!r}, which is an option of start_workflow(): "
                f"rename the parameter, for instance to 'the_{parameter.name}'."
            )
