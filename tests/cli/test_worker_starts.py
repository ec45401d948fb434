"""A worker process waits for its database when it starts, for a bounded time."""

from __future__ import annotations

import logging

import pytest

import semel
from semel.cli.worker import _start
from semel.cli.worker_processes import StopRequests


async def test_a_worker_gives_up_a_database_that_stays_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tries = []

    async def begin() -> str:
        tries.append(1)
        raise semel.EngineUnavailable("nobody answers.")

    with caplog.at_level(logging.WARNING, "semel.worker"), pytest.raises(semel.EngineUnavailable):
        await _start(begin, StopRequests(), patience=0.4)
    assert len(tries) > 1
    assert [record.getMessage() for record in caplog.records] == [
        "cannot start yet, trying again for 0 s: nobody answers."
    ]


async def test_what_waiting_does_not_mend_ends_a_worker_at_once() -> None:
    async def begin() -> str:
        raise semel.MigrationNeeded("no tables.")

    with pytest.raises(semel.MigrationNeeded):
        await _start(begin, StopRequests())
