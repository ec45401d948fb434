"""A handler may wait for tasks, timers and children; what comes meanwhile is handled after it, through any restart."""

import asyncio
from dataclasses import field
from typing import Any

import pytest

import semel
from tests.world import World, eventually


def register(app: semel.App, ran: list[str] | None = None) -> Any:
    log = [] if ran is None else ran

    @app.task
    async def fetch(what: str) -> str:
        log.append(what)
        if what == "bad":
            raise ValueError("no such thing")
        return what.upper()

    @app.task
    async def never() -> None:
        await asyncio.Event().wait()

    @app.entity
    class AnsweredKeys:
        books: list[str] = field(default_factory=list)

        @semel.handler
        async def add(self, ctx: semel.EntityContext, what: str) -> str:
            self.books.append(what)
            return what

        @semel.handler
        async def fetch(self, ctx: semel.EntityContext, what: str) -> list[str]:
            self.books.append(f"wants {what}")
            self.books.append(await ctx.execute_task(fetch, what))
            self.books.append(await ctx.execute_task(fetch, f"{what}-again"))
            return self.books

        @semel.handler
        async def fetch_all(self, ctx: semel.EntityContext, *what: str) -> list[str]:
            self.books += await asyncio.gather(*(ctx.execute_task(fetch, one) for one in what))
            return self.books

        @semel.handler
        async def fetch_in_time(self, ctx: semel.EntityContext) -> str:
            try:
                async with asyncio.timeout(3600):
                    await ctx.execute_task(never)
            except TimeoutError:
                self.books.append("too late")
            return self.books[-1]

        @semel.handler
        async def nap(self, ctx: semel.EntityContext, name: str) -> None:
            await ctx.sleep("1h")
            self.books.append(f"{name} slept")
            await ctx.sleep("1h")
            self.books.append(f"{name} slept again")

        @semel.handler
        async def write(self, ctx: semel.EntityContext, what: str) -> str:
            name = await ctx.transaction(lambda tx: what.upper(), name="write")
            self.books.append(name)
            return name

        @semel.handler
        async def step(self, ctx: semel.EntityContext, what: str) -> str:
            self.books.append(await ctx.step(str.title, what))
            return self.books[-1]

    return AnsweredKeys


async def test_what_comes_meanwhile_is_handled_after_it(world: World) -> None:
    app = world.app()
    shelf = app.entity(register(app), "s")
    async with world.worker(app):
        await asyncio.gather(shelf.send("fetch", "a"), shelf.send("add", "b"), shelf.send("fetch", "c"))
        assert await shelf.ask("add", "d", timeout="60s") == "d"
        books = (await shelf.state()).books
    assert books == ["wants a", "A", "A-AGAIN", "b", "wants c", "C", "C-AGAIN", "d"]


@pytest.mark.parametrize("cached", [0, 100])
async def test_gather_and_timeout(world: World, cached: int) -> None:
    app = world.app()
    shelf = app.entity(register(app), "s")
    async with world.worker(app, cached_workflows=cached):
        assert await shelf.ask("fetch-all", "a", "b", "c", timeout="60s") == ["A", "B", "C"]
        assert await world.advance_until(shelf.ask("fetch-in-time", timeout="60s")) == "too late"
        assert await shelf.ask("add", "d", timeout="60s") == "d"


@pytest.mark.parametrize("cached", [0, 100])
async def test_steps_and_transactions(world: World, cached: int) -> None:
    app = world.app()
    shelf = app.entity(register(app), "s")
    async with world.worker(app, cached_workflows=cached):
        assert await shelf.ask("write", "a", timeout="60s") == "A"
        assert (await shelf.state()).books == ["A"]
        assert await shelf.ask("step", "b", timeout="60s") == "B"
        await asyncio.gather(shelf.send("write", "c"), shelf.send("step", "d"), shelf.send("write", "e"))
        assert await shelf.ask("add", "f", timeout="60s") == "f"
        assert (await shelf.state()).books == ["A", "B", "C", "D", "E", "f"]


@pytest.mark.journal("looks at rows")
async def test_no_journal_is_left_of_steps(world: World) -> None:
    app = world.app()
    shelf = app.entity(register(app), "s")
    async with world.worker(app):
        await asyncio.gather(shelf.send("write", "c"), shelf.send("step", "d"), shelf.send("write", "e"))
        assert await shelf.ask("add", "f", timeout="60s") == "f"
    assert await world.count("semel_journal") == 0


@pytest.mark.parametrize("cached", [0, 100])
async def test_it_goes_on_in_another_process(world: World, cached: int) -> None:
    app = world.app()
    shelf = app.entity(register(app), "s")
    async with world.worker(app, cached_workflows=cached):
        await shelf.ask("add", "first", timeout="60s")  # so that it is in memory when it begins to wait
        await asyncio.gather(shelf.send("nap", "a", dedup_key="a"), shelf.send("add", "b"), shelf.send("nap", "c"))
        await eventually(lambda: waits(app, shelf.key))
    for _ in range(3):
        other = world.app()
        register(other)
        async with world.worker(other, cached_workflows=cached):
            await world.advance("1h")
            await eventually(lambda: waits(app, shelf.key))
    async with world.worker(app, cached_workflows=cached):
        await world.advance_until(shelf.ask("add", "d", dedup_key="d", timeout="60s"))
        await shelf.send("nap", "a", dedup_key="a")
        await shelf.ask("add", "d", dedup_key="d", timeout="60s")
    assert (await shelf.state()).books == ["first", "a slept", "a slept again", "b", "c slept", "c slept again", "d"]


@pytest.mark.journal("takes a lease away")
async def test_a_worker_that_is_cut_off_changes_nothing(world: World) -> None:
    app, other = world.app(), world.app()
    ran: list[str] = []
    shelf = app.entity(register(app, ran), "s")
    elsewhere = other.entity(register(other, ran), "s")
    async with world.worker(app, lease="10s", grace=0) as worker:
        await shelf.ask("add", "first", timeout="60s")
        await shelf.send("nap", "a")
        await eventually(lambda: waits(app, shelf.key))
        await world.cut_off(worker)
        await world.advance("61m")
        async with world.worker(other, lease="10s"):
            await world.advance_until(elsewhere.ask("add", "b", timeout="60s"))
    assert (await shelf.state()).books == ["first", "a slept", "a slept again", "b"]


async def test_a_task_that_fails_fails_the_message(world: World) -> None:
    app = world.app()
    shelf = app.entity(register(app), "s")
    app.tasks.task("fetch").retry = semel.Retry(max_attempts=1)
    async with world.worker(app):
        with pytest.raises(semel.ExecutionFailed, match="no such thing"):
            await shelf.ask("fetch", "bad", timeout="60s")
        assert (await shelf.state()).books == []
        assert await shelf.ask("add", "d", timeout="60s") == "d"


async def waits(app: semel.App, key: str) -> bool:
    handle = await app.find(key, kind="entity")
    return handle is not None and await handle.status() == "waiting"
