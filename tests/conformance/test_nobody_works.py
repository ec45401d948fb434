"""Work that waits while no worker runs: the doctor names it. A function without a worker: a log names it, in time."""

import logging

import pytest

import semel
from semel.engine.protocol import Finding
from semel.engine.served_functions import PATIENCE
from tests.world import World


async def functions(app: semel.App) -> Finding:
    (found,) = [one for one in await app.doctor() if one.what == "functions"]
    return found


async def test_the_doctor_names_what_waits_while_no_worker_runs(world: World) -> None:
    app = world.app()

    @app.task
    async def charge(order: str) -> str:
        return f"charged {order}"

    @app.entity
    class Account:
        points: int = 0

        @semel.handler
        async def add(self, ctx: semel.EntityContext, points: int) -> int:
            self.points += points
            return self.points

    await app.migrate()
    assert (await functions(app)).ok, "nothing was asked for yet"
    async with world.worker(app):
        await app.entity(Account, "ann").ask("add", 1)
    await app.enqueue(charge, "later", task_id="later", delay="1h", queue="cards")
    await world.listed()
    assert (await functions(app)).ok, "an entity at rest and a delayed task wait for no worker"

    handles = [await app.enqueue(charge, f"o-{n}", task_id=f"pay-{n}", queue="cards") for n in range(2)]
    await world.listed()
    found = await functions(app)
    assert not found.ok
    assert "no worker runs, and 2 executions wait for one: task 'charge' on queue 'cards'" in found.detail
    assert f"(2 waiting since {world.now():%Y-%m-%d}" in found.detail
    assert "such as pay-0" in found.detail
    assert "Account" not in found.detail
    async with world.worker(app, queues=["default"]):
        found = await functions(app)
        assert (found.ok, "no worker has task 'charge' on queue 'cards' (3 waiting" in found.detail) == (False, True)
    async with world.worker(app, queues=["cards"]):
        assert [await handle.result("60s") for handle in handles] == ["charged o-0", "charged o-1"]
    await world.listed()
    found = await functions(app)
    assert found.ok, found.detail


@pytest.mark.slow
async def test_a_restart_cries_no_wolf_and_a_new_orphan_is_named_soon(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    time = Time(monkeypatch)
    app, other = world.app(), world.app()

    @app.task
    async def pack() -> None: ...

    @other.task
    async def charge() -> str:
        return "charged"

    with caplog.at_level(logging.WARNING, "semel.worker"):
        async with world.worker(app) as worker:
            handle = await other.enqueue(charge, task_id="pay-1")
            await world.listed()
            for _ in range(3):  # its only worker is being restarted
                await worker.lookout.look()
                time.passes(PATIENCE / 3 - 1)
            async with world.worker(other):
                assert await handle.result("60s") == "charged"
            await world.listed()
            await worker.lookout.look()
            assert named(caplog) == 0
            await other.enqueue(charge, task_id="pay-2")
            await world.listed()
            seconds = 0.0
            while not named(caplog):
                await worker.lookout.look()
                time.passes(10.0)
                seconds += 10.0
                assert seconds < 60
            for _ in range(3):
                await worker.lookout.look()
            assert named(caplog) == 1


def named(caplog: pytest.LogCaptureFixture) -> int:
    return len([one for one in caplog.records if "no worker that runs has a task 'charge'" in one.message])


class Time:
    """The clock by which a warning waits, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 1000.0
        monkeypatch.setattr("semel.engine.served_functions.monotonic", lambda: self._now)

    def passes(self, seconds: float) -> None:
        self._now += seconds
