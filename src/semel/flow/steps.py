"""Steps: plain functions that a workflow runs in place, and how their results are stored and read."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable
from types import CodeType
from typing import Any, Final, NamedTuple

from semel.codec import Returns, encode
from semel.contract.fingerprint import fingerprint
from semel.contract.keys import check_name
from semel.contract.retry import Retry, retry_of
from semel.define.task import Task
from semel.errors import InputError, InvalidValue
from semel.flow.commands import ONCE, Command, Kind

MOST_KNOWN: Final = 4096
_ANY: Final = Returns(Any, "step")
_OPTIONS: Final = ("name", "retry")
_BY_KEYWORD: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_TRANSACTION: Final = Kind.TRANSACTION
"""Looked up once: an attribute of an enum is slow in Python 3.11."""


def step_of(
    kind: Kind,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    name: str | None,
    retry: Retry | int | None,
    limit: int,
) -> Command:
    """The command to run a function in place."""
    label, tries = name, ONCE if retry is None else retry_of(retry, ONCE)
    timeout = None
    if isinstance(fn, Task):
        timeout = fn.timeout
        label, tries, fn = name or fn.name, fn.retry if retry is None else tries, fn.fn
    if not callable(fn):
        raise InvalidValue(f"{fn!r} is not a function: write ctx.{kind}(fn, *args).")
    if kind is _TRANSACTION and inspect.iscoroutinefunction(fn):
        raise InvalidValue(f"{fn!r} is async: a transaction takes a plain `def fn(tx, …)`.")
    recipe = _recipe(fn, label, limit)
    if recipe.takes and (name is not None or retry is not None):
        _refuse_options(kind, fn, args, {"name": name, "retry": retry})
    return Command(
        kind,
        recipe.label,
        _mark(recipe.label, args, kwargs) if args or kwargs else "",
        tries=tries,
        call=_bound(kind, fn, args, kwargs),
        read=recipe.read,
        write=recipe.write,
        never_awaits=recipe.never_awaits,
        timeout=timeout,
    )


class Recipe(NamedTuple):
    """What all steps that run one function have in common."""

    label: str
    read: Callable[[bytes | None], Any]
    write: Callable[[Any], bytes | None]
    never_awaits: bool = False
    takes: bool = True
    """Has it, perhaps, a parameter with the name of an option of `ctx.step`?"""
    returns: Any = None
    """The return annotation as it stands at the function."""
    home: Any = None
    """Where an annotation that is text is looked up."""


_known: Final[OrderedDict[tuple[CodeType, str, str, int], Recipe]] = OrderedDict()
"""By code rather than by function: lambdas and local functions are made anew each time."""


def _recipe(fn: Callable[..., Any], name: str | None, limit: int) -> Recipe:
    code = getattr(fn, "__code__", None)
    if code is None:
        return _recipe_of(_ANY, name or _name(fn), limit)
    try:
        returns = fn.__annotations__.get("return")
    except NameError:  # since Python 3.14 annotations are looked up only now
        returns = None
    key = (code, name or fn.__name__, fn.__module__, limit)  # what a decorator returns has one code for all
    found = _known.get(key)
    if (
        found is None
        or (found.returns is not returns and found.returns != returns)  # made by one factory, for another type
        or (type(returns) is str and found.home is not fn.__globals__)
    ):
        label = name or _name(fn)
        found = _recipe_of(Returns.of(fn, label), label, limit)._replace(
            never_awaits=_never_awaits(code), takes=bool(_taken(fn)), returns=returns, home=fn.__globals__
        )
        _known[key] = found
        if len(_known) > MOST_KNOWN:
            _known.popitem(last=False)
    return found


def _recipe_of(returns: Returns, name: str, limit: int) -> Recipe:
    write = functools.partial(returns.encode_result, limit=limit)
    return Recipe(check_name(name, "step name", 255), returns.decode_result, write)


def _taken(fn: Callable[..., Any]) -> list[str]:
    """Options of `ctx.step` that could be meant for the function."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError, NameError):  # some that are written in C do not tell
        return []
    bound = fn.keywords if isinstance(fn, functools.partial) else {}
    return [
        option
        for option in _OPTIONS
        if option in parameters and parameters[option].kind in _BY_KEYWORD and option not in bound
    ]


def _refuse_options(kind: Kind, fn: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> None:
    """`ctx.step(greet, name="ada")` would run greet() without a name, in a step called ada."""
    before = (None,) if kind is _TRANSACTION else ()
    for option in _taken(fn):
        with contextlib.suppress(TypeError):  # arguments that do not fit: the call itself says so
            if given[option] is None or option in inspect.signature(fn).bind_partial(*before, *args).arguments:
                continue
            who = getattr(fn, "__name__", repr(fn))
            raise InvalidValue(
                f"ctx.{kind}({who}, {option}={given[option]!r}): {option}= is an option of the step, and {who}() has "
                f"a parameter of that name. Give it by position, or use functools.partial({who}, {option}=…) or a "
                "lambda."
            )


@functools.lru_cache(MOST_KNOWN)
def _never_awaits(code: CodeType) -> bool:
    """Is it the code of an `async def` that has nothing in it which could suspend it?

    Known before it runs, which an eager first `send(None)` would tell too late: a step that does suspend needs a task
    of its own from its first line on. `asyncio.timeout`, `TaskGroup` and anyio remember the task they begin in.
    """
    if not code.co_flags & inspect.CO_COROUTINE:
        return False
    return all(instruction.opname not in ("SEND", "YIELD_VALUE") for instruction in dis.get_instructions(code))


def _bound(kind: Kind, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    if kind is _TRANSACTION:
        return lambda tx: fn(tx, *args, **kwargs)
    return functools.partial(fn, *args, **kwargs) if args or kwargs else fn


def _name(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__name__", type(fn).__name__)
    return "lambda" if name == "<lambda>" else name


def _mark(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What tells one input from another; values that JSON cannot carry count as alike."""
    try:
        return fingerprint(name, encode([args, kwargs], "arguments")).hex()[:16]
    except InputError:
        return "?"
