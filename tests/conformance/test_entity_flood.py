"""One unique key for each message, without end: what is kept of them is bounded (S2-12, A20)."""

import asyncio
import os
import time

import pytest

import semel
from tests.world import World

MANY = int(os.environ.get("SEMEL_FLOOD", "20000"))
KEYS = 500


@pytest.mark.slow
@pytest.mark.journal("looks at rows; on Temporal: tests/engines/temporal/test_entity_history_is_short.py")
async def test_a_flood_of_unique_keys_leaves_no_more_than_its_last_minute(world: World) -> None:
    app = world.app()

    @app.entity(max_keys=KEYS)
    class Meter:
        total: int = 0

        @semel.handler
        async def add(self, ctx: semel.EntityContext) -> int:
            self.total += 1
            return self.total

    meter = app.entity(Meter, "m")
    most = {"semel_seen": 0, "semel_journal": 0, "semel_inbox": 0}
    async with world.worker(app):
        began = time.perf_counter()
        for start in range(0, MANY, 1000):
            await asyncio.gather(*(meter.send("add", dedup_key=f"k{n}") for n in range(start, start + 1000)))
            assert await meter.ask("add", dedup_key=f"k{start + 999}", timeout="60s") == start + 1000
            await world.advance("30s")
            for table in most:
                most[table] = max(most[table], await world.count(table))
        spent = time.perf_counter() - began
        await world.advance("2m")
        assert await meter.ask("add", dedup_key="last", timeout="60s") == MANY + 1
        assert await meter.ask("add", dedup_key=f"k{MANY - 1}", timeout="60s") == MANY
        for table in most:
            assert await world.count(table) <= KEYS + 1, table
    print(f"\n{world.engine}: {MANY:,} keyed messages to one entity, {MANY / spent:,.0f}/s; at most {most}")
    assert most["semel_seen"] <= 4_000
    assert most["semel_journal"] <= 2
    explained = await app.explain(meter.key, kind="entity")
    assert "message keys were forgotten before the window was over" in str(explained)
