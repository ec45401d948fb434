"""A worker process waits for its database when it starts, for a bounded time."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import semel
from semel.cli.worker import begin, engine_name
from semel.cli.worker_processes import StopRequests
from tests.cli.shell import await_line, process, shop
from tests.world import World


async def test_a_worker_gives_up_a_database_that_stays_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tries = []

    async def start() -> str:
        tries.append(1)
        raise semel.EngineUnavailable("nobody answers.")

    with caplog.at_level(logging.WARNING, "semel.worker"), pytest.raises(semel.EngineUnavailable):
        await begin(start, StopRequests(), patience=0.4)
    assert len(tries) > 1
    assert [record.getMessage() for record in caplog.records] == [
        "cannot start yet, trying again for 0 s: nobody answers."
    ]


async def test_what_waiting_does_not_mend_ends_a_worker_at_once() -> None:
    async def start() -> str:
        raise semel.MigrationNeeded("no tables.")

    with pytest.raises(semel.MigrationNeeded):
        await begin(start, StopRequests())


def test_a_worker_starts_on_a_url_with_several_hosts(postgres_world: World, tmp_path: Path) -> None:
    there = postgres_world.url.partition("@")[2]
    several = World("postgres", f"postgresql://postgres:secret@127.0.0.1:1,{there}")
    running = process("worker", f"{shop(several, tmp_path)}:app", cwd=tmp_path)
    try:
        line = await_line(running, "ready")
    finally:
        running.kill()
        running.communicate()
    assert f"on postgresql://127.0.0.1:1,{there}" in line
    assert "secret" not in line


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://shop:pass@one:5432,two:5433/shop?sslmode=require", "postgresql://one:5432,two:5433/shop"),
        ("postgresql:///shop?host=one,two", "postgresql:///shop"),
        ("sqlite:///semel.db", "sqlite:///semel.db"),
        ("temporal://127.0.0.1:7233/default", "temporal://127.0.0.1:7233/default"),
    ],
)
def test_a_worker_names_its_database_without_secrets(url: str, shown: str) -> None:
    assert engine_name(url) == shown
