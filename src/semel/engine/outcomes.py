"""How executions end, as data and as errors."""

from __future__ import annotations

import os
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Final

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.engine.protocol import Outcome
from semel.errors import (
    ExecutionCancelled,
    ExecutionFailed,
    ExecutionTimedOut,
    ResultExpired,
    SemelError,
    phrase,
    type_name,
)

LONGEST_MESSAGE: Final = 10_000
LONGEST_TRACEBACK: Final = 50_000
CAUSES_SHOWN: Final = 3
LONGEST_CAUSE: Final = 500
"""Characters of each cause that the message of a group of errors names."""
MOST_CAUSES: Final = 100
"""Links of a chain of causes that are looked at; it may be a circle."""
_MACHINERY: Final = tuple(f"{Path(__file__).parents[1] / room}{os.sep}" for room in ("engines", "flow", "runtime"))
"""Where the code is that runs people's code."""


def failure(id: str, name: str, outcome: Outcome, *, redrivable: bool = True) -> SemelError:
    """The error that tells how an execution ended; also how to run it again, unless only who asked for it can."""
    error = outcome.error
    if outcome.unknown:
        return ResultExpired(
            f"nothing is known of execution {id} of {name!r}: it is past its retention, or the database lost it in a "
            "restore or a failover. Ask for it again under its key: what is not known runs.",
            execution_id=id,
        )
    if outcome.expired:
        return ResultExpired(
            f"the result of execution {id} of {name!r} is past its retention. Keep results longer with "
            "retention='…' on the task or its queue.",
            execution_id=id,
        )
    if outcome.status is Status.CANCELLED:
        return ExecutionCancelled(f"execution {id} of {name!r} was cancelled.", execution_id=id)
    message = phrase(error or "no error was recorded")
    if outcome.status is Status.TIMED_OUT:
        return ExecutionTimedOut(f"execution {id} of {name!r} timed out: {message}.", execution_id=id)
    advice = f" Run it again with: semel redrive {id}" if redrivable else ""
    return ExecutionFailed(
        f"execution {id} of {name!r} failed: {message}.{advice}",
        execution_id=id,
        error_type=error.type if error else "",
        error_message=error.message if error else "",
        traceback=error.traceback if error else "",
        root_cause_type=error.root_type if error else "",
    )


def describe(error: BaseException, message: str | None = None) -> ErrorInfo:
    """An exception as data, with text that every database can hold and without Semel's own frames.

    Whatever code of its own it has is kept from doing harm here: `str()` may raise SystemExit.
    """
    try:
        return _describe(error, message)
    except BaseException as broken:
        name = _clean(type_name(type(error)), 500)
        return ErrorInfo(name, message or f"(it cannot be read: {type(broken).__name__})")


def _describe(error: BaseException, message: str | None) -> ErrorInfo:
    name = type_name(type(error))
    told = traceback.TracebackException(type(error), error, error.__traceback__, compact=True)
    _strip_own_frames(told)
    text = message_of(error) if message is None else message
    root = _root_cause_type(error)
    return ErrorInfo(
        _clean(name, 500),
        _clean(text, LONGEST_MESSAGE),
        _clean("".join(told.format()), LONGEST_TRACEBACK),
        "" if root == name else _clean(root, 500),
    )


def message_of(error: BaseException) -> str:
    """What an error says; a group of errors, as a TaskGroup raises it, also names its first few causes."""
    text = _text(error)
    if not isinstance(error, BaseExceptionGroup):
        return text
    causes = _causes(error)
    named = [str(ErrorInfo(type_name(type(one)), _clean(_text(one), LONGEST_CAUSE))) for one in causes[:CAUSES_SHOWN]]
    more = [f"and {len(causes) - CAUSES_SHOWN} more"] if len(causes) > CAUSES_SHOWN else []
    return f"{text}: {'; '.join(map(phrase, named + more))}"


def _causes(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The errors in a group and in the groups within it, in order."""
    found: list[BaseException] = []
    for one in group.exceptions:
        found += _causes(one) if isinstance(one, BaseExceptionGroup) else [one]
    return found


def describe_timeout(error: BaseException, timeout: timedelta) -> ErrorInfo:
    """The error of an attempt that was stopped because its time was up."""
    return describe(error, f"ran longer than its timeout of {timeout.total_seconds():g} s")


def _root_cause_type(error: BaseException) -> str:
    """The type of the exception that the chain of causes began with; it goes on where a remote execution failed."""
    for _ in range(MOST_CAUSES):
        if isinstance(error, ExecutionFailed):
            return error.root_cause_type or type_name(type(error))
        alone = error.exceptions[0] if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1 else None
        cause = error.__cause__ or alone or (None if error.__suppress_context__ else error.__context__)
        if cause is None:
            break
        error = cause
    return type_name(type(error))


def _strip_own_frames(told: traceback.TracebackException) -> None:
    """Leave out the frames of the machinery that ran the code: they say nothing of what went wrong in it."""
    pending, seen = [told], 0
    while pending and seen < MOST_CAUSES:
        one, seen = pending.pop(), seen + 1
        kept = [frame for frame in one.stack if not frame.filename.startswith(_MACHINERY)]
        if kept:
            one.stack[:] = kept
        pending += [more for more in (one.__cause__, one.__context__, *(one.exceptions or ())) if more is not None]


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # also SystemExit, which would end the worker
        return f"(its message cannot be read: {type(broken).__name__})"


def _clean(text: str, most: int) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()
    return (
        text if len(text) <= most else f"{text[: most // 2]}\n… {len(text) - most:,} characters …\n{text[-most // 2 :]}"
    )
