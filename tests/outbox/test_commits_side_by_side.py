"""64 commits of the business at once, with and without a start: wake-ups do not make them wait for each other.

PostgreSQL commits transactions with a NOTIFY one after another. Here each flush of its log takes 20 ms, which commits
share unless they are in a queue: 64 of them take a few flushes, or 64.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import semel
from tests.faults.server import fragile_postgres
from tests.outbox.places import PLACES

pytestmark = [pytest.mark.slow, pytest.mark.alone]
CALLERS = 64
ROUNDS = 25
FLUSH = 0.02
SETTINGS = {"commit_delay": f"{FLUSH * 1e6:.0f}", "commit_siblings": "1", "max_connections": "120"}


async def commit_all(connections: list[Any], start: Callable[[Any, str], Any] | None, name: str) -> float:
    """Seconds that each connection takes for its commits, all at once."""

    async def caller(number: int, connection: Any) -> None:
        for turn in range(ROUNDS):
            async with connection.transaction():
                await connection.execute("insert into sold (who) values ($1)", number)
                if start is not None:
                    await start(connection, f"{name}:{number}:{turn}")

    began = time.monotonic()
    await asyncio.gather(*(caller(number, one) for number, one in enumerate(connections)))
    return time.monotonic() - began


@pytest.mark.parametrize("where", ["outbox", "engine"])
async def test_a_start_does_not_make_commits_wait_for_each_other(
    where: str, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    with fragile_postgres(**SETTINGS) as server:
        url = server.url("postgres")
        place = PLACES["postgres"](url)
        await place.prepare()
        await place.sql("create table sold (id bigserial, who integer)")
        engine = f"sqlite:///{tmp_path}/engine.db" if where == "outbox" else url
        async with AsyncExitStack() as stack:
            app = await stack.enter_async_context(semel.App(engine, config=None, outbox=url, auto_migrate=True))

            @app.task
            async def ship(order: str) -> str:
                return order

            await app.migrate()
            await stack.enter_async_context(app.relay() if where == "outbox" else app.worker())

            async def start(connection: Any, key: str) -> None:
                await app.enqueue(ship, key, task_id=key, connection=connection)

            connections = [await asyncpg.connect(url) for _ in range(CALLERS)]
            for one in connections:
                stack.push_async_callback(one.close)
            await commit_all(connections, start, "first")  # connects, prepares, wakes
            alone = min([await commit_all(connections, None, "") for _ in range(2)])
            beside = min([await commit_all(connections, start, f"again-{n}") for n in range(2)])
        commits = CALLERS * ROUNDS
        rates = f"{commits / alone:.0f} commits/s without a start, {commits / beside:.0f} with one"
        tell(f"{where}: {rates} ({alone / beside:.2f})")
        assert beside < commits * FLUSH, "as slow as one after another"
