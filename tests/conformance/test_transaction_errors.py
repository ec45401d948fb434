"""Whatever a function in a transaction raises or swallows, the workflow hears of it and the worker goes on."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import semel
from tests.world import World

pytestmark = pytest.mark.slow


class Abort(BaseException):
    pass


class Unreadable(BaseException):
    def __str__(self) -> str:
        raise RuntimeError("cannot say")


async def heard(world: World, fn: Callable[[Any], object]) -> str:
    """What a workflow hears of a function in a transaction, on a worker that serves others afterwards."""
    app = world.app()
    await app.migrate()
    await world.sql("drop table if exists orders")
    await world.sql("create table orders (id text primary key, cents integer not null)")

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            return str(await ctx.transaction(fn))
        except semel.ExecutionFailed as error:
            return f"{error.error_type}: {error.error_message}"

    @app.workflow
    async def other(ctx: semel.Context) -> int:
        return await ctx.transaction(lambda tx: int(tx.execute("select 1")[0][0]))

    async with world.worker(app) as worker:
        # One after the other: two such transactions at once would wait for each other's rows.
        first, second = [
            await (await app.start_workflow(flow, workflow_id=f"k{n}")).result(timeout="60s") for n in range(2)
        ]
        assert await (await app.start_workflow(other, workflow_id="o")).result(timeout="60s") == 1
        assert worker.healthy
    assert first == second
    return first


@pytest.mark.parametrize(
    "error",
    [
        StopIteration("none left"), asyncio.CancelledError("own"), Abort("a"), SystemExit(3), KeyboardInterrupt(),
        GeneratorExit(), Unreadable(), StopAsyncIteration(), TimeoutError("of its own"), OSError("of its own"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
async def test_whatever_it_raises_is_its_failure_and_undoes_its_writes(world: World, error: BaseException) -> None:
    calls = []

    def fails(tx: Any) -> None:
        calls.append(1)
        tx.execute("insert into orders values ('a', 1)")
        raise error

    told = await heard(world, fails)
    assert type(error).__name__ in told
    assert told.startswith("RuntimeError: ") == (isinstance(error, StopIteration) or not isinstance(error, Exception))
    assert (len(calls), await world.count("orders")) == (2, 0)


async def test_an_error_of_the_database_that_is_caught_undoes_one_statement(world: World) -> None:
    def tries(tx: Any) -> int:
        tx.execute("delete from orders")
        tx.execute("insert into orders values ('a', 1)")
        for sql in ("insert into orders values ('b', 2), ('a', 3)", "insert into nowhere values (1)", "nonsense"):
            with contextlib.suppress(Exception):
                tx.execute(sql)
        tx.execute("insert into orders values ('c', 4)")
        with contextlib.suppress(Exception):
            tx.execute("insert into orders values ('c', 5)")
        return int(tx.execute("select sum(cents) from orders")[0][0])

    assert await heard(world, tries) == "5"
    assert sorted(await world.sql("select id, cents from orders")) == [("a", 1), ("c", 4)]


async def test_one_that_is_caught_at_the_very_end_is_forgotten(world: World) -> None:
    def tries(tx: Any) -> str:
        try:
            tx.execute("insert into orders values ('a', null)")
        except Exception:
            return "caught"
        return ""

    assert await heard(world, tries) == "caught"
    assert await world.count("orders") == 0


async def test_an_error_of_its_own_undoes_also_what_came_before_a_caught_one(world: World) -> None:
    def tries(tx: Any) -> None:
        tx.execute("insert into orders values ('a', 1)")
        try:
            tx.execute("insert into orders values ('a', 2)")
        except Exception as error:
            tx.execute("insert into orders values ('b', 2)")
            raise ValueError("taken") from error

    assert await heard(world, tries) == "ValueError: taken"
    assert await world.count("orders") == 0


async def test_an_iterator_that_is_empty_is_a_failure_wherever_it_is_asked(world: World) -> None:
    app = world.app()

    def step() -> int:
        return next(iter([]))

    async def async_step() -> int:
        return next(iter([]))

    async def waiting_step() -> int:
        await asyncio.sleep(0)
        return next(iter([]))

    @app.task(retry=1)
    def task() -> int:
        return next(iter([]))

    @app.task(retry=1)
    async def async_task() -> int:
        return next(iter([]))

    @app.workflow
    async def flow(ctx: semel.Context) -> list[str]:
        types = []
        for fn in (step, async_step, waiting_step):
            try:
                await ctx.step(fn)
            except semel.ExecutionFailed as error:
                types.append(error.error_type)
        for one in (task, async_task):
            try:
                await ctx.execute_task(one)
            except semel.ExecutionFailed as error:
                types.append(error.error_type)
        return types

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        assert await handle.result(timeout="60s") == ["RuntimeError"] * 5
