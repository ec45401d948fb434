"""The kept fixtures, and worlds in which a test goes on with one of them at the time at which it was recorded."""

from __future__ import annotations

import gzip
import itertools
import json
import subprocess
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import semel
from bench.server import Postgres
from tests.stored import shop
from tests.world import SKEWED_NOW, World

HERE = Path(__file__).parent
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Kept:
    """What one release has stored."""

    folder: Path

    @property
    def name(self) -> str:
        """The number of its newest migration."""
        return self.folder.name

    @cached_property
    def about(self) -> dict[str, Any]:
        """Which release and commit it was, and when."""
        found: dict[str, Any] = json.loads((self.folder / "about.json").read_text())
        return found

    def data(self, file: str) -> bytes:
        """The contents of one of its files."""
        return gzip.decompress((self.folder / f"{file}.gz").read_bytes())

    def histories(self, file: str) -> dict[str, Any]:
        """Histories by their names."""
        found: dict[str, Any] = json.loads(self.data(f"{file}.json"))
        return found

    def ahead(self, engine: str) -> float:
        """By how many seconds a clock is ahead that shows when it was recorded."""
        return float(self.about["recorded_at"][engine] - time.time())


KEPT = [Kept(path.parent) for path in sorted(HERE.glob("*/about.json"))]


class RestoredWorld(World):
    """A database from a fixture. Its clock shows the time of the recording: retention and windows run from there."""

    def __init__(self, kept: Kept, engine: str, url: str) -> None:
        super().__init__(engine, url)
        self.kept = kept
        self._skew = kept.ahead(engine)

    def program(self) -> semel.App:
        """The program of `shop.py` on it, with nothing done yet in this process."""
        shop.RAN.clear()
        shop.MENDED.clear()
        app = self.app(auto_migrate=True)
        app.tasks = shop.app.tasks
        return app


def restored_sqlite(kept: Kept, folder: Path, file: str = "sqlite") -> Path:
    """A copy of a kept database file."""
    path = folder / f"{file}.db"
    path.write_bytes(kept.data(f"{file}.db"))
    return path


def restore_postgres(kept: Kept, server: Postgres) -> str:
    """Restore a dump into a database that serves as a template, with a clock that tests can move; its name."""
    name = f"stored_{kept.name}"
    server.sql(f"create database {name}")
    psql = [str(server.bin / "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", server.url(name)]
    done = subprocess.run(psql, input=kept.data("postgres.sql"), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    server.sql(SKEWED_NOW, name)
    return name


def restored_postgres(server: Postgres, template: str, ahead: float) -> str:
    """A database of a test's own; its name."""
    name = f"{template}_{next(_numbers)}"
    server.sql(f"create database {name} template {template}")
    server.sql(f"update semel_skew set micros = {round(ahead * 1_000_000)}", name)
    return name
