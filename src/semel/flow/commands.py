"""What workflow code asks for, and how it ends other than by returning."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct

from semel.contract.fingerprint import fingerprint
from semel.contract.retry import Retry
from semel.engine.start_request import StartRequest
from semel.flow.loop import FlowFuture


class Kind(StrEnum):
    """The kinds of commands, as journals hold them."""

    TASK = "task"
    ENQUEUE = "enqueue"
    """A task that nobody waits for."""
    WORKFLOW = "workflow"
    STEP = "step"
    TRANSACTION = "transaction"
    TIMER = "timer"
    SIGNAL = "signal"
    """Wait for a signal."""
    SEND = "send"
    """Send a signal to another workflow."""
    CANCEL = "cancel"
    """Ask another workflow to stop."""
    PUBLISH = "publish"
    ATTRIBUTE = "attribute"
    PATCH = "patch"


ONCE = Retry(max_attempts=1)
MARK = 16
"""Characters of a fingerprint in the mark of a task or of a child."""
NO_ANSWER = frozenset({Kind.ENQUEUE, Kind.PUBLISH, Kind.ATTRIBUTE, Kind.PATCH, Kind.SEND, Kind.CANCEL})
"""Done with the commit that holds them."""
RESULT_OF = "result "
"""How the mark of waiting for a child that was started before begins."""
IN_PLACE = frozenset({Kind.STEP, Kind.TRANSACTION})
"""Run by the worker that holds the workflow, once the command is on disk."""


def mark_of(start: StartRequest) -> str:
    """The key and the input of what is to be started: the arguments that were given, whatever the defaults are."""
    return f"{start.key or ''}#{fingerprint(start.options.name, start.payload).hex()[:MARK]}"


def key_in(kind: str, mark: str) -> str | None:
    """The key in the mark of a task or of a child workflow, if it has one."""
    if kind not in (Kind.TASK, Kind.WORKFLOW):
        return None
    return mark.removeprefix(RESULT_OF) if mark.startswith(RESULT_OF) else mark.rpartition("#")[0] or None


def _as_it_is(data: bytes | None) -> Any:
    return data


def _unwritten(value: Any) -> bytes | None:
    return None


class Command(Struct, eq=False):
    """One command. `mark` tells one input from another: replay compares it."""

    kind: Kind
    name: str
    mark: str = ""
    number: int = 0
    ref: str | None = None
    """The execution it became, or the workflow it goes to."""
    future: FlowFuture | None = None
    read: Callable[[bytes | None], Any] = _as_it_is
    """Makes a value of the stored answer."""
    start: StartRequest | None = None
    on_close: str | None = None
    waits: bool = True
    """For the end of what it starts; else only for its beginning."""
    call: Callable[[], Any] | None = None
    write: Callable[[Any], bytes | None] = _unwritten
    """Makes the stored answer of a value."""
    effect: str = ""
    """What effect keys of a step are made of: its name and how many there were before."""
    tries: Retry = ONCE
    timeout: timedelta | None = None
    """Of each attempt of a step."""
    never_awaits: bool = False
    """An async step without a single await: it runs to its end in one go, with or without a task of its own."""
    payload: bytes | None = None

    @property
    def shares(self) -> tuple[str, str, str, bytes] | None:
        """What it has in common with others that ask for the same execution; None: nobody else can."""
        if self.start is None or self.start.key is None:
            return None
        return self.start.options.kind, self.name, self.start.key, self.start.fingerprint


class ContinueAsNew(BaseException):
    """Begin again with this input and an empty journal. No Exception, so that `except Exception` lets it through."""

    def __init__(self, payload: bytes) -> None:
        super().__init__("continue as new")
        self.payload = payload
