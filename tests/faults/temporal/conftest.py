"""A place on the server that all tests share."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path

import pytest

from semel.testing.temporal_server import TemporalServer
from tests.faults.temporal.place import Place, prepare

_numbers = itertools.count(1)


@pytest.fixture
def place(temporal_server: TemporalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A namespace of its own; records on SQLite."""
    url = temporal_server.url(f"kitchen{next(_numbers)}-{os.getpid()}")
    made = Place(url, f"sqlite:///{tmp_path}/records.db", str(tmp_path))
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    asyncio.run(prepare(made))
    return made
