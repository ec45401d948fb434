"""A bell between processes: rung after each commit, heard through inotify on Linux, by a short poll elsewhere.

The database's own files would not do: they change before a commit can be seen, and the moment from which it
can be seen shows in none of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

_IN_MODIFY: Final = 0x2
_POLL: Final = 0.02
_SLOW_POLL: Final = 1.0
BELL: Final = "-wake"
"""Beside `semel.db` lies `semel.db-wake`: a byte that is overwritten. It holds nothing and may be deleted."""


class Bell:
    """Rings for every process that watches the database."""

    def __init__(self, path: str) -> None:
        self._path = path + BELL
        self._fd: int | None = None

    def ring(self) -> None:
        """Cheap: one byte into the page cache. Who does not hear it polls."""
        with contextlib.suppress(OSError):
            if self._fd is None:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.pwrite(self._fd, b".", 0)

    def close(self) -> None:
        """Ring no more."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class Watch:
    """Calls back in the loop when the database may have changed."""

    def __init__(self, path: str, look: Callable[[], None]) -> None:
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._fd = self._inotify(path + BELL)
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._readable, self._fd)
        self._every = _POLL if self._fd is None else _SLOW_POLL
        self._timer = self._loop.call_later(self._every, self._tick)

    def _inotify(self, bell: str) -> int | None:
        """On the file itself: in its folder the database writes, and each write would wake this process."""
        try:
            Path(bell).touch()
            libc = ctypes.CDLL(None, use_errno=True)
            fd = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
            if fd < 0:
                return None
            if libc.inotify_add_watch(fd, os.fsencode(bell), _IN_MODIFY) < 0:
                os.close(fd)
                return None
        except (OSError, AttributeError):
            return None
        return fd

    def _readable(self, fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(fd, 65536)
        self._look()

    def _tick(self) -> None:
        self._look()
        self._timer = self._loop.call_later(self._every, self._tick)

    def close(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None
