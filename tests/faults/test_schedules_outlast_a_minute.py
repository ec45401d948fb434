"""The database, or the Temporal server, is away for a minute: each misfire policy does what it says afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

import semel
from semel.contract.slot_policy import Misfire
from semel.contract.times import instant
from semel.testing.temporal_server import temporal_server
from tests.faults.proofs import Tell
from tests.faults.schedule_invariants import Grid, slot_faults
from tests.faults.server import fragile_postgres
from tests.faults.temporal.place import retry_unavailable
from tests.world import eventually

EVERY, AWAY = 5, 60
SLOTS = 24
CAUGHT_UP = 2


class Servers(NamedTuple):
    """What an app needs, and one of them that can go away."""

    app: semel.App
    database: str
    end: Callable[[], None]
    start: Callable[[], None]


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[Servers]:
    """A database that crashes: `stop -m immediate`."""
    with fragile_postgres() as server:
        server.sql("create database shop")
        url = server.url("shop")
        app = semel.App(url, config=None, auto_migrate=True)
        yield Servers(app, url, lambda: server.end(signal.SIGQUIT), server.start)


@contextlib.contextmanager
def temporal(folder: Path) -> Iterator[Servers]:
    """A cluster that dies of SIGKILL; the records are there all the while."""
    with fragile_postgres() as records, temporal_server(folder / "server") as server:
        records.sql("create database records")
        url = records.url("records")
        app = semel.App(server.url("shop"), config=None, records=url, auto_migrate=True)
        yield Servers(app, url, server.kill, server.restart)


@pytest.mark.proof
@pytest.mark.timeout(400)
@pytest.mark.parametrize("servers", [postgres, temporal])
async def test_policies_after_a_minute_without_an_engine(servers: Any, tmp_path: Path, tell: Tell) -> None:
    with servers(tmp_path) as them:
        app, seen = them.app, list[semel.Run]()

        @app.task(retry=5)
        async def note(run: semel.Run) -> None:
            seen.append(run)

        async with app:
            await app.migrate()
            begin = datetime.fromtimestamp(datetime.now(UTC).timestamp() // 1 + EVERY, UTC)
            end = begin + timedelta(seconds=EVERY * SLOTS)
            for misfire in Misfire:
                await app.schedules.put(
                    misfire.value, note, every=f"{EVERY}s", start_at=begin, end_at=end,
                    misfire=misfire, overlap="allow_all", max_catchup=CAUGHT_UP,
                )  # fmt: skip
            slots = Grid(instant(begin), EVERY * 1_000_000, SLOTS).slots()
            async with app.worker():
                await eventually(lambda: {run.schedule for run in seen} == set(Misfire))
                await asyncio.to_thread(them.end)
                await asyncio.sleep(AWAY)
                await asyncio.to_thread(them.start)

                async def all_decided() -> bool:
                    found = await retry_unavailable(app.schedules.list)
                    return all(instant(one.cursor) >= slots[-1] and not one.waiting for one in found)

                await eventually(all_decided, within=180)

                async def all_have_run() -> bool:
                    return {key for (key,) in await ask("select key from semel_run")} == {run.key for run in seen}

                async def ask(text: str) -> list[tuple[Any, ...]]:
                    connection = await asyncpg.connect(them.database)
                    try:
                        return [tuple(row) for row in await connection.fetch(text)]
                    finally:
                        await connection.close()

                await eventually(all_have_run)
            for misfire in Misfire:
                assert await slot_faults(ask, misfire.value, slots) == []
            told = {(id_, why): int(count) for id_, why, count in await ask(REASONS)}
    least = AWAY // EVERY - 3  # those at both ends may have been on time
    ran = Counter((run.schedule, run.why.value) for run in seen)
    tell(f"a minute without the engine ({servers.__name__}): skipped {told}, ran {dict(ran)}")
    assert told["skip", "engine down"] >= least, "the worker was there, and says why nothing ran"
    assert told["catchup", "over the catch-up limit"] >= least - CAUGHT_UP
    assert ran["catchup", "catchup"] >= CAUGHT_UP
    assert max(run.window.slots for run in seen if run.schedule == "compress") >= least
    assert told["compress", "compressed"] >= least - 1
    for misfire, reason in told:
        assert reason in {"skip": ("engine down", "late"), "compress": ("compressed",)}.get(
            misfire, ("over the catch-up limit",)
        )


REASONS = "select schedule, reason, sum(slots) from semel_skipped where reason <> 'before start' group by 1, 2"
