"""Steps: plain functions that a workflow runs in place, and how their results are stored and read."""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

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
    label = _label(name or _name(fn))
    returns = _returns(fn, label)
    policy = Retry(max_attempts=retry) if isinstance(retry, int) else retry
    return Command(
        kind, label, _mark(label, args, kwargs), call=_bound(kind, fn, args, kwargs),
        tries=policy or ONCE,
        read=returns.decode_result, write=functools.partial(returns.encode_result, limit=limit),
    )  # fmt: skip


@functools.lru_cache(4096)
def _label(name: str) -> str:
    return check_name(name, "step name", 255)


def _bound(kind: Kind, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    if kind is Kind.TRANSACTION:
        return lambda tx: fn(tx, *args, **kwargs)
    return functools.partial(fn, *args, **kwargs) if args or kwargs else fn


_known: Final[OrderedDict[Any, Returns]] = OrderedDict()
"""By code rather than by function: lambdas and local functions are made anew each time."""


def _returns(fn: Callable[..., Any], name: str) -> Returns:
    code = getattr(fn, "__code__", None)
    found = _known.get(code) if code is not None else _ANY
    if found is None:
        found = _known[code] = Returns.of(fn, name)
        if len(_known) > MOST_KNOWN:
            _known.popitem(last=False)
    return found


def _name(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__name__", type(fn).__name__)
    return "lambda" if name == "<lambda>" else name


def _mark(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What tells one input from another; values that JSON cannot carry count as alike."""
    if not args and not kwargs:
        return ""
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
