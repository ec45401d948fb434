"""What goes into one turn of a workflow and what comes out of it, and how its code ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo, MessageConflict
from semel.define.entity import Entity
from semel.define.workflow import Workflow
from semel.engine.outcomes import describe, message_of
from semel.errors import SemelError
from semel.flow.commands import IN_PLACE, Command, ContinueAsNew
from semel.flow.compare import refused
from semel.flow.entries import Asked, Entry, Happening
from semel.flow.snapshot import Snapshot
from semel.flow.source_location import raised_at


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a workflow is."""

    id: str
    key: str
    name: str
    namespace: str
    queue: str
    generation: int
    input: bytes
    parent: str | None = None
    seed: str = ""
    """What dice and ids in it come from; stays when it is reset, where `id` changes."""


class Arrival(Struct, frozen=True):
    """Something that came from outside, and the row of the inbox it came in."""

    at: int
    what: Happening
    row: Any = None
    """What tells it from all else that came; whoever hosts the flow makes it and understands it."""


class Ended(Struct, frozen=True):
    """The code has come to its end."""

    status: Status
    output: bytes | None = None
    error: ErrorInfo | None = None
    exception: BaseException | None = None
    """What the code raised, for who watches this worker; it is not written down."""


def stopped(late: bool, timeout: timedelta | None) -> Ended:
    """How code ends that was cancelled: by someone, or since its time was up."""
    if not late:
        return Ended(Status.CANCELLED)
    text = None if timeout is None else f"ran longer than its timeout of {timeout.total_seconds():g} s"
    return Ended(Status.TIMED_OUT, None, None if text is None else ErrorInfo("TimeoutError", text))


class Reply(Struct, frozen=True):
    """What became of one message of an entity; `n` is the place of its key among all that were seen."""

    key: str
    status: Status
    output: bytes | None = None
    error: ErrorInfo | None = None
    n: int = 0
    at: int = 0
    mark: str | None = None
    """What the message is compared by."""
    name: str | None = None
    """Of a message that failed and freed its key: its handler."""
    payload: bytes | None = None
    """Of such a message: its arguments, if there was room for them."""


class MessageEnd(Struct, frozen=True):
    """How the handling of one message of an entity ended, for who watches this worker."""

    name: str
    status: Status
    error: ErrorInfo | None
    exception: BaseException | None
    seconds: float | None


class Turn(Struct):
    """What came of one go: to be written down as a whole, or not at all."""

    entries: list[Entry] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    dropped: list[Command] = field(default_factory=list)
    kept: list[tuple[Command, Command]] = field(default_factory=list)
    """Commands whose answers the code no longer wants, and others that still want the same executions."""
    consumed: list[Any] = field(default_factory=list)
    ended: Ended | None = None
    again: Snapshot | None = None
    """It continues as new, from here."""
    due: int | None = None
    snapshot: Snapshot | None = None
    """Of an entity: what it was when it last rested; its entries are from then on."""
    fresh: Snapshot | None = None
    """Of an entity that ends: what it begins anew with if another message came meanwhile."""
    replies: list[Reply] = field(default_factory=list)
    messages: list[MessageEnd] = field(default_factory=list)
    """Of an entity: messages that failed; where somebody watches, all that were handled."""
    forgotten: list[int] = field(default_factory=list)
    """Answers that need not be kept any longer."""
    overflowed: int = 0
    """Keys that were forgotten before their window was over."""
    hits: int = 0
    """Messages that were duplicates."""
    conflicts: list[MessageConflict] = field(default_factory=list)
    """Messages that were refused: their key stands for another one."""
    moved: bool = False
    """Is an entity done with a message by it, or has one of its commands got an answer?"""
    more: bool = False
    """Does a message that an entity has taken in wait for its next turn?"""

    def keep(self, pending: Iterable[Command]) -> None:
        """A task or child is not given up that is asked for again in the same go, or that another command wants.

        One that is asked for again belongs to the new command, as it did to the old one.
        """
        if not self.dropped:
            return
        new, gone = {c.number for c in self.commands}, {c.number for c in self.dropped}
        wanted = {c.shares: c for c in (*pending, *self.commands) if c.number not in gone}
        for old in [c for c in self.dropped if c.number not in new and c.shares is not None and c.shares in wanted]:
            successor = wanted[old.shares]
            if successor.number in new and all(other is not successor for _, other in self.kept):
                self._hand_on(old, successor)
            self.kept.append((old, successor))
            self.dropped.remove(old)

    def _hand_on(self, old: Command, successor: Command) -> None:
        successor.ref = old.ref
        self.entries = [
            replace(entry, ref=old.ref) if isinstance(entry, Asked) and entry.command == successor.number else entry
            for entry in self.entries
        ]

    @property
    def outward(self) -> list[Command]:
        """What it asks of others than whoever holds it."""
        return [command for command in self.commands if command.kind not in IN_PLACE]


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
