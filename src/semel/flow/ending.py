"""How workflow code comes to its end."""

from __future__ import annotations

import asyncio
from typing import Any

from semel.contract.lifecycle import Status
from semel.define.entity import Entity
from semel.define.workflow import Workflow
from semel.engine.outcomes import describe, message_of
from semel.errors import SemelError
from semel.flow.compare import refused
from semel.flow.control import ContinueAsNew
from semel.flow.place import raised_at
from semel.flow.turn import Ended


def ending(main: asyncio.Task[Any]) -> Ended | ContinueAsNew | None:
    """How code ended that did not return. None: it returned.

    Forbidden or NonDeterminism: it did not end, it cannot go on.
    """
    error = main.exception()
    if error is None:
        return None
    if (refusal := refused(error)) is not None:
        raise refusal
    return _renewal(error) or Ended(Status.FAILED, None, describe(error), error)


def _renewal(error: BaseException) -> ContinueAsNew | None:
    """Also out of the group that a TaskGroup makes of it; not beside errors, which would be lost."""
    if isinstance(error, BaseExceptionGroup):
        inner = [_renewal(one) for one in error.exceptions]
        return inner[0] if None not in inner else None
    return error if isinstance(error, ContinueAsNew) else None


def completed(workflow: Workflow[..., Any] | Entity[Any], value: Any, limit: int) -> Ended:
    """It returned a value, which may be one that cannot be stored."""
    if not isinstance(workflow, Workflow):
        return Ended(Status.COMPLETED)
    try:
        return Ended(Status.COMPLETED, workflow.shape.encode_result(value, limit))
    except SemelError as error:
        return Ended(Status.FAILED, None, describe(error), error)


def told_end(main: asyncio.Task[Any] | None) -> tuple[str, str]:
    """How it ended, in words, and where; twice nothing for code that has not."""
    if main is None or not main.done():
        return "", ""
    if main.cancelled():
        return "ends as cancelled", ""
    error = main.exception()
    if error is None:
        return "returns", ""
    if _renewal(error) is not None:
        return "continues as new", raised_at(error)
    return f"raises {type(error).__name__}: {message_of(error)}", raised_at(error)
