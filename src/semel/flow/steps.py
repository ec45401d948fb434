"""Steps: plain functions that a workflow runs in place, and how their results are stored and read."""

from __future__ import annotations

import dis
import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable
from types import CodeType
from typing import Any, Final, NamedTuple

import msgspec

from semel.codec import Returns, encode
from semel.contract.fingerprint import fingerprint
from semel.contract.keys import check_name
from semel.contract.retry import Retry
from semel.define.task import Task
from semel.errors import InputError, InvalidValue, NotDecodable
from semel.flow.commands import ONCE, Command, Kind

MOST_KNOWN: Final = 4096
_ANY: Final = Returns(Any, "step")


def step_of(
    kind: Kind, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None,
    retry: Retry | int | None, limit: int,
) -> Command:  # fmt: skip
    """The command to run a function in place."""
    if isinstance(fn, Task):
        name, retry, fn = name or fn.name, retry or fn.retry, fn.fn
    if not callable(fn):
        raise InvalidValue(f"{fn!r} is not a function: write ctx.{kind}(fn, *args).")
    if kind is Kind.TRANSACTION and inspect.iscoroutinefunction(fn):
        raise InvalidValue(f"{fn!r} is async: a transaction takes a plain `def fn(tx, …)`.")
    recipe = _recipe(fn, name, limit)
    policy = Retry(max_attempts=retry) if isinstance(retry, int) else retry
    return Command(
        kind, recipe.label, _mark(recipe.label, args, kwargs) if args or kwargs else "", tries=policy or ONCE,
        call=_bound(kind, fn, args, kwargs), read=recipe.read, write=recipe.write, swift=recipe.swift,
    )  # fmt: skip


class Recipe(NamedTuple):
    """What all steps that run one function have in common."""

    label: str
    read: Callable[[bytes | None], Any]
    write: Callable[[Any], bytes | None]
    swift: bool


_known: Final[OrderedDict[tuple[CodeType, str | None, int], Recipe]] = OrderedDict()
"""By code rather than by function: lambdas and local functions are made anew each time."""


def _recipe(fn: Callable[..., Any], name: str | None, limit: int) -> Recipe:
    code = getattr(fn, "__code__", None)
    if code is None:
        return _recipe_of(_ANY, name or _name(fn), limit, swift=False)
    found = _known.get((code, name, limit))
    if found is None:
        label = name or _name(fn)
        found = _recipe_of(Returns.of(fn, label), label, limit, swift=_never_waits(code))
        _known[code, name, limit] = found
        if len(_known) > MOST_KNOWN:
            _known.popitem(last=False)
    return found


def _recipe_of(returns: Returns, name: str, limit: int, *, swift: bool) -> Recipe:
    write = functools.partial(returns.encode_result, limit=limit)
    return Recipe(check_name(name, "step name", 255), returns.decode_result, write, swift)


def _never_waits(code: CodeType) -> bool:
    if not code.co_flags & inspect.CO_COROUTINE:
        return False
    return all(instruction.opname not in ("SEND", "YIELD_VALUE") for instruction in dis.get_instructions(code))


def _bound(kind: Kind, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    if kind is Kind.TRANSACTION:
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


@functools.lru_cache(1024)
def reader_of(kind: Any) -> Callable[[bytes | None], Any]:
    """Reads stored JSON as a type."""
    decoder = msgspec.json.Decoder(kind)

    def read(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return decoder.decode(data)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise NotDecodable(f"what was stored does not fit {kind!r}: {error}.") from error

    return read
