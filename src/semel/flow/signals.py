"""Signals of a workflow: those that came and wait for a listener, and listeners that wait for one."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from semel import codec
from semel.errors import InvalidValue, NotDecodable, phrase
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


def reader_of(kind: Any) -> Callable[[bytes | None], Any]:
    """Reads the payload of a signal as a type; no payload is None."""
    try:
        return _kept_reader(kind)
    except TypeError:  # not every type can be hashed
        return _reader(kind)


def _reader(kind: Any) -> Callable[[bytes | None], Any]:
    try:
        decode = codec.reader_of(kind).decode
    except (TypeError, NameError) as error:
        raise InvalidValue(f"type={kind!r} is not a type that JSON can be read as: {phrase(error)}.") from error

    def read(data: bytes | None) -> Any:
        try:
            return decode(b"null" if data is None else data)
        except Exception as error:  # a model may have code of its own
            raise NotDecodable(f"the payload of the signal does not fit {kind!r}: {phrase(error)}.") from error

    return read


_kept_reader = functools.lru_cache(1024)(_reader)
