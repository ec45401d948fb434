"""Whoever asks at the same time for a key that has been used before shares one new execution; nobody is misled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import semel
from tests.conftest import new_world
from tests.faults.temporal.proxy import Forgetful
from tests.temporal_world import TemporalWorld

pytestmark = pytest.mark.slow
MANY = 20


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> TemporalWorld:
    made = new_world("temporal", tmp_path, request)
    assert isinstance(made, TemporalWorld)
    return made


def app_with(world: TemporalWorld, runs: list[int], fails: bool = False, **options: Any) -> semel.App:
    app = world.app()

    @app.task(name="work", retry=1, **options)
    async def work(n: int) -> int:
        runs.append(n)
        if fails:
            raise ValueError("no")
        return n

    return app


async def race(apps: list[semel.App], value: int = 1, **options: Any) -> list[semel.Handle[Any]]:
    """Many at once, through several connections."""
    calls = [apps[n % len(apps)].enqueue(apps[n % len(apps)].tasks["work"], value, **options) for n in range(MANY)]
    return list(await asyncio.gather(*calls))


async def counted(app: semel.App) -> int:
    """Duplicates under the key that did not run."""
    return sum(one.count for one in (await app.explain("k")).suppressed)


async def test_a_failed_one_is_followed_by_one(world: TemporalWorld) -> None:
    runs: list[int] = []
    app = app_with(world, runs, fails=True)
    handle = await app.enqueue(app.tasks["work"], 1, task_id="k")
    async with world.worker(app):
        with pytest.raises(semel.ExecutionFailed):
            await handle.result(timeout="60s")
    apps = [app_with(world, runs) for _ in range(4)]
    for one in apps:
        await one.find("k")
    handles = await race(apps, task_id="k")
    assert len({one.id for one in handles} - {handle.id}) == len({one.id for one in handles}) == 1
    assert [one.duplicate for one in handles].count(False) == 1
    async with world.worker(apps[0]):
        assert await asyncio.gather(*(one.result(timeout="60s") for one in handles)) == [1] * MANY
    assert runs == [1, 1]
    assert await world.count() == 2
    for one in apps:
        await one.close()
    assert await counted(app) == MANY - 1


async def test_a_failed_one_is_followed_by_one_even_while_it_completes(world: TemporalWorld) -> None:
    runs: list[int] = []
    app = app_with(world, runs, fails=True)
    handle = await app.enqueue(app.tasks["work"], 1, task_id="k")
    async with world.worker(app):
        with pytest.raises(semel.ExecutionFailed):
            await handle.result(timeout="60s")
    apps = [app_with(world, runs) for _ in range(4)]
    async with world.worker(apps[0]):
        handles = await race(apps, task_id="k")
        assert await asyncio.gather(*(one.result(timeout="60s") for one in handles)) == [1] * MANY
    assert len({one.id for one in handles}) == 1
    assert runs == [1, 1]


async def test_who_asks_for_something_else_at_the_same_time_is_told(world: TemporalWorld) -> None:
    runs: list[int] = []
    app = app_with(world, runs, fails=True)
    handle = await app.enqueue(app.tasks["work"], 1, task_id="k")
    async with world.worker(app):
        with pytest.raises(semel.ExecutionFailed):
            await handle.result(timeout="60s")
    apps = [app_with(world, runs) for _ in range(4)]
    calls = [apps[n % 4].enqueue(apps[n % 4].tasks["work"], n, task_id="k") for n in range(MANY)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    won = [one for one in answers if isinstance(one, semel.Handle)]
    assert len(won) == 1
    assert [type(one) for one in answers].count(semel.KeyConflict) == MANY - 1
    async with world.worker(apps[0]):
        assert await won[0].result(timeout="60s") == answers.index(won[0])
    assert len(runs) == 2


async def test_a_window_that_is_over_lets_one_in(world: TemporalWorld) -> None:
    runs: list[int] = []
    apps = [app_with(world, runs, dedup_window="1h") for _ in range(4)]
    first = await apps[0].enqueue(apps[0].tasks["work"], 1, task_id="k")
    async with world.worker(apps[0]):
        await first.result(timeout="60s")
    assert {one.id for one in await race(apps, task_id="k")} == {first.id}
    await world.advance("2h")
    handles = await race(apps, 2, task_id="k")
    assert len({one.id for one in handles}) == 1
    assert [one.duplicate for one in handles].count(False) == 1
    async with world.worker(apps[0]):
        assert await handles[0].result(timeout="60s") == 2
    assert runs == [1, 2]


async def test_always_begins_again_after_what_completed_and_joins_what_runs(world: TemporalWorld) -> None:
    runs: list[int] = []
    apps = [app_with(world, runs) for _ in range(4)]
    first = await apps[0].enqueue(apps[0].tasks["work"], 1, task_id="k")
    async with world.worker(apps[0]):
        await first.result(timeout="60s")
    handles = await race(apps, task_id="k", reuse="always")
    assert len({one.id for one in handles} - {first.id}) == len({one.id for one in handles}) == 1
    assert [one.duplicate for one in handles].count(False) == 1
    async with world.worker(apps[0]):
        await handles[0].result(timeout="60s")
    assert runs == [1, 1]
    assert (await handles[0].describe()).generation == 1


async def test_a_caller_whose_reply_was_lost_gets_its_own_run(world: TemporalWorld) -> None:
    """fault 17: the request went through, the answer did not, whichever of the answers that a start takes."""
    failing, lost = app_with(world, [], fails=True), 0
    keys = [f"used-{n}" for n in range(8)]
    handles = [await failing.enqueue(failing.tasks["work"], 1, task_id=key) for key in keys]
    async with world.worker(failing):
        await asyncio.gather(*(one.result(timeout="60s") for one in handles), return_exceptions=True)
    async with Forgetful(world.url.removeprefix("temporal://").partition("/")[0]).running() as proxy:
        app = semel.App(f"temporal://{proxy.address}/{world.namespace}", config=None, records=world.records)

        @app.task(name="work", retry=1)
        async def work(n: int) -> int: ...

        await app.find("k")
        for n, key in enumerate(keys):
            before = proxy.swallowed
            proxy.lose(after=n)
            handle = await app.enqueue(work, 1, task_id=key)
            proxy.lose(0)
            assert (handle.duplicate, handle.id == handles[n].id) == (False, False)
            assert (await app.enqueue(work, 1, task_id=key)).id == handle.id
            lost += proxy.swallowed - before
        for new in ("fresh", None):
            proxy.lose()
            handle = await app.enqueue(work, 1, task_id=new)
            assert not handle.duplicate
        assert proxy.swallowed == lost + 2
        assert lost >= 3  # that the key is taken, by whom, and the new run
        await app.close()
    assert await world.count() == 2 * len(keys) + 2
