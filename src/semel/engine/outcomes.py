"""How executions end, as data and as errors."""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Final

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.engine.protocol import Outcome
from semel.errors import ResultExpired, SemelError, TaskCancelled, TaskFailed, TaskTimedOut

LONGEST_MESSAGE: Final = 10_000
LONGEST_TRACEBACK: Final = 50_000


def failure(id: str, name: str, outcome: Outcome) -> SemelError:
    """The error that tells how an execution ended."""
    error = outcome.error
    if outcome.expired:
        return ResultExpired(
            f"the result of execution {id} of {name!r} is past its retention. Keep results longer with "
            "retention='…' on the task or its queue.",
            execution_id=id,
        )
    if outcome.status is Status.CANCELLED:
        return TaskCancelled(f"execution {id} of {name!r} was cancelled.", execution_id=id)
    message = f"{error.type}: {error.message}" if error else "no error was recorded"
    if outcome.status is Status.TIMED_OUT:
        return TaskTimedOut(f"execution {id} of {name!r} timed out: {message}.", execution_id=id)
    return TaskFailed(
        f"execution {id} of {name!r} failed: {message}. Run it again with: semel redrive {id}",
        execution_id=id,
        error_type=error.type if error else "",
        error_message=error.message if error else "",
        traceback=error.traceback if error else "",
    )


def describe(error: BaseException, message: str | None = None) -> ErrorInfo:
    """An exception as data, with text that every database can hold."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    lines = traceback.format_exception(kind, error, _from_the_task_on(error.__traceback__))
    text = _text(error) if message is None else message
    return ErrorInfo(_clean(name, 500), _clean(text, LONGEST_MESSAGE), _clean("".join(lines), LONGEST_TRACEBACK))


def _from_the_task_on(trace: TracebackType | None) -> TracebackType | None:
    """Without the frames that lead to the task, which say nothing of what went wrong in it."""
    inner = trace
    while inner is not None and inner.tb_frame.f_globals.get("__name__", "").startswith(
        ("semel.engines.", "semel.flow.")
    ):
        inner = inner.tb_next
    return inner or trace


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:
        return f"(its message cannot be read: {type(broken).__name__})"


def _clean(text: str, most: int) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()
    return (
        text if len(text) <= most else f"{text[: most // 2]}\n… {len(text) - most:,} characters …\n{text[-most // 2 :]}"
    )
