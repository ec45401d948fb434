"""Signals of a workflow: those that came and wait for a listener, and listeners that wait for one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from semel.flow.commands import Command
from semel.flow.entries import Signalled


class Signals:
    """First in, first out, for each name."""

    def __init__(self, waiting: Iterable[Signalled]) -> None:
        self._kept: dict[str, deque[Signalled]] = {}
        self._listeners: dict[str, deque[Command]] = {}
        for signal in waiting:
            self.keep(signal)

    @property
    def waiting(self) -> tuple[Signalled, ...]:
        """Those that nobody has listened for yet."""
        return tuple(signal for kept in self._kept.values() for signal in kept)

    def keep(self, signal: Signalled) -> None:
        """Nobody listens for it yet."""
        self._kept.setdefault(signal.name, deque()).append(signal)

    def listen(self, command: Command) -> Signalled | None:
        """The first that waits, or None: the command waits now."""
        kept = self._kept.get(command.name)
        if kept:
            return kept.popleft()
        self._listeners.setdefault(command.name, deque()).append(command)
        return None

    def leave(self, command: Command) -> None:
        """It waits no longer."""
        self._listeners[command.name].remove(command)

    def listener(self, signal: Signalled) -> Command | None:
        """Who has waited longest for such a signal, or None: the signal waits now."""
        listeners = self._listeners.get(signal.name)
        while listeners:
            command = listeners.popleft()
            if command.future is not None and not command.future.done():
                return command
        self.keep(signal)
        return None
