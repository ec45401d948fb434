"""A transaction of a workflow that loses a deadlock is run again: it is nobody's failure."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import asyncpg

import semel
from tests.world import World, eventually


async def test_a_deadlock_is_tried_again(postgres_world: World) -> None:
    app, runs = postgres_world.app(), []
    locked, may_go_on = threading.Event(), threading.Event()

    def swap(tx: Any, first: int, second: int) -> int:
        runs.append(first)
        tx.execute("set local deadlock_timeout = '10ms'")
        tx.execute("update account set cents = cents + 1 where id = $1", first)
        if len(runs) == 1:
            locked.set()
            may_go_on.wait(60)
        tx.execute("update account set cents = cents + 1 where id = $1", second)
        return len(runs)

    @app.workflow
    async def move(ctx: semel.Context) -> int:
        return await ctx.transaction(swap, 1, 2)

    other = await asyncpg.connect(postgres_world.url)
    await other.execute("create table account (id int primary key, cents int not null)")
    await other.execute("insert into account values (1, 0), (2, 0)")
    async with postgres_world.worker(app):
        handle = await app.start_workflow(move, workflow_id="m")
        await asyncio.to_thread(locked.wait, 20)
        async with other.transaction():
            await other.execute("set local deadlock_timeout = '20s'")  # so that the other one is the victim
            await other.execute("update account set cents = cents + 10 where id = 2")
            waits = asyncio.create_task(other.execute("update account set cents = cents + 10 where id = 1"))
            await eventually(lambda: waits_for_a_lock(postgres_world, other.get_server_pid()))
            may_go_on.set()
            await waits
        assert await handle.result("60s") >= 2, "more often if it met the other one again"
    assert [row["cents"] for row in await other.fetch("select cents from account order by id")] == [11, 11]
    await other.close()


async def waits_for_a_lock(world: World, pid: int) -> bool:
    return await world.sql("select 1 from pg_locks where pid = $1 and not granted", pid) == [(1,)]
