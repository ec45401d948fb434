"""Does the code do what its journal says? And if not: what does each of them say, and where."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import FrameType
from typing import Final

from semel.errors import Forbidden, NonDeterminism
from semel.flow.commands import Kind
from semel.flow.entries import Asked, Deed, Dropped, Entry, Fired, Resolved

_PACKAGE: Final = str(Path(__file__).parent.parent)
_ASYNCIO: Final = str(Path(asyncio.__file__).parent)
_LOOP: Final = str(Path(__file__).with_name("loop.py"))


def alike(expected: Deed, found: Deed) -> bool:
    if isinstance(expected, Asked) and isinstance(found, Asked):
        return (expected.command, expected.kind, expected.name, expected.mark) == (
            found.command, found.kind, found.name, found.mark,
        )  # fmt: skip
    return isinstance(expected, Dropped) and isinstance(found, Dropped) and expected.command == found.command


def same(deed: Deed, kind: Kind, name: str) -> bool:
    return isinstance(deed, Asked) and deed.kind == kind and deed.name == name


def difference(key: str, name: str, expected: Entry | None, found: Deed | None) -> NonDeterminism:
    """The error that says what the journal has, what the code did, and where."""
    recorded, done = told(expected), told(found)
    line = where()
    return NonDeterminism(
        f"workflow {key!r} ({name}) cannot go on: its journal says {recorded}, its code now "
        f"does {done}{f' at {line}' if line else ''}. It waits. Deploy code that does what the journal says, "
        "or put the change behind ctx.patched('…'); it goes on by itself then.",
        expected=recorded, found=done, where=line,
    )  # fmt: skip


def told(entry: Entry | None) -> str:
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


def where() -> str:
    """The line of the workflow's code that is running, if one is."""
    frame: FrameType | None = sys._getframe(1)
    nearest = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if not nearest and not file.startswith((_PACKAGE, _ASYNCIO)):
            nearest = f"{file}:{frame.f_lineno}"
        if frame.f_code.co_name == "run" and file == _LOOP:
            return nearest
        frame = frame.f_back
    return ""  # what lies further out is whoever started the worker


def refused(error: BaseException | None) -> Forbidden | NonDeterminism | None:
    """What keeps the code from going on, where that is what it ended with; also out of the groups of a TaskGroup."""
    if isinstance(error, BaseExceptionGroup):
        return next((one for one in map(refused, error.exceptions) if one is not None), None)
    return error if isinstance(error, Forbidden | NonDeterminism) else None
