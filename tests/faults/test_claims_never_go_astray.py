"""Fault 17 for workers: a claim whose reply was lost is given back, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import semel
from semel.engines.journal import control, leases, worker
from semel.runtime import retries
from tests.faults.shop import Shop
from tests.faults.site import Site
from tests.world import World, eventually


class Weather:
    """A tap with a mind of its own."""

    def __init__(self) -> None:
        self.before: Callable[[str], None] = lambda statement: None
        self.after: Callable[[str], None] = lambda statement: None


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses between tries."""
    monkeypatch.setattr(retries, "pause", lambda attempt, most=5.0: 0.01)
    monkeypatch.setattr(worker, "pause", lambda attempt, most=5.0: 0.01)


def storm(names: set[str], times: int) -> Callable[[str], None]:
    """These statements fail so many times."""
    left = [times]

    def strike(statement: str) -> None:
        if statement in names and left[0] > 0:
            left[0] -= 1
            raise semel.EngineUnavailable("a storm")

    return strike


async def test_a_result_that_waits_for_the_database_is_not_taken_for_a_stray(world: World) -> None:
    """The database goes away between the end of a task and its settlement, and claims fail too: it ran once."""
    app = world.app()
    runs = []

    @app.task
    async def charge() -> None:
        runs.append(1)

    async with world.worker(app, concurrency=4) as one:
        weather = Weather()
        one.store.tap = weather
        failed = []

        def strike(statement: str) -> None:
            if statement in ("settle", "claim") and len(runs) == 1 and len(failed) < 30:
                failed.append(statement)
                one.wake.set()
                raise semel.EngineUnavailable("a storm")

        weather.before = strike
        handle = await app.enqueue(charge)
        await handle.result(timeout="60s")
    assert {"settle", "claim"} <= set(failed)
    assert len(runs) == 1


async def test_a_stray_claim_is_given_back_however_long_the_database_is_away(world: World) -> None:
    app = world.app()

    @app.task(retry=1)
    async def charge() -> str:
        return "done"

    async with world.worker(app) as one:
        weather = Weather()
        weather.after = storm({"claim"}, 1)
        weather.before = storm({"owned"}, 12)
        one.store.tap = weather
        handle = await app.enqueue(charge)
        assert await handle.result(timeout="60s") == "done"


async def test_a_claim_made_while_the_lease_was_lost_is_given_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = world.app()

    @app.task(retry=1)
    async def charge() -> str:
        return "done"

    async with world.worker(app) as one:
        take = one.intake.take
        lost = []

        async def take_late(room: int) -> object:
            if not lost:
                await one._start_over()
            claims = await take(room)
            lost.extend(claims)
            return claims

        monkeypatch.setattr(one.intake, "take", take_late)
        handle = await app.enqueue(charge)
        assert await handle.result(timeout="60s") == "done"


async def test_a_failure_of_any_kind_between_two_claims_loses_none(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = world.app()

    @app.task(retry=1)
    async def charge() -> str:
        return "done"

    async with world.worker(app) as one:
        take = one.intake.take
        failures = [1]

        async def take_badly(room: int) -> object:
            claims = await take(room)
            if claims and failures:
                failures.clear()
                raise ZeroDivisionError
            return claims

        monkeypatch.setattr(one.intake, "take", take_badly)
        handle = await app.enqueue(charge)
        assert await handle.result(timeout="60s") == "done"


async def test_a_worker_that_lost_its_lease_while_a_suspect_ran_takes_suspects_again(site: Site) -> None:
    async with Shop(site) as shop:
        gate = asyncio.Event()

        @shop.app.task(retry=9)
        async def suspicious() -> str:
            await gate.wait()
            return "done"

        handle = await shop.app.enqueue(suspicious)
        for _ in range(2):
            await shop.hold()
            await site.advance(3600)
            await shop.store.run(leases.recover)
        async with shop.app.worker() as one:
            await eventually(lambda: one.running)
            first = set(one.running)
            taken_back: list[int] = []
            while not taken_back:  # its heart may beat in between, and then it is not dead
                await site.advance(3600)
                taken_back = await shop.store.run(leases.recover)
            one.heart.due_in(0)
            await eventually(lambda: set(one.running) - first)
            gate.set()
            assert await handle.result(timeout="60s") == "done"


async def test_a_dead_worker_with_many_tasks_can_be_buried(site: Site) -> None:
    """fault 14: 400 executions end at once, more than one announcement can carry."""
    async with Shop(site) as shop:
        await shop.app.enqueue_many([shop.last_chance.call(f"o-{n}") for n in range(400)])
        worker_id, claims = await shop.hold(1000)
        assert len(claims) == 400
        await site.advance(3600)
        assert await shop.store.run(leases.recover) == []
        assert (await site.sql("select count(*) from semel_execution where status = 'failed'")) == [(400,)]
        assert await shop.store.run(control.cancel, "default", claims[0].execution) == "failed"
        assert worker_id


@pytest.mark.parametrize("attempts", [1, 2])
async def test_a_result_that_a_stopping_worker_cannot_write_was_an_attempt(world: World, attempts: int) -> None:
    """Given back as if it had never begun, a task with one attempt would have its effect twice."""
    app, seen = world.app(), []

    @app.task(retry=attempts)
    async def charge() -> None:
        seen.append(semel.current().attempt)

    async with world.worker(app, grace="0.1s") as one:
        weather = Weather()
        one.store.tap = weather
        weather.before = storm({"settle"}, 1_000_000)
        handle = await app.enqueue(charge)
        await eventually(lambda: seen)
        await one.stop()
        weather.before = lambda statement: None
    async with world.worker(app):
        if attempts == 1:
            with pytest.raises(semel.ExecutionFailed, match="WorkerLost"):
                await handle.result(timeout="60s")
        else:
            await handle.result(timeout="60s")
    assert seen == [1, 2][:attempts]


async def test_a_claim_that_the_server_carries_out_late_is_found_by_a_second_look(world: World) -> None:
    """The worker has looked for what the claim took, and only then it takes something. It was never begun."""
    app = world.app()

    @app.task(retry=1)
    async def charge() -> str:
        return "done"

    async with world.worker(app, queues=["default"]) as one:
        weather = Weather()
        weather.before = storm({"claim"}, 1)
        one.store.tap = weather
        handle = await app.enqueue(charge)
        assert await handle.result(timeout="60s") == "done"
        (number,) = one.unanswered._numbers
        timer = one.unanswered.timer
        assert timer is not None
        assert 0 < timer.when() - asyncio.get_running_loop().time() <= 65
        late = await app.enqueue(charge, queue="other")
        await world.sql(
            f"update semel_ready set owner = {one.id}, attempt = 1, token = {number} + seq, claimed_at = 1"
            f" where execution = '{late.id}'"
        )
        assert await late.status() is semel.Status.RUNNING
        one.doubt()  # what the timer calls

        async def given_back() -> bool:
            return await late.status() is semel.Status.PENDING

        await eventually(given_back)
        assert (await late.describe()).attempt == 0
    assert timer.cancelled()
