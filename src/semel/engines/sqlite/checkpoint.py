"""Checkpoints of the write-ahead log, made by the engine while it holds the write lock.

SQLite before 3.51.3 can lose commits when a checkpoint that holds no write lock, as automatic ones do, meets a
connection that starts the log anew. So automatic checkpoints are off on our connections, whichever library they use,
and a second connection copies the log into the file while the first has a write transaction open: nobody can start
the log anew meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Final

from semel.engines.sqlite.driver import Connection

DUE: Final = 4000
"""Frames in the log, each a page, from which on it is copied into the file."""
MORE: Final = 1000
"""Frames after which it is tried again where a reader kept the log from being started anew."""
PAUSE: Final = 0.05
"""Seconds between two checkpoints at least."""
LOOK_EVERY: Final = 0.002
"""Seconds between two looks at the log at least: many small commits need not look each time."""
LOG: Final = "-wal"
_HEADER: Final = 32
_FRAME_HEADER: Final = 24


class Checkpoints:
    """Watches how long the log is, and makes checkpoints. Used by the thread of the writer only."""

    def __init__(self, path: str, connect: Callable[[], Connection]) -> None:
        # SQLite resolves links too, and puts the log beside the file itself.
        self._log_path = os.path.realpath(path) + LOG
        self._connect = connect
        self._helper: Connection | None = None
        self._log: int | None = None
        self._generation = b""
        self._due = DUE
        self._next_look = 0.0

    def are_due(self) -> bool:
        """Has the log grown long, whoever wrote to it? Costs two short reads of the log, if any."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_EVERY
        with contextlib.suppress(OSError):
            if self._log is None:
                # No library locks the log itself, so this may be closed without dropping a lock.
                self._log = os.open(self._log_path, os.O_RDONLY | os.O_CLOEXEC)
            return self._is_long(self._log)
        return False

    def _is_long(self, log: int) -> bool:
        """Does frame number `_due` belong to what is in the log now? Each start of the log has its own salt."""
        header = os.pread(log, _HEADER, 0)
        salt = header[16:24]
        if salt != self._generation:
            self._generation, self._due = salt, DUE
        page = int.from_bytes(header[8:12], "big")
        frame = os.pread(log, 16, _HEADER + (self._due - 1) * (_FRAME_HEADER + page))
        return len(frame) == 16 and frame[8:16] == salt

    def make(self) -> None:
        """Copy the log into the file. The caller has a write transaction open that has written nothing."""
        if self._helper is None:
            self._helper = self._connect()
        _, frames, _ = self._helper.execute("pragma wal_checkpoint(passive)")[0]
        self._due = max(frames, 0) + MORE
        self._next_look = time.monotonic() + PAUSE

    def close(self) -> None:
        """Let go of the file and of its log."""
        if self._helper is not None:
            self._helper.close()
            self._helper = None
        if self._log is not None:
            os.close(self._log)
            self._log = None
