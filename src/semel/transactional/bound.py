"""The connection that nested code joins without being given it, and a warning for what is not part of a transaction."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from semel.errors import OutsideTransaction


@dataclass(slots=True)
class _Binding:
    app: object
    connection: Any
    """What the verbs of the app use. None: they use none, on purpose."""
    active: bool = True
    """False once the block was left: tasks that were made in it have copies of its context, and live on."""


_bound: Final[ContextVar[_Binding | None]] = ContextVar("semel_bound", default=None)


@contextlib.contextmanager
def bound(app: object, connection: Any) -> Iterator[None]:
    """Verbs of the app inside of this use the connection; with None they use none and nobody is warned."""
    binding = _Binding(app, connection)
    before = _bound.set(binding)
    try:
        yield
    finally:
        binding.active = False
        _bound.reset(before)


def bound_connection(app: object) -> Any:
    """The connection that verbs of the app use here; None: none."""
    found = _bound.get()
    return found.connection if found is not None and found.active and found.app is app else None


def connection_of(app: object, verb: str) -> Any:
    """The connection that a verb of the app uses here; None: none.

    Warns then, once for each place in the code, if a transaction is open here that the verb is not going to be part of.
    """
    found = _bound.get()
    if found is not None and found.active:
        if found.app is app:
            return found.connection
        if found.connection is not None:
            _warn(verb, "a transaction that is bound to another app", "pass connection=")
    elif "django.db" in sys.modules:
        _warn_in_atomic(verb)
    return None


def _warn_in_atomic(verb: str) -> None:
    for connection in sys.modules["django.db"].connections.all(initialized_only=True):
        if connection.in_atomic_block:
            given = f"connection=connections[{connection.alias!r}]"
            _warn(verb, "transaction.atomic()", f"pass {given}, or wait with transaction.on_commit()")
            return


def _warn(verb: str, where: str, advice: str) -> None:
    message = (
        f"{verb}() inside {where} without connection=: it is committed at once, and stays when the transaction is "
        f"rolled back. To make it part of the transaction, {advice}; if it is meant so: with app.bind(None)."
    )
    frame = _caller()
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    place = frame.f_code.co_filename, frame.f_lineno
    warnings.warn_explicit(message, OutsideTransaction, *place, frame.f_globals.get("__name__"), registry)


def _caller() -> FrameType:
    """The first frame that is not Semel's own."""
    frame = sys._getframe(2)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "semel":
        frame = frame.f_back
    return frame
