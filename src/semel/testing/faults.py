"""A fault at one statement: the seam that all SQL goes through, made to break on demand."""

from __future__ import annotations

import os
import signal
import threading
from enum import Enum

from semel.errors import EngineUnavailable


class Mode(Enum):
    """What happens at the chosen statement."""

    BEFORE = "before"
    """It fails, and was not executed."""
    ERROR = "error"
    """It was executed, and its reply is lost."""
    KILL = "kill"
    """It was executed, and the process dies of SIGKILL."""


class Fault:
    """A tap for `store.tap` that breaks once, at the `at`-th statement from now on; 0 only counts."""

    def __init__(self, at: int = 0, mode: Mode = Mode.BEFORE) -> None:
        self.at = at
        self.mode = mode
        self.statements: list[str] = []
        self.fired: str | None = None
        """The statement at which it broke."""
        self._struck: str | None = None
        self._lock = threading.Lock()

    def before(self, statement: str) -> None:
        """Count it; break here in mode BEFORE."""
        with self._lock:
            self.statements.append(statement)
            if len(self.statements) != self.at:
                return
            if self.mode is not Mode.BEFORE:
                self._struck = statement
                return
            self.fired = statement
        raise EngineUnavailable(f"a fault before {statement!r}: it was not executed.")

    def after(self, statement: str) -> None:
        """Break here in the other modes."""
        with self._lock:
            if self._struck != statement:
                return
            self._struck, self.fired = None, statement
        if self.mode is Mode.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        raise EngineUnavailable(f"a fault after {statement!r}: it was executed.")
