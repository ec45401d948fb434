"""PostgreSQL: every statement of the records finds its rows by an index, whatever the statistics say."""

import re

import asyncpg

from semel.engines.journal.script import load_queries
from semel.engines.postgres.connection import PLANS
from tests.world import World


async def test_no_statement_walks_through_a_table_or_sorts(postgres_world: World) -> None:
    connection = await asyncpg.connect(postgres_world.url, server_settings=PLANS)
    try:
        queries = {name: sql for name, sql in load_queries("semel.engines.postgres").items() if "semel_record_" in sql}
        assert len(queries) > 15
        for name, sql in queries.items():
            await connection.execute(f"prepare {name} as {sql}")
            nulls = ", ".join(["null"] * max(map(int, re.findall(r"\$(\d+)", sql))))
            plan = [row[0] for row in await connection.fetch(f"explain (costs off) execute {name} ({nulls})")]
            bad = r"Seq Scan on semel_record|Sort|Filter: (?!\(status = 'running')"
            assert not [step for step in plan if re.search(bad, step)], (name, plan)
    finally:
        await connection.close()
