"""The messages an entity has seen: which ones are duplicates, and whose answers are kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from semel.contract.window import DedupWindow

PRIVATE: Final = " "
"""Begins the key of a question that was asked without one. No key that people give begins with it."""
QUESTIONS: Final = ("1h", 10_000)
"""How long, and how many, answers to such questions are kept: nobody but their asker can want them."""
GRACE: Final = 60_000_000
"""Microseconds for which an answer stays readable, also when its key had to make room for others."""
MOST_LATE: Final = 10_000
"""How many such answers are kept, whoever sends how much."""


class Seen:
    """Keys by the time their messages came; `rows` are those that are written down: number, key, when it was done."""

    def __init__(self, window: DedupWindow, rows: Iterable[tuple[int, str, int]]) -> None:
        self._given = _Shelf(window)
        self._made = _Shelf(DedupWindow(*QUESTIONS))
        self._last = 0
        self._gone: list[int] = []
        for n, key, at in rows:
            self.push(key, at)
            self._last = n
            self._shelf(key).rows[key] = (n, at)
        self._told = window.overflowed

    def push(self, key: str, at: int) -> bool:
        """True: the key is new. False: a message with it came within the window before."""
        shelf = self._shelf(key)
        if not shelf.window.push_at(key.removeprefix(PRIVATE), at):
            return False
        if (old := shelf.rows.pop(key, None)) is not None:
            self._gone.append(old[0])  # the answer to its namesake, whose window is over
        return True

    def done(self, key: str, now: int) -> int:
        """Its message is handled: the number its answer is written under."""
        self._last += 1
        self._shelf(key).rows[key] = (self._last, now)
        return self._last

    def forget(self, now: int) -> list[int]:
        """The numbers of answers that need not be kept any longer."""
        gone, self._gone = self._gone, []
        for shelf in (self._given, self._made):
            rows = shelf.rows
            while rows:
                key = next(iter(rows))
                n, since = rows[key]
                late = len(rows) - len(shelf.window)
                if key.removeprefix(PRIVATE) in shelf.window or (now - since < GRACE and late <= MOST_LATE):
                    break
                del rows[key]
                gone.append(n)
        return gone

    def overflowed(self) -> int:
        """How many keys had to be forgotten before their window was over, since this was asked last."""
        told, self._told = self._told, self._given.window.overflowed
        return self._told - told

    def _shelf(self, key: str) -> _Shelf:
        return self._made if key.startswith(PRIVATE) else self._given


class _Shelf:
    def __init__(self, window: DedupWindow) -> None:
        self.window = window
        self.rows: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Answers that are written down, oldest first: number, and since when."""
