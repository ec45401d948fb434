"""Does the code do what its journal says? And if not: what does each of them say, and where."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, Final

from semel.errors import Forbidden, NonDeterminism
from semel.flow.commands import MARK, Command, Kind
from semel.flow.entries import Asked, Dropped, Entry, Fired, IssuedCommand, Resolved
from semel.flow.source_location import where

_foreign: Final[list[tuple[type[BaseException], Callable[[Any], Forbidden | NonDeterminism]]]] = []
"""Errors of other guards than Semel's, and what they are in its words."""


def alike(expected: IssuedCommand, found: IssuedCommand) -> bool:
    if isinstance(expected, Asked) and isinstance(found, Asked):
        return (expected.command, expected.kind, expected.name, expected.mark) == (
            found.command,
            found.kind,
            found.name,
            found.mark,
        )
    return isinstance(expected, Dropped) and isinstance(found, Dropped) and expected.command == found.command


def matches_older_signature(expected: IssuedCommand, command: Command | None) -> bool:
    """Does a recorded call differ from the one that is made only in arguments that equal their default?"""
    if command is None or command.start is None or not isinstance(expected, Asked):
        return False
    if (expected.command, expected.kind, expected.name) != (command.number, command.kind, command.name):
        return False
    head = command.mark[:-MARK]
    known = chain((command.start.fingerprint,), command.start.older_fingerprints())
    return any(head + one.hex()[:MARK] == expected.mark for one in known)


def same(deed: IssuedCommand, kind: Kind, name: str) -> bool:
    return isinstance(deed, Asked) and deed.kind == kind and deed.name == name


def difference(
    key: str, name: str, expected: Entry | None, found: IssuedCommand | None, end: tuple[str, str] = ("", "")
) -> NonDeterminism:
    """The error that says what the journal has, what the code did, and where. `end`: how and where it has ended."""
    recorded, done = describe_entry(expected), describe_entry(found)
    line = where()
    if found is None and end[0]:
        done, line = f"{done}: it {end[0]}", line or end[1]
    return NonDeterminism(
        f"workflow {key!r} ({name}) cannot go on: its journal says {recorded}, its code now "
        f"does {done}{f' at {line}' if line else ''}. It waits. Deploy code that does what the journal says, "
        "or put the change behind ctx.patched('…'); it goes on by itself then.",
        expected=recorded,
        found=done,
        where=line,
    )


def describe_entry(entry: Entry | None) -> str:
    """An entry in words."""
    match entry:
        case None:
            return "nothing more"
        case Asked(command, kind, name, mark):
            what = f"{kind} {name!r}" if name else kind
            return f"{what} (command {command}{f', input {mark}' if mark else ''})"
        case Dropped(command):
            return f"giving up command {command}"
        case Resolved(command):
            return f"the answer to command {command}"
        case Fired(command):
            return f"timer {command} going off"
        case _:
            return type(entry).__name__.lower()


def refused(error: BaseException | None) -> Forbidden | NonDeterminism | None:
    """What keeps the code from going on, where that is what it ended with; also out of the groups of a TaskGroup."""
    if isinstance(error, BaseExceptionGroup):
        return next((one for one in map(refused, error.exceptions) if one is not None), None)
    if isinstance(error, Forbidden | NonDeterminism):
        return error
    return next((translate(error) for kind, translate in _foreign if isinstance(error, kind)), None)


def refuse_too(kind: type[BaseException], translate: Callable[[Any], Forbidden | NonDeterminism]) -> None:
    """From now on an error of somebody else's guard keeps the code from going on as well."""
    _foreign.append((kind, translate))
