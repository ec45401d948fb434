"""Faults 7, 8, 9, 10, 11, 12 and 23: whatever a task or a loop does, the worker and the other tasks go on."""

from __future__ import annotations

import asyncio

import pytest

import semel
from semel.contract.lifecycle import Status
from semel.engines.journal import leases
from tests.faults.crowd import poison
from tests.faults.forks import Forks
from tests.faults.shop import Shop
from tests.faults.site import Site
from tests.world import World, eventually


@pytest.mark.slow
def test_a_task_that_kills_its_process_is_dead_lettered_and_its_neighbours_survive(
    site: Site, fork_server: Forks
) -> None:
    """fault 7"""

    async def prepare() -> str:
        async with Shop(site) as shop:
            for n in range(3):
                await shop.app.enqueue(shop.charge, f"o-{n}", task_id=f"k-{n}")
            return (await shop.app.enqueue(poison(shop), task_id="poison")).id

    async def look(id_: str) -> tuple[list[Status], semel.Execution]:
        async with Shop(site) as shop:
            found = [await shop.app.find(f"k-{n}") for n in range(3)]
            return [await one.status() for one in found if one], await (await shop.app.get(id_)).describe()

    id_ = asyncio.run(prepare())
    deaths = 0
    for _ in range(6):
        code, said = fork_server.run("tests.faults.crowd:poisoned_worker", site=site.plain())
        asyncio.run(site.advance(3600))
        if code == 0:
            break
        assert code == 13, said
        deaths += 1
    others, poisoned = asyncio.run(look(id_))
    assert (deaths, poisoned.status, poisoned.attempt) == (3, Status.FAILED, 3)
    assert poisoned.error is not None
    assert poisoned.error.type == "semel.WorkerLost"
    assert others == [Status.COMPLETED] * 3
    assert max(site.ledger.times().values()) <= 1 + 2  # they died with it twice, then it ran alone


async def test_a_worker_that_is_full_still_buries_the_dead(world: World) -> None:
    """fault 8"""
    app = world.app()
    gate = asyncio.Event()

    @app.task
    async def long() -> None:
        await gate.wait()

    await app.enqueue(long)
    engine = app.engine
    async with world.worker(app, concurrency=1) as worker:
        await eventually(lambda: worker.running)
        await app.enqueue(long)
        dead = await worker.store.run(leases.register, 4711, "default", "dead", "all", 1_000_000)
        await world.sql(f"update semel_ready set owner = {dead}, attempt = 1 where owner is null")
        await world.advance("5s")
        free = "select count(*) from semel_ready where owner is null"

        async def taken_back() -> bool:
            return (await world.sql(free))[0][0] == 1

        await eventually(taken_back)
        assert await engine.workers()
        gate.set()


async def test_a_worker_without_the_handler_leaves_the_task_alone(world: World) -> None:
    """fault 9"""
    old, new = world.app(), world.app()

    @new.task
    async def added_later() -> str:
        return "ran"

    @old.task
    async def known() -> str:
        return "known"

    handle = await new.enqueue(added_later)
    marker = await old.enqueue(known)
    async with world.worker(old):
        assert await marker.result(timeout="60s") == "known"
        assert (await handle.describe()).attempt == 0
        async with world.worker(new):
            assert await handle.result(timeout="60s") == "ran"


@pytest.mark.parametrize("kind", [asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit, BaseException])
@pytest.mark.parametrize("sync", [False, True])
async def test_whatever_a_task_raises_is_its_own_failure(
    sqlite_world: World, kind: type[BaseException], sync: bool
) -> None:
    """fault 10"""
    app = sqlite_world.app()

    if sync:

        @app.task(name="bad", retry=1)
        def bad() -> None:
            raise kind

    else:

        @app.task(name="bad", retry=1)
        async def bad() -> None:
            raise kind

    @app.task
    async def good() -> str:
        return "good"

    async with sqlite_world.worker(app) as worker:
        failed = await app.enqueue(app.tasks["bad"])
        with pytest.raises(semel.ExecutionFailed, match=kind.__name__):
            await failed.result(timeout="60s")
        assert await (await app.enqueue(good)).result(timeout="60s") == "good"
        assert worker.healthy


def test_what_finished_before_the_drain_is_written_before_the_process_ends(site: Site, fork_server: Forks) -> None:
    """fault 11"""

    async def prepare() -> None:
        async with Shop(site) as shop:
            for n in range(20):
                await shop.app.enqueue(shop.last_chance, f"o-{n}", task_id=f"k-{n}")

    asyncio.run(prepare())
    code, said = fork_server.run("tests.faults.crowd:drained_worker", site=site.plain())
    assert (code, said) == (0, ["started"])
    rows = asyncio.run(site.sql("select id, status, attempt from semel_execution"))
    happened = {effect.execution for effect in site.ledger.effects()}
    assert {id_ for id_, status, _ in rows if status == "completed"} == happened
    # Whatever it did not run is as if it had never been claimed: no attempt is lost.
    assert {(status, attempt) for id_, status, attempt in rows if id_ not in happened} <= {("pending", 0)}
    assert asyncio.run(site.sql("select owner, attempt from semel_ready where attempt > 0 or owner is not null")) == []
    assert asyncio.run(site.sql("select * from semel_worker")) == []


async def test_a_loop_that_fails_goes_on_and_one_that_is_gone_turns_the_worker_red(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault 12"""
    app = world.app()

    @app.task
    async def work() -> str:
        return "done"

    async with world.worker(app, lease="600ms") as worker:
        beat, take = worker.heart.beat, worker.intake.take
        failures = {"beat": 1, "take": 1}

        async def failing_beat() -> None:
            if failures["beat"]:
                failures["beat"] -= 1
                raise ZeroDivisionError
            await beat()

        async def failing_take(room: int) -> object:
            if failures["take"]:
                failures["take"] -= 1
                raise ZeroDivisionError
            return await take(room)

        monkeypatch.setattr(worker.heart, "beat", failing_beat)
        monkeypatch.setattr(worker.intake, "take", failing_take)
        assert await (await app.enqueue(work)).result(timeout="60s") == "done"
        await eventually(lambda: worker.healthy)
        worker._loops["heart"].cancel()
        await eventually(lambda: not worker.healthy)


async def test_an_oversized_result_fails_once_and_is_not_tried_again(world: World) -> None:
    """fault 23"""
    app = world.app()
    runs = []

    @app.task(retry=5)
    async def verbose() -> str:
        runs.append(1)
        return "x" * 2_000_000

    async with world.worker(app):
        handle = await app.enqueue(verbose)
        with pytest.raises(semel.ExecutionFailed, match="PayloadTooLarge"):
            await handle.result(timeout="60s")
    assert len(runs) == 1
    with pytest.raises(semel.PayloadTooLarge):
        await app.enqueue(_large(app), "x" * 2_000_000)


def _large(app: semel.App) -> semel.Task[[str], None]:
    @app.task(name="large")
    async def large(text: str) -> None:
        return None

    return large
