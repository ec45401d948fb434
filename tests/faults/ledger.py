"""What happened outside: every effect on disk before it counts, and who caused it."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import semel


@dataclass(frozen=True)
class Effect:
    """One line: the effect's key, and the execution, attempt and claim that caused it."""

    key: str
    execution: str
    attempt: int
    token: int


class Ledger:
    """A file; a line is one write and is synced, so that even a killed process leaves whole lines."""

    def __init__(self, path: str) -> None:
        self._path = path

    def record(self, effect: Effect) -> None:
        """The effect happens now."""
        line = f"{effect.key}\t{effect.execution}\t{effect.attempt}\t{effect.token}\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line.encode())
            os.fsync(file)
        finally:
            os.close(file)

    def record_here(self) -> None:
        """The same, for the task that runs here."""
        here = semel.current()
        self.record(Effect(here.effect_key("effect"), here.id, here.attempt, here.token))

    def effects(self) -> list[Effect]:
        """All of them, in order."""
        path = Path(self._path)
        lines = path.read_text().splitlines() if path.exists() else []
        return [Effect(key, id_, int(a), int(t)) for key, id_, a, t in (line.split("\t") for line in lines)]

    def times(self) -> Counter[str]:
        """How often each effect happened."""
        return Counter(effect.key for effect in self.effects())

    def clear(self) -> None:
        """Forget everything."""
        Path(self._path).unlink(missing_ok=True)
