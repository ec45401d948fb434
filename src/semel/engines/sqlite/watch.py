"""Notice that another process has written to the file: inotify on Linux, a short poll elsewhere."""

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
_AGAIN: Final = (0.002, 0.005, 0.02, 0.1)
"""The file changes before the commit can be seen, and the fsync in between tells no one: look again after these."""


class Watch:
    """Calls back in the loop when the file may have changed."""

    def __init__(self, path: str, look: Callable[[], None]) -> None:
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._wal = Path(path).name.encode() + b"-wal"
        self._again: asyncio.TimerHandle | None = None
        self._fd = self._inotify(str(Path(path).resolve().parent))
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._readable, self._fd)
        self._every = _POLL if self._fd is None else _SLOW_POLL
        self._timer = self._loop.call_later(self._every, self._tick)

    def _inotify(self, folder: str) -> int | None:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            fd = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
            if fd < 0:
                return None
            if libc.inotify_add_watch(fd, os.fsencode(folder), _IN_MODIFY) < 0:
                os.close(fd)
                return None
        except (OSError, AttributeError):
            return None
        return fd

    def _readable(self, fd: int) -> None:
        events = b""
        with contextlib.suppress(BlockingIOError):
            events = os.read(fd, 65536)
        if self._wal in events:
            self._look_again(0)

    def _look_again(self, times: int) -> None:
        self._look()
        if self._again is not None:
            self._again.cancel()
        if times < len(_AGAIN):
            self._again = self._loop.call_later(_AGAIN[times], self._look_again, times + 1)

    def _tick(self) -> None:
        self._look()
        self._timer = self._loop.call_later(self._every, self._tick)

    def close(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        if self._again is not None:
            self._again.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None
