"""Exit codes that mean something, and errors as one line."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import typer

from semel.cli.paper import complain
from semel.errors import (
    ConfigError,
    DefinitionError,
    Duplicate,
    EngineError,
    InputError,
    NotFound,
    NotRedrivable,
    NotResettable,
    SemelError,
    WorkflowEnded,
)


class Exit(IntEnum):
    """How a command ended. Stable: scripts rely on these."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNAVAILABLE = 5
    FINDINGS = 6
    DIFFERS = 7


MEANING = {
    Exit.OK: "done",
    Exit.FAILED: "it failed, or a finding is not ok",
    Exit.USAGE: "wrong usage or settings",
    Exit.NOT_FOUND: "no such execution, key or task",
    Exit.CONFLICT: "conflict: the key is taken, or the state does not allow it",
    Exit.UNAVAILABLE: "the database is away, or wants: semel migrate",
    Exit.FINDINGS: "semel check found something",
    Exit.DIFFERS: "recorded histories do not replay with this code, or it lacks a function that is waited for",
}

EPILOG = "\n".join(["\b", "Exit codes:", *(f"  {code.value}  {text}" for code, text in MEANING.items())])

_CODES: tuple[tuple[type[SemelError], Exit], ...] = (
    (InputError, Exit.USAGE),
    (ConfigError, Exit.USAGE),
    (DefinitionError, Exit.USAGE),
    (NotFound, Exit.NOT_FOUND),
    (Duplicate, Exit.CONFLICT),
    (NotRedrivable, Exit.CONFLICT),
    (NotResettable, Exit.CONFLICT),
    (WorkflowEnded, Exit.CONFLICT),
    (EngineError, Exit.UNAVAILABLE),
)


def code_of(error: SemelError) -> Exit:
    """The exit code that tells of this error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.FAILED)


def guarded(work: Callable[[], Exit | None], debug: bool) -> None:
    """Do the work of a command; a SemelError becomes a line and an exit code (with `debug`, a traceback)."""
    try:
        code = work() or Exit.OK
    except SemelError as error:
        if debug:
            raise
        complain(str(error))
        code = code_of(error)
    raise typer.Exit(code)
