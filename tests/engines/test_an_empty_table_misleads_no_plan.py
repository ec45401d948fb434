"""PostgreSQL: tables that were empty when they were vacuumed are looked up by index like any other.

Of such a table the planner expects one row for as long as nobody analyzes it again, and would rather walk through it
than look a row up. By then it may hold a hundred thousand.
"""

import re
from typing import Any

import asyncpg
import pytest

from semel.engines.journal.script import load_queries
from semel.engines.postgres.connection import PLANS
from tests.world import World

TABLES = (
    "semel_attribute", "semel_dead", "semel_duplicate", "semel_flow", "semel_inbox", "semel_journal", "semel_later",
    "semel_permit", "semel_published", "semel_ready", "semel_seen", "semel_slip",
)  # fmt: skip
"""Those that get rows and lose them again. The permanent record is not among them."""
WALKS = {
    ("semel_ready", "stranded"), ("semel_later", "stranded"),  # the doctor asks for all of them
    ("semel_ready", "orphans"), ("semel_ready", "owned"), ("semel_ready", "take_back"),  # after an accident
    ("semel_ready", "backlog"), ("semel_later", "backlog"), ("semel_flow", "backlog"),  # `semel doctor` counts them
    ("semel_ready", "queue_depths"), ("semel_later", "queue_depths"),  # `semel queues` counts all work, once
    ("semel_flow", "strangers"),  # the first hundred of an index, with a heartbeat
    ("semel_seen", "failed_messages"),  # for `semel doctor`: those that an index holds
    ("semel_flow", "parked"),  # for `semel doctor`: those that an index holds
    ("semel_flow", "pulse"), ("semel_later", "pulse"),  # the first of an index
}  # fmt: skip
MANY = "update pg_class set reltuples = 100000, relpages = 2000 where relname like 'semel%' and relkind = 'r'"
EMPTIED = "update pg_class set reltuples = 0, relpages = 20 where relname = $1"


@pytest.mark.parametrize("table", TABLES)
async def test_rows_are_looked_up_whatever_the_planner_expects(postgres_world: World, table: str) -> None:
    app = postgres_world.app()
    await app.list()
    walked, looked = set(), 0
    connection = await asyncpg.connect(postgres_world.url, server_settings=PLANS)
    try:
        await connection.execute(MANY)
        await connection.execute(EMPTIED, table)
        for name, query in load_queries("semel.engines.postgres").items():
            if re.search(rf"\b{table}\b", query):
                plan = await plan_of(connection, query)
                scans = [at for at, step in enumerate(plan) if re.search(rf"Scan (using \w+ )?on {table}\b", step)]
                looked += len(scans)
                if not all(re.match(r"(Index|TID) Cond", (*plan, "")[at + 1]) for at in scans):
                    walked.add((table, name))
    finally:
        await connection.close()
    assert looked
    assert walked == {walk for walk in WALKS if walk[0] == table}


async def plan_of(connection: asyncpg.Connection, query: str) -> list[str]:
    """Its generic plan, line by line."""
    parameters = (await connection.prepare(query)).get_parameters()
    types = ", ".join(f"_{kind.name[:-2]}" if kind.name.endswith("[]") else kind.name for kind in parameters)
    await connection.execute(f"prepare looked_at {f'({types})' if types else ''} as {query}")
    nulls = ", ".join(["null"] * len(parameters))
    try:
        rows = await connection.fetch(f"explain (costs off) execute looked_at {f'({nulls})' if nulls else ''}")
        return [row[0].strip() for row in rows]
    finally:
        await connection.execute("deallocate looked_at")


SOME = 3000
EVENTS = f"""
insert into semel_event (namespace, id, type, source, state, activities, delivery, future, received_at, fingerprint,
  envelope)
select 'default', 'evt-' || n, 'paid', '/shop', 'routed', 'bill', n, false, n, repeat('f', 16)::bytea,
  repeat('x', 200)::bytea from generate_series(1, {SOME}) as g(n)
"""
IDS = [f"evt-{number}" for number in range(50)]
BY_ID: dict[str, tuple[Any, ...]] = {
    "known_events": ("default", IDS),
    "lock_events": ("default", 0, IDS),
    "route_events": ("default", IDS, IDS, IDS, IDS),
    "renew_events": ("default", IDS),
    "count_deliveries": ("default", IDS, [1] * 50, [1] * 50),
    "event_of": ("default", IDS[0]),
}
"""Statements of deliveries of events, with what they are given."""


async def test_events_are_looked_up_by_their_ids_and_not_by_their_namespace(postgres_world: World) -> None:
    """An index by age begins with the time: a plan that reads it by namespace reads all events that there are.

    Nobody has analyzed the table yet: that is how it is while the first thousands of events come in.
    """
    await postgres_world.app().list()
    queries = load_queries("semel.engines.postgres")
    found = {}
    connection = await asyncpg.connect(postgres_world.url, server_settings=PLANS)
    try:
        await connection.execute("alter table semel_event set (autovacuum_enabled = off)")
        await connection.execute(EVENTS)
        for name, given in BY_ID.items():
            rows = await connection.fetch(f"explain (costs off) {queries[name]}", *given)
            plan = " ".join(row[0] for row in rows)
            found[name] = set(re.findall(r"Scan (?:Backward )?(?:using (\w+) )?on semel_event\b", plan))
    finally:
        await connection.close()
    assert found == {name: {"semel_event_pkey"} for name in BY_ID}
