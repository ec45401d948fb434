"""Fault 37: after a restore in place sequence numbers are used again, and nothing lands where it does not belong."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import Any

import pytest

import semel
from tests.past import go_back, keep
from tests.world import SOON, World, ended, eventually, waits

pytestmark = pytest.mark.slow


class Doors:
    """What runs waits at its door until it is opened."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self._open: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def wait(self, name: str) -> str:
        """At the door of this name."""
        self.reached.append(name)
        await self._open[name].wait()
        return name

    def open(self, *names: str) -> None:
        """Let them go on."""
        for name in names:
            self._open[name].set()

    async def until(self, name: str, times: int = 1) -> None:
        """Until so many stand or stood there."""
        await eventually(lambda: self.reached.count(name) >= times)


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]


async def test_a_late_result_is_not_taken_for_the_one_of_whoever_has_its_number_now(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    app, doors = world.app(), Doors()

    @app.task
    async def echo(value: str) -> str:
        return await doors.wait(value)

    async with world.worker(app):
        await app.enqueue(echo, "before")  # the lane is there
        doors.open("before")
        await eventually(world.at_rest)
        await keep(world)
        await app.enqueue(echo, "X", task_id="X")
        await doors.until("X")
        await go_back(world)
        y = await app.enqueue(echo, "Y", task_id="Y")
        await doors.until("Y")
        with caplog.at_level(logging.WARNING, "semel"):
            doors.open("X")
            await eventually(lambda: refusals(caplog))
        assert not (await y.describe()).status.terminal
        doors.open("Y")
        assert await y.result(timeout=SOON) == "Y"
    assert await app.find("X") is None


async def test_a_late_turn_is_not_written_into_what_the_workflow_is_now(world: World) -> None:
    """Its claim is in the backup, and so is the worker: only what it wrote since is not."""
    app, doors = world.app(), Doors()

    @app.workflow
    async def process(ctx: semel.Context) -> list[Any]:
        first = await ctx.wait_signal("go")
        await ctx.step(doors.wait, f"one {first}", name="one")
        await ctx.step(doors.wait, f"two {first}", name="two")
        return [first, await ctx.wait_signal("go")]

    async with world.worker(app):
        flow = await waits(await app.start_workflow(process, workflow_id="w"))
        await keep(world)
        await flow.signal("go", "A")
        await doors.until("one A")
        doors.open("one A")
        await doors.until("two A")
        await go_back(world)
        await flow.signal("go", "B")
        doors.open("two A")
        await doors.until("one B")
        doors.open("one B", "two B")
        await flow.signal("go", "end")
        assert await flow.result(timeout=SOON) == ["B", "end"]


async def test_a_workflow_that_is_held_goes_on_from_where_the_database_is(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    app, doors = world.app(), Doors()

    @app.workflow
    async def process(ctx: semel.Context) -> list[str]:
        return [await ctx.step(doors.wait, name, name=name) for name in ("a", "b", "c", "d")]

    async with world.worker(app):
        flow = await app.start_workflow(process, workflow_id="w")
        await doors.until("a")
        doors.open("a")
        await doors.until("b")
        await keep(world)
        doors.open("b")
        await doors.until("c")
        doors.open("c")
        await doors.until("d")
        await go_back(world)
        doors.open("d")
        assert await flow.result(timeout=SOON) == ["a", "b", "c", "d"]
    assert doors.reached == ["a", "b", "c", "d", "b", "c", "d"]
    assert any("went back in time" in record.getMessage() for record in caplog.records)
    rows = await world.sql("select n from semel_journal order by n")
    assert [n for (n,) in rows] == list(range(1, len(rows) + 1))


async def test_a_signal_is_not_taken_out_for_another_one_that_has_its_number_now(world: World) -> None:
    """The workflow is at work when a signal comes, is forgotten, and another one comes in its place."""
    app, doors = world.app(), Doors()

    @app.workflow
    async def process(ctx: semel.Context) -> list[Any]:
        busy = asyncio.create_task(ctx.step(doors.wait, "busy", name="busy"))
        first = await ctx.wait_signal("go")
        await ctx.step(doors.wait, f"took {first}", name="took")
        await busy
        return [first]

    async with world.worker(app) as worker:
        flow = await app.start_workflow(process, workflow_id="w")
        await doors.until("busy")
        await keep(world)
        await flow.signal("go", "A")
        held = await eventually(lambda: worker.flows._held.get(flow.id))
        await eventually(lambda: held.news or "took A" in doors.reached)
        await go_back(world)
        await flow.signal("go", "B")
        doors.open("took A", "took B", "busy")
        assert await flow.result(timeout=SOON) == ["B"]


async def test_an_entity_forgets_what_the_database_forgot(world: World) -> None:
    app, doors = world.app(), Doors()

    @app.entity
    class Account:
        total: int = 0

        @semel.handler
        async def add(self, ctx: semel.EntityContext, cents: int) -> int:
            self.total += cents
            return self.total

        @semel.handler
        async def slowly(self, ctx: semel.EntityContext, name: str) -> str:
            await ctx.step(doors.wait, name, name=name)
            self.total += 1
            return name

    async with world.worker(app):
        account = app.entity(Account, "a")
        assert await account.ask("add", 1, timeout=SOON) == 1
        await eventually(world.at_rest)
        await keep(world)
        assert await account.ask("add", 10, timeout=SOON) == 11
        await eventually(world.at_rest)
        await go_back(world)
        assert await account.ask("add", 100, timeout=SOON) == 101  # as often as before: only the claim tells them apart
        await eventually(world.at_rest)
        await keep(world)
        late = asyncio.create_task(account.ask("slowly", "X", timeout=SOON))
        await doors.until("X")
        await go_back(world)
        now = asyncio.create_task(account.ask("slowly", "Y", timeout=SOON))
        await doors.until("Y")
        doors.open("X", "Y")
        assert await now == "Y"
        assert await account.ask("add", 1000, timeout=SOON) == 1102
        late.cancel()


async def test_work_for_a_lane_that_the_database_lost_is_not_accepted_and_forgotten(world: World) -> None:
    """Every way in, with the number of the lane remembered; another one may have come meanwhile."""
    app = world.app()

    @app.task(retry=1)
    async def echo(value: str) -> str:
        if value == "fail":
            raise ValueError(value)
        return value

    @app.workflow
    async def parent(ctx: semel.Context) -> list[str]:
        await ctx.wait_signal("go")
        keyed = await ctx.execute_task(echo, "child", task_id="child", queue="lost")
        return [keyed, await ctx.execute_task(echo, "no key", queue="lost")]

    other = world.app()

    @other.task
    async def found(value: str) -> str:
        return value

    @app.entity(queue="lost")
    class Counter:
        count: int = 0

        @semel.handler
        async def add(self, ctx: semel.EntityContext) -> int:
            self.count += 1
            return self.count

    async with world.worker(app, concurrency=8):
        flow = await waits(await app.start_workflow(parent, workflow_id="w"))
        assert await ended(await app.enqueue(echo, "fail", task_id="again")) is semel.Status.FAILED
        await keep(world)
        assert await (await app.enqueue(echo, "x", queue="lost")).result(timeout=SOON) == "x"
        assert await app.entity(Counter, "c").ask("add", timeout=SOON) == 1
        await go_back(world)
        await other.enqueue(found, "z", queue="found")
        assert await (await app.enqueue(echo, "one", queue="lost")).result(timeout=SOON) == "one"
        assert await app.entity(Counter, "c").ask("add", timeout=SOON) == 1
        await go_back(world)
        many = await app.enqueue_many([echo.call(f"{n}") for n in range(150)], queue="lost")
        assert [await one.result(timeout=SOON) for one in many] == [f"{n}" for n in range(150)]
        await go_back(world)
        mixed = await app.enqueue_many([echo.call("a"), (echo.call("b"), "b")], queue="lost", delay="1ms")
        assert [await one.result(timeout=SOON) for one in mixed] == ["a", "b"]
        await go_back(world)
        assert await ended(await app.enqueue(echo, "fail", task_id="again", queue="lost")) is semel.Status.FAILED
        await go_back(world)
        await flow.signal("go")
        assert await flow.result(timeout=SOON) == ["child", "no key"]


@pytest.mark.parametrize("lost", ["delete from semel_lane", "delete from semel_ready", "delete from semel_later"])
async def test_what_lost_its_lane_or_its_work_is_named_and_can_be_cancelled(world: World, lost: str) -> None:
    app = world.app()

    @app.task
    async def echo(value: str) -> str:
        return value

    handle = await app.enqueue(echo, "x", task_id="k", delay="1h" if "later" in lost else None)
    finding = next(one for one in await app.doctor() if one.what == "stranded")
    assert finding.ok, finding
    await world.sql(lost)
    finding = next(one for one in await app.doctor() if one.what == "stranded")
    assert not finding.ok
    assert "task k (echo)" in finding.detail
    story = await app.explain("k")
    assert "It will never run" in str(story)
    assert await handle.cancel() is semel.Status.CANCELLED
    assert all(one.ok for one in await app.doctor() if one.what == "stranded")


async def test_a_worker_that_sees_the_past_drops_what_it_holds_and_gives_back_what_it_does_not_know(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    app, doors = world.app(), Doors()

    @app.task(retry=1)
    async def once(value: str) -> str:
        return await doors.wait(value)

    @app.task
    async def thrice(value: str) -> str:
        return await doors.wait(value)

    async with world.worker(app) as worker:
        first, second = await app.enqueue(once, "a", task_id="a"), await app.enqueue(thrice, "b", task_id="b")
        await doors.until("a")
        await doors.until("b")
        await keep(world)
        doors.open("a", "b")
        assert await first.result(timeout=SOON) == "a"
        assert await second.result(timeout=SOON) == "b"
        await app.enqueue(once, "c")
        await doors.until("c")
        before = (await world.sql("select beats from semel_worker"))[0][0]
        worker.heart.due_in(0)
        await eventually(lambda: worker.heart._beats[1] > before)
        await go_back(world)
        worker.heart.due_in(0)
        await eventually(lambda: not worker.running and doors.reached.count("b") == 2)
        assert await ended(first) is semel.Status.FAILED  # it was running, and whether it did is not known any more
        assert "WorkerLost" in str(await app.explain("a"))
        assert await ended(second) is semel.Status.COMPLETED  # it had attempts left
        assert sorted(doors.reached) == ["a", "b", "b", "c"]
    said = " ".join(record.getMessage() for record in caplog.records)
    assert "the database went back in time" in said
    assert "claims the database does not have" in said


async def test_a_restore_between_two_heartbeats_is_noticed_by_the_next_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """No heartbeat is forgotten and no connection is opened anew: only the tables are others."""
    app, doors = world.app(), Doors()

    @app.task
    async def echo(value: str) -> str:
        return await doors.wait(value)

    async with world.worker(app) as worker:
        handle = await app.enqueue(echo, "a", task_id="a")
        await doors.until("a")
        await eventually(lambda: worker.heart._beats[0] == worker.id)
        await worker._end_loop("heart")  # from here on it beats only when the test says so
        await keep(world)
        doors.open("a")
        assert await handle.result(timeout=SOON) == "a"
        await go_back(world)  # where it still runs
        await worker.heart._pulse()
        await doors.until("a", times=2)
        assert await (await app.enqueue(echo, "a", task_id="a")).result(timeout=SOON) == "a"
    assert any("tables were replaced" in record.getMessage() for record in caplog.records)


async def test_queue_settings_that_were_set_after_the_backup_are_written_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a worker that notices, and by a client after a minute; a client leaves alone what somebody else set since."""
    served, client, other = world.app(), world.app(), world.app()

    @client.task
    async def echo(value: str) -> str:
        return value

    async def limits() -> dict[str, tuple[Any, ...]]:
        rows = await world.sql("select name, rate_limit, concurrency from semel_queue")
        return {name: tuple(values) for name, *values in rows}

    served.configure_queue("both", concurrency=1)
    async with world.worker(served) as worker:
        await keep(world)
        served.configure_queue("served", rate_limit="5/sec")
        served.configure_queue("both", concurrency=2)
        await served.queues()
        await go_back(world)
        assert await limits() == {"both": (None, 1)}
        worker.heart.due_in(0)

        async def as_before() -> bool:
            return await limits() == {"both": (None, 2), "served": ("5/sec", None)}

        await eventually(as_before)

    await keep(world)
    client.configure_queue("client", concurrency=3, rate_limit="7/min")
    await client.enqueue(echo, "a")
    await go_back(world)
    other.configure_queue("client", concurrency=4)
    await other.queues()
    await client.enqueue(echo, "b")
    assert (await limits())["client"] == (None, 4)
    monkeypatch.setattr(client.engine._queue_settings, "due_at", 0.0)  # type: ignore[attr-defined]
    await client.enqueue(echo, "c")
    assert (await limits())["client"] == ("7/min", 4)


async def test_a_lease_that_is_gone_is_taken_anew(world: World, caplog: pytest.LogCaptureFixture) -> None:
    app, doors = world.app(), Doors()

    @app.task
    async def echo(value: str) -> str:
        return await doors.wait(value)

    await app.queues()
    await keep(world)
    async with world.worker(app) as worker:
        await app.enqueue(echo, "X")
        await doors.until("X")
        await go_back(world)
        worker.heart.due_in(0)
        y = await app.enqueue(echo, "Y")
        doors.open("X", "Y")
        assert await y.result(timeout=SOON) == "Y"
    assert any("although it renewed it" in record.getMessage() for record in caplog.records)
