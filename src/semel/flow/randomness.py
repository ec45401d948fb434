"""Chance that comes out the same each time a run is replayed."""

from __future__ import annotations

import hashlib
import random


class Dice:
    """Of one workflow, and of one run of it at a time."""

    def __init__(self, seed: str) -> None:
        self._seed = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=7).digest(), "big")
        self._run = 0
        self._random: random.Random | None = None

    def of(self, run: int) -> random.Random:
        """Those of a run; made when they are asked for, since most workflows throw none."""
        if self._random is None or run != self._run:
            self._run, self._random = run, random.Random(self.salt(run))
        return self._random

    def salt(self, run: int) -> int:
        """A number that no other run has."""
        return self._seed + (run << 32)
