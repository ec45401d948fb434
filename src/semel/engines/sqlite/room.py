"""Room in the write-ahead log, made before it is needed.

To sync a file that has grown takes twice as long as to sync one that was overwritten, since its new length has to be
written too. A log grows until its first checkpoint, and is overwritten from then on. So it is made as long as it will
be at once: by a transaction that is larger than the cache, which SQLite therefore writes to the log, and that is
then rolled back.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import apsw

ROOM: Final = 16 << 20
"""Bytes: as much as the log holds when it is time for a checkpoint."""
_FEW: Final = 16


def make_room(db: apsw.Connection, path: str, fill: str) -> None:
    """Make the log of a database long, unless it is. `fill` is a statement that writes so many bytes.

    If that fails, the log grows by itself, as it is needed.
    """
    with contextlib.suppress(apsw.Error, OSError):
        if Path(path + "-wal").stat().st_size >= ROOM:
            return
        size = db.pragma("cache_size")
        db.pragma("cache_size", _FEW)
        try:
            db.execute("begin immediate")
            db.execute(fill, (ROOM,))
        finally:
            if db.in_transaction:
                db.execute("rollback")
            db.pragma("cache_size", size)
