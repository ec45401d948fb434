"""What a transaction of a workflow writes and the record that it did are one: both are there, or neither."""

import asyncio
from typing import Any

import pytest

import semel
from tests.world import World, eventually, waits


async def table(world: World) -> None:
    await world.sql("drop table if exists orders")
    await world.sql("create table orders (id text primary key, cents integer not null)")


@pytest.mark.parametrize("cached", [0, 1000])
async def test_effect_and_record_come_together(world: World, cached: int) -> None:
    app = world.app()
    await app.migrate()
    await table(world)

    def insert(tx: Any, id_: str, cents: int) -> int:
        tx.execute("insert into orders (id, cents) values ($1, $2)", id_, cents)
        return int(tx.execute("select sum(cents) from orders")[0][0])

    @app.workflow
    async def flow(ctx: semel.Context) -> list[int]:
        got = [await ctx.transaction(insert, "a", 1)]
        await ctx.wait_signal("go")
        got.append(await ctx.transaction(insert, "b", 2, name="second"))
        return [*got, await ctx.step(lambda: 7)]

    async with world.worker(app, cached_workflows=cached):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        assert await world.sql("select id, cents from orders") == [("a", 1)]
        await handle.signal("go")
        assert await handle.result(timeout="60s") == [1, 3, 7]
    assert await world.count("orders") == 2


async def test_an_error_undoes_what_was_written_and_is_raised_in_the_workflow(world: World) -> None:
    app = world.app()
    await app.migrate()
    await table(world)

    def fails(tx: Any) -> None:
        tx.execute("insert into orders values ('a', 1)")
        raise ValueError("no")

    def twice(tx: Any) -> None:
        tx.execute("insert into orders values ('b', 1)")
        tx.execute("insert into orders values ('b', 1)")

    def strange(tx: Any) -> object:
        tx.execute("insert into orders values ('c', 1)")
        return object()

    def leaves(tx: Any) -> None:
        tx.execute("insert into orders values ('d', 1)")
        raise SystemExit

    @app.workflow
    async def flow(ctx: semel.Context) -> list[str]:
        heard = []
        for fn in (fails, twice, strange, leaves):
            try:
                await ctx.transaction(fn)
            except semel.ExecutionFailed as error:
                heard.append(error.error_type.rpartition(".")[2])
        return heard

    async with world.worker(app, cached_workflows=0) as worker:
        handle = await app.start_workflow(flow, workflow_id="k")
        first, second, third, fourth = await handle.result(timeout="60s")
        assert worker.healthy
    assert (first, third, fourth) == ("ValueError", "NotEncodable", "RuntimeError")
    assert second in ("IntegrityError", "UniqueViolationError")
    assert await world.count("orders") == 0


@pytest.mark.parametrize(
    "sql",
    [
        "commit", "ROLLBACK", "  begin", "savepoint x", "end;", "/* now */ commit", "select 1; commit", "\ufeffcommit",
        "/* /* now */ */ commit", "/* -- /* it's */ now */;commit", "-- now\rcommit", "prepare transaction 'x'",
        "commit prepared 'x'", "abort/**/", ";;commit",
    ],
)  # fmt: skip
async def test_it_cannot_end_the_transaction_it_is_in(world: World, sql: str) -> None:
    app = world.app()
    await app.migrate()
    await table(world)

    def cheats(tx: Any) -> None:
        tx.execute("insert into orders values ('a', 1)")
        tx.execute(sql)

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            await ctx.transaction(cheats)
        except semel.ExecutionFailed as error:
            return error.error_type
        return ""

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        assert await handle.result(timeout="60s") == "semel.InvalidValue"
    assert await world.count("orders") == 0


@pytest.mark.parametrize(
    "sql",
    [
        "select 'commit; commit'", "/* commit; */ select 1", "select 1 -- ; commit\n", 'select 1 as "end; commit"',
        "select case when 1 = 1 then 2\nend", "-- begin\nselect 1;", "select 1 as commits",
    ],
)  # fmt: skip
async def test_words_that_end_nothing_are_let_through(world: World, sql: str) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> int:
        return await ctx.transaction(lambda tx: len(tx.execute(sql)))

    async with world.worker(app):
        assert await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s") == 1


async def test_an_async_function_is_refused(world: World) -> None:
    app = world.app()

    async def insert(tx: Any) -> None: ...

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            await ctx.transaction(insert)
        except semel.InvalidValue:
            return "refused"
        return ""

    async with world.worker(app):
        assert await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s") == "refused"


@pytest.mark.journal("takes the lease of a worker away")
async def test_one_whose_worker_has_lost_its_lease_writes_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = world.app(), world.app()
    await one.migrate()
    await table(world)
    zombie_may_go_on, runs, done = asyncio.Event(), [], []

    async def slow() -> None:
        runs.append(1)
        if len(runs) == 1:
            await zombie_may_go_on.wait()

    def insert(tx: Any) -> int:
        done.append(1)
        tx.execute("insert into orders values ('a', 1)")
        return len(done)

    for app in (one, two):

        @app.workflow
        async def flow(ctx: semel.Context) -> int:
            await ctx.step(slow)
            return await ctx.transaction(insert)

    handle = await one.start_workflow(flow, workflow_id="k")
    async with world.worker(one, grace=0) as zombie:
        await eventually(lambda: runs)
        await world.cut_off(zombie)
        async with world.worker(two):
            await world.advance("31s")
            assert await handle.result(timeout="60s") == 1
            zombie_may_go_on.set()
            await eventually(lambda: "another worker" in caplog.text)
    assert (done, await world.count("orders")) == ([1], 1)
