"""Temporary files of the tests in memory, where there is room: what thousands of fsyncs write is deleted anyway."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH = 4 * 1024**3
"""Bytes that have to be free: servers of several processes, and a database for each test that runs."""


def keep_scratch_files_in_memory() -> None:
    """Let this process and those that it starts make their temporary files in memory.

    Whoever has set TMPDIR has decided. A container often has a few megabytes there: then the disk is used.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < ENOUGH:
        return
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None  # it is looked for again
