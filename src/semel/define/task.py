"""A task: a plain function, and how it wants to be run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

from msgspec import Struct

from semel.codec import Shape
from semel.contract.durations import Duration
from semel.contract.keys import KEY_LENGTH, check_key, check_key_scope, check_name, scoped_key
from semel.contract.rates import Rate, parse_rate
from semel.contract.retry import Retry, retry_of
from semel.define.options import RESERVED
from semel.errors import DefinitionError, InvalidValue
from semel.settings import optional_duration

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

PRIORITY_BOUND = 1_000_000


class Call(Struct, Generic[R_co], frozen=True):
    """A task with its arguments, type-checked: what `charge.call("o-1", 9900)` makes."""

    task: Task[..., R_co]
    bound: dict[str, Any]


class Task(Generic[P, R]):
    """A decorated function. Calling it runs it here and now, as if it had never been decorated."""

    kind: ClassVar[str] = "task"

    def __init__(
        self,
        fn: Callable[P, Any],
        *,
        name: str | None,
        queue: str,
        retry: Retry | int | None,
        timeout: Duration | None,
        priority: int,
        retention: Duration | None,
        dedup_window: Duration | None,
        rate_limit: str | Rate | None,
        concurrency_key: str | Callable[..., str] | None,
        key_scope: str,
    ) -> None:
        if not inspect.isfunction(fn):
            raise DefinitionError(f"{fn!r} is not a function: decorate a plain `def` or `async def`.")
        self.fn = fn
        self.name = check_name(name or fn.__name__, "task name", KEY_LENGTH)
        self.queue = check_name(queue, "queue")
        self.retry = retry_of(retry, Retry())
        self.timeout: timedelta | None = optional_duration(timeout, "timeout")
        if self.timeout is not None and not self.timeout:
            raise InvalidValue("timeout=0: give a positive duration, or leave it out for none.")
        self.priority = check_priority(priority)
        self.key_scope = check_key_scope(key_scope)
        self.retention = optional_duration(retention, "retention")
        self.dedup_window = optional_duration(dedup_window, "dedup_window")
        self.rate_limit = None if rate_limit is None else parse_rate(rate_limit)
        self.is_async = inspect.iscoroutinefunction(fn)
        _refuse_what_cannot_run(fn, self.name)
        self.shape = Shape(fn, self.name)
        self._concurrency_key = concurrency_key
        if isinstance(concurrency_key, str):
            self._check_template(concurrency_key)
        self.recent_options: dict[Any, Any] = {}
        """Options with which it was asked for lately: what was given to what it comes to."""
        functools.update_wrapper(self, fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name!r} on queue {self.queue!r}>"

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Bind arguments for `enqueue`, strictly type-checked."""
        return Call(self, self.shape.bind(args, kwargs))

    def stored_key(self, task_id: str, queue: str | None = None) -> str:
        """The key under which a `task_id` is stored, as `app.find` and `semel explain` want it; see `key_scope`.

        `queue`: the one that was given to `enqueue`, if it is another than the task's own.
        """
        key = check_key(task_id)
        if self.key_scope == "namespace":
            return key
        return scoped_key(self.key_scope, (queue or self.queue) if self.key_scope == "queue" else self.name, key)

    @property
    def keyed(self) -> bool:
        """Does each call carry a concurrency key?"""
        return self._concurrency_key is not None

    def concurrency_key_of(self, bound: dict[str, Any]) -> str | None:
        """The concurrency key of one call: calls that share it run one at a time."""
        template = self._concurrency_key
        if template is None:
            return None
        bound = self.shape.with_defaults(bound)
        key = template.format(**bound) if isinstance(template, str) else template(**bound)
        if not isinstance(key, str) or not 1 <= len(key) <= KEY_LENGTH or not key.isprintable():
            raise InvalidValue(
                f"task {self.name!r}: concurrency_key gave {key!r}; give 1 to {KEY_LENGTH} printable characters."
            )
        return key

    def _check_template(self, template: str) -> None:
        try:
            template.format(**dict.fromkeys(self.shape.signature.parameters, ""))
        except (KeyError, IndexError, ValueError) as error:
            raise DefinitionError(
                f"task {self.name!r}: concurrency_key={template!r} does not fit the parameters "
                f"{tuple(self.shape.signature.parameters)}: {error!r}."
            ) from error
        except (AttributeError, TypeError):
            return  # "{order.id}" needs the real argument; it is checked when one is enqueued


class AsyncTask(Task[P, R]):
    """A task whose function is an `async def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        run: Coroutine[Any, Any, R] = self.fn(*args, **kwargs)
        return run


class SyncTask(Task[P, R]):
    """A task whose function is a plain `def`; a worker runs it in a thread."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.fn(*args, **kwargs)
        return result


def check_priority(priority: Any) -> int:
    """Higher runs first; within bounds that every engine has."""
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > PRIORITY_BOUND:
        raise InvalidValue(f"priority={priority!r}: give a whole number from -{PRIORITY_BOUND} to {PRIORITY_BOUND}.")
    return priority


def _refuse_what_cannot_run(fn: Callable[..., Any], name: str) -> None:
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise DefinitionError(f"task {name!r} is a generator: return a value instead of yielding.")
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.name in RESERVED:
            raise DefinitionError(
                f"task {name!r} has a parameter {parameter.name!r}, which is an option of enqueue(): "
                f"rename the parameter, for instance to 'the_{parameter.name}'."
            )
        if parameter.name == "self":
            raise DefinitionError(f"task {name!r} is a method: decorate a function at module level.")
