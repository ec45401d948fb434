"""Who waits for what in this process: workers for work, callers for results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


class Hub:
    """News of one engine, from itself and from its store."""

    def __init__(self) -> None:
        self.on_work: list[Callable[[Iterable[int]], None]] = []
        self.on_due: list[Callable[[int], None]] = []
        self.on_cancel: list[Callable[[str], None]] = []
        self.on_news: list[Callable[[Iterable[str]], None]] = []
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def work(self, lanes: Iterable[int]) -> None:
        """These lanes have work; no lanes means: some lane."""
        for tell in self.on_work:
            tell(lanes)

    def due(self, at: int) -> None:
        """Something becomes ready at this time, in microseconds."""
        for tell in self.on_due:
            tell(at)

    def cancel(self, id: str) -> None:
        """Someone wants this execution cancelled; "" means: some execution."""
        for tell in self.on_cancel:
            tell(id)

    def news(self, ids: Iterable[str]) -> None:
        """Something came for these flows; no ids means: for some flow."""
        for tell in self.on_news:
            tell(ids)

    def done(self, ids: Iterable[str]) -> None:
        """These executions have ended."""
        if self._waiting:
            for id_ in ids:
                for event in self._waiting.get(id_, ()):
                    event.set()

    def stirred(self) -> None:
        """Something happened elsewhere: everybody has a look."""
        self.work(())
        self.cancel("")
        self.news(())
        self.done(self._waiting)

    @contextmanager
    def watching(self, id_: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever there may be news of an execution."""
        event = asyncio.Event()
        self._waiting.setdefault(id_, set()).add(event)
        try:
            yield event
        finally:
            watchers = self._waiting[id_]
            watchers.discard(event)
            if not watchers:
                del self._waiting[id_]
