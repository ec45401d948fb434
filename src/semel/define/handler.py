"""What an entity answers to: handlers change it, queries read it, and it may notice that it is idle."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar, overload

from semel.codec import Shape, encode
from semel.contract.durations import Duration, parse_duration
from semel.contract.keys import check_name
from semel.contract.marks import field_hash
from semel.errors import DefinitionError, InputError

H = TypeVar("H", bound=Callable[..., Coroutine[Any, Any, Any]])
Q = TypeVar("Q", bound=Callable[..., Any])

RESERVED: Final = frozenset({"connection", "dedup_key", "delay", "entity_id", "run_at", "timeout"})
"""Options of sending a message; a handler or a parameter of that name could not be told from them."""
CONTEXT: Final = ("ctx", "_ctx", "_")
_ROLE: Final = "__semel_role__"


@dataclass(frozen=True, slots=True)
class Handler:
    """A method that messages run: `await fn(state, ctx, *args, **kwargs)`, arguments by `shape`."""

    name: str
    shape: Shape
    fn: Callable[..., Coroutine[Any, Any, Any]]
    defaults: dict[str, str]
    """Hashes of its defaults, by parameter: an argument that equals its default counts as left out."""


@dataclass(frozen=True, slots=True)
class Query:
    """A method that reads: `fn(state, *args, **kwargs)`, arguments by `shape`."""

    name: str
    shape: Shape
    fn: Callable[..., Any]


class Idle(NamedTuple):
    """What to run, `await fn(state, ctx)`, when no message came for so long."""

    after: timedelta
    fn: Callable[..., Coroutine[Any, Any, Any]]


class Role(NamedTuple):
    """What a decorator has written on a method."""

    kind: str
    name: str
    after: timedelta | None = None


@overload
def handler(fn: H, /) -> H: ...
@overload
def handler(name: str | None = None, /) -> Callable[[H], H]: ...
def handler(arg: Any = None, /) -> Any:
    """Make an `async def` method of an entity answer to messages: `@semel.handler` or `@semel.handler("add-points")`.

    The name is the method's, with `-` for `_`, unless given. The method takes `(self, ctx, ...)` and stays a method.
    """
    return _decorator("handler", arg)


@overload
def query(fn: Q, /) -> Q: ...
@overload
def query(name: str | None = None, /) -> Callable[[Q], Q]: ...
def query(arg: Any = None, /) -> Any:
    """Make a plain method of an entity answer questions: `@semel.query` or `@semel.query("status")`.

    It takes `(self, ...)`, is not recorded, and must not change the state: what it changes is lost.
    """
    return _decorator("query", arg)


def idle(after: Duration, /) -> Callable[[H], H]:
    """Run an `async def` method `(self, ctx)` when no message came for so long: `@semel.idle("365d")`.

    An entity has at most one.
    """
    if not isinstance(after, str | int | float | timedelta):
        raise DefinitionError("@semel.idle needs to know after how long: @semel.idle('365d').")
    span = parse_duration(after, "idle")
    if not span:
        raise DefinitionError(f"@semel.idle({after!r}): give a positive duration such as '365d'.")

    def mark(fn: H) -> H:
        _marked(fn, "idle", None, span)
        return fn

    return mark


def _decorator(kind: str, arg: Any) -> Any:
    if arg is None or isinstance(arg, str):
        return lambda fn: _marked(fn, kind, arg)
    return _marked(arg, kind, None)


def _marked(fn: Any, kind: str, name: str | None, after: timedelta | None = None) -> Any:
    if not inspect.isfunction(fn):
        raise DefinitionError(f"@semel.{kind}: {fn!r} is not a method. Decorate a plain `def` inside of the class.")
    if other := fn.__dict__.get(_ROLE):
        raise DefinitionError(f"{fn.__qualname__} is marked as {other.kind} already: it cannot be {kind} as well.")
    asynchronous = inspect.iscoroutinefunction(fn)
    if kind == "query" and asynchronous:
        raise DefinitionError(f"{fn.__qualname__} is a query, which only reads: make it a plain `def`.")
    if kind != "query" and not asynchronous:
        raise DefinitionError(f"{fn.__qualname__} is a{'n' * (kind == 'idle')} {kind} method: make it an `async def`.")
    if inspect.isgeneratorfunction(fn):
        raise DefinitionError(f"{fn.__qualname__} is a generator: return a value instead of yielding.")
    label = check_name(name or fn.__name__.strip("_").replace("_", "-"), f"{kind} name")
    if label in RESERVED or label.replace("-", "_") in RESERVED:
        raise DefinitionError(f"{fn.__qualname__}: {label!r} is an option of sending a message. Choose another name.")
    fn.__dict__[_ROLE] = Role(kind, label, after)
    return fn


def role_of(member: object) -> Role | None:
    """What a decorator has written on a member of a class, if any."""
    inner = getattr(member, "__func__", member)  # of a staticmethod or classmethod
    found = getattr(inner, "__dict__", {}).get(_ROLE)
    return found if isinstance(found, Role) else None


def read_handler(fn: Callable[..., Any], role: Role, who: str) -> Handler:
    """The handler that a method is. Raises DefinitionError if it cannot be one."""
    me = f"{who}: handler {role.name!r}"
    _check_leading(fn, me, "(self, ctx, …)", with_context=True)
    _check_parameters(fn, me, skip=2)
    shape = _shape(fn, role, who, skip=2)
    return Handler(role.name, shape, fn, dict(_default_hashes(shape)))


def read_query(fn: Callable[..., Any], role: Role, who: str) -> Query:
    """The query that a method is. Raises DefinitionError if it cannot be one."""
    me = f"{who}: query {role.name!r}"
    _check_leading(fn, me, "(self, …)", with_context=False)
    _check_parameters(fn, me, skip=1)
    return Query(role.name, _shape(fn, role, who, skip=1), fn)


def read_idle(fn: Callable[..., Any], role: Role, who: str) -> Idle:
    """What to run when the entity is idle. Raises DefinitionError if it takes more than `(self, ctx)`."""
    me = f"{who}: idle {fn.__name__!r}"
    _check_leading(fn, me, "(self, ctx)", with_context=True)
    if len(inspect.signature(fn).parameters) > 2:
        raise DefinitionError(f"{me}: nobody is there to give it arguments. It takes (self, ctx) and no more.")
    return Idle(role.after or timedelta(), fn)


def _shape(fn: Callable[..., Any], role: Role, who: str, skip: int) -> Shape:
    shape = Shape(fn, role.name, skip=skip, kind=f"{who}: {role.kind}")
    if bad := shape.unreadable():
        raise DefinitionError(
            f"{who}: {role.kind} {role.name!r} takes a {bad}, which cannot be read from JSON. Take an id, a "
            "dataclass or plain data instead."
        )
    return shape


def _default_hashes(shape: Shape) -> Iterator[tuple[str, str]]:
    empty: dict[Any, bytes] = {inspect.Parameter.VAR_POSITIONAL: b"[]", inspect.Parameter.VAR_KEYWORD: b"{}"}
    for parameter in shape.signature.parameters.values():
        if (nothing := empty.get(parameter.kind)) is not None:
            yield parameter.name, field_hash(nothing)
        elif parameter.default is not parameter.empty:
            with contextlib.suppress(InputError):  # a default that cannot be stored is never sent
                yield parameter.name, field_hash(encode(parameter.default, "default"))


def _check_leading(fn: Callable[..., Any], me: str, form: str, *, with_context: bool) -> None:
    parameters = list(inspect.signature(fn).parameters.values())
    count = 1 + with_context
    leading = [p for p in parameters[:count] if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(leading) < count:
        raise DefinitionError(f"{me} takes {inspect.signature(fn)}: it needs {form}.")
    if with_context and leading[1].name not in CONTEXT:
        raise DefinitionError(
            f"{me}: its second parameter is {leading[1].name!r}, and the second is always the context: write {form}."
        )
    if not with_context and any(p.name == "ctx" for p in parameters):
        raise DefinitionError(f"{me}: a query has no ctx, it only reads: write {form}.")


def _check_parameters(fn: Callable[..., Any], me: str, skip: int) -> None:
    for parameter in list(inspect.signature(fn).parameters.values())[skip:]:
        if parameter.name in RESERVED:
            raise DefinitionError(
                f"{me} has a parameter {parameter.name!r}, which is an option of sending a message: rename the "
                f"parameter, for instance to 'the_{parameter.name}'."
            )
