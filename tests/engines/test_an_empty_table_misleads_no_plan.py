"""PostgreSQL: a queue that was empty when it was vacuumed is worked off as fast as any other."""

import asyncpg

from semel.engines.journal.script import load_queries
from semel.engines.postgres.wire import PLANS
from tests.world import World

WORK = {
    "claim": "bigint, int[], bigint[], text[], bigint",
    "settle": "bigint, int[], bigint[], text[], bytea[], bytea[]",
    "retry": "bigint, int[], bigint[], bytea[], bigint[]",
    "release": "bigint, int[], bigint[]",
    "note_progress": "bigint, int[], bigint[], text[]",
    "cancels": "bigint, int[], bigint[]",
}


async def test_work_is_looked_up_whatever_the_planner_expects(postgres_world: World) -> None:
    app = postgres_world.app()

    @app.task
    async def work(n: int) -> None: ...

    await app.enqueue_many(work.call(n) for n in range(1000))
    connection = await asyncpg.connect(postgres_world.url, server_settings=PLANS)
    try:
        # As autovacuum leaves it behind when it comes by while nothing waits: pages, and not a row in them.
        await connection.execute("update pg_class set reltuples = 0, relpages = 20 where relname = 'semel_ready'")
        queries = load_queries("semel.engines.postgres")
        for name, types in WORK.items():
            await connection.execute(f"prepare {name} ({types}) as {queries[name]}")
            nulls = ", ".join(["null"] * (types.count(",") + 1))
            plan = [row[0].strip() for row in await connection.fetch(f"explain (costs off) execute {name} ({nulls})")]
            scans = [at for at, step in enumerate(plan) if "Scan using semel_ready_pkey on semel_ready" in step]
            assert scans, (name, plan)
            assert all(plan[at + 1].startswith("Index Cond: ((lane =") for at in scans), (name, plan)
            assert not any(step.startswith("Join Filter") for step in plan), (name, plan)
    finally:
        await connection.close()
