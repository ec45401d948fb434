"""The provider's ledger: every call it got, with its effect key, on disk before the call is answered."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

LEDGER = "ledger.jsonl"


@dataclass(frozen=True, slots=True)
class Entry:
    """One call, as the ledger has it. `charged` is False where an earlier call under the key had charged."""

    at: float
    key: str
    order: str
    cents: int
    charge: str
    charged: bool


class Damaged(Exception):
    """Someone else has written into the ledger."""


def read_ledger(folder: Path) -> list[Entry]:
    """Every call so far. A last line that is still being written is not there yet."""
    try:
        lines = (folder / LEDGER).read_text(encoding="utf-8").split("\n")[:-1]
    except FileNotFoundError:
        return []
    try:
        return [Entry(**json.loads(line)) for line in lines]
    except (ValueError, TypeError) as error:
        raise Damaged(f"the ledger {folder / LEDGER} cannot be read: {error}") from error


class Ledger:
    """The provider's memory, on disk before anyone is answered."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LEDGER
        self._lock = threading.Lock()
        self._charges = {entry.key: entry.charge for entry in read_ledger(folder)}

    def call(self, key: str, order: str, cents: int) -> Entry:
        """Charge, unless this key has been charged."""
        with self._lock:
            known = self._charges.get(key)
            charge = known or f"ch_{len(self._charges) + 1:04}"
            entry = Entry(time.time(), key, order, cents, charge, charged=known is None)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(entry)) + "\n")
                file.flush()
                os.fsync(file.fileno())
            self._charges[key] = charge
            return entry
