"""Calls to a cluster: what can go wrong with them, in Semel's words."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from temporalio.service import RPCError, RPCStatusCode

from semel.engine.bounded import note_answer
from semel.errors import EngineError, EngineUnavailable, phrase

T = TypeVar("T")
_AWAY = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.ABORTED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.UNKNOWN,
    RPCStatusCode.INTERNAL,  # a connection that broke, a server that is about to go
)


async def call(request: Awaitable[T]) -> T:
    """The answer. EngineUnavailable: the cluster is away; EngineError: it refuses."""
    try:
        answer = await request
    except RPCError as error:
        raise translate_error(error) from error
    note_answer()
    return answer


async def call_or_none(request: Awaitable[T]) -> T | None:
    """The same; None: there is no such thing."""
    try:
        answer = await request
        note_answer()
        return answer
    except RPCError as error:
        if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
            return None
        raise translate_error(error) from error


def translate_error(error: RPCError) -> Exception:
    """An error of the cluster."""
    if error.status in _AWAY:
        return EngineUnavailable(f"the Temporal cluster is away: {phrase(error.message)}. Try again.")
    return EngineError(f"the Temporal cluster refuses: {phrase(error.message)}.")
