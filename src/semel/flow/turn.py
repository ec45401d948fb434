"""What goes into a go of a workflow, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.flow.commands import Command
from semel.flow.entries import Entry, Happening
from semel.flow.snapshot import Snapshot


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


@dataclass(frozen=True, slots=True)
class Arrival:
    """Something that came from outside, and the row of the inbox it came in."""

    at: int
    what: Happening
    row: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The code has come to its end."""

    status: Status
    output: bytes | None = None
    error: ErrorInfo | None = None


@dataclass(slots=True)
class Turn:
    """What came of one go: to be written down as a whole, or not at all."""

    entries: list[Entry] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    dropped: list[Command] = field(default_factory=list)
    consumed: list[int] = field(default_factory=list)
    ended: Ended | None = None
    again: Snapshot | None = None
    """It continues as new, from here."""
    due: int | None = None
