"""Schedules of a cluster are kept in the records database: without one they are refused, and a worker says so."""

from __future__ import annotations

import logging

import pytest

import semel
from tests.temporal_world import TemporalWorld


async def test_without_records_schedules_are_refused_and_a_worker_says_that_they_do_not_fire(
    cluster: TemporalWorld, caplog: pytest.LogCaptureFixture
) -> None:
    app = cluster.app(records=None)

    @app.on_schedule("0 9 * * *", id="nightly")
    @app.task
    async def digest() -> str:
        return "done"

    with pytest.raises(semel.ConfigError, match="records"):
        await app.apply()
    with caplog.at_level(logging.WARNING, "semel.schedules"):
        async with cluster.worker(app):
            assert await (await app.enqueue(digest)).result("60s") == "done"
    (told,) = [record.getMessage() for record in caplog.records if record.name == "semel.schedules"]
    assert told.startswith("the schedules of this app (nightly) do not fire: ")
    assert all(one.ok for one in await app.doctor() if "schedule" in one.what)
