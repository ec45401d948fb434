"""Schedules of every second on Temporal, while its server, and then the records database, is away for some seconds."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import semel
from semel.contract.slot_policy import Misfire
from semel.contract.times import instant
from semel.testing.temporal_server import temporal_server
from tests.faults.schedule_invariants import Grid, slot_faults
from tests.faults.server import fragile_postgres
from tests.faults.temporal.place import retry_unavailable
from tests.world import eventually

pytestmark = pytest.mark.proof
SECONDS = 30


@pytest.mark.timeout(200)
async def test_each_slot_runs_once_although_server_and_records_were_away(tmp_path: Path) -> None:
    with fragile_postgres() as records, temporal_server(tmp_path / "server") as server:
        records.sql("create database records")
        url = records.url("records")
        app = semel.App(server.url("shop"), config=None, records=url, auto_migrate=True)
        seen: list[str] = []

        @app.task(retry=5)
        async def note() -> None:
            seen.append(str(semel.current().key))

        async with app:
            await app.migrate()
            begin = datetime.fromtimestamp(datetime.now(UTC).timestamp() // 1 + 2, UTC)
            for misfire in Misfire:
                await app.schedules.put(
                    misfire.value, note, every="1s", start_at=begin, end_at=begin + timedelta(seconds=SECONDS),
                    misfire=misfire, overlap="allow_all", max_catchup=2, grace="1s",
                )  # fmt: skip
            slots = Grid(instant(begin), 1_000_000, SECONDS).slots()
            async with app.worker(lease="2s"):
                await eventually(lambda: len(seen) > 3)
                await asyncio.to_thread(server.kill)
                await asyncio.sleep(4)
                await asyncio.to_thread(server.restart)
                before = len(seen)
                await eventually(lambda: len(seen) > before)
                records.end(signal.SIGQUIT)
                await asyncio.sleep(4)
                await asyncio.to_thread(records.start)

                async def all_have_run() -> bool:
                    found = await retry_unavailable(app.schedules.list)
                    decided = all(instant(one.cursor) >= slots[-1] and not one.waiting for one in found)
                    return decided and {key for (key,) in await ask(url, "select key from semel_run")} == set(seen)

                await eventually(all_have_run, within=90)

        async def sql(text: str) -> list[tuple[Any, ...]]:
            return await ask(url, text)

        for misfire in Misfire:
            assert await slot_faults(sql, misfire.value, slots) == []
        reasons = {reason for (reason,) in await sql("select reason from semel_skipped where schedule = 'skip'")}
        assert reasons - {"late"} == {"engine down"}, "the worker was there all the while, and was not answered"
        assert await sql("select count(*) from semel_run where request is not null") == [(0,)]
    again = [key for key, times in Counter(seen).items() if times > 1]
    assert len(again) <= 12, "only what was under way when the server died may have run again"


async def ask(url: str, text: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(text)]
    finally:
        await connection.close()
