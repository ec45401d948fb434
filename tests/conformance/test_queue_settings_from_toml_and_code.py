"""Queue settings come from semel.toml and from code, and every worker sees them."""

from datetime import timedelta
from pathlib import Path

import pytest

import semel
from semel.contract.rates import Rate
from semel.settings import QueueSettings
from tests.world import World

TOML = """
[queues.payments]
retention = "30d"
rate_limit = "100/sec"
concurrency = 10
"""


@pytest.mark.needs("limits")
async def test_the_file_is_obeyed_and_code_lies_on_top(world: World, tmp_path: Path) -> None:
    config = tmp_path / "semel.toml"
    config.write_text(TOML)
    app = world.app(config=config)
    app.configure_queue("payments", concurrency=2, dedup_window="90d")

    @app.task(queue="payments")
    async def charge() -> None: ...

    async with world.worker(app):
        handle = await app.enqueue(charge, task_id="k")
        await handle.result(timeout="60s")
    execution = await handle.describe()
    assert (execution.queue, execution.retention, execution.window) == (
        "payments", timedelta(days=30), timedelta(days=90),
    )  # fmt: skip
    (state,) = await world.app().queues()
    assert state.settings == QueueSettings(timedelta(days=30), timedelta(days=90), Rate(100, 1), 2)


async def test_a_task_overrides_its_queue(world: World) -> None:
    app = world.app()
    app.configure_queue("q", retention="1d", dedup_window="2d")

    @app.task(queue="q", retention="3d")
    async def work() -> None: ...

    execution = await (await app.enqueue(work)).describe()
    assert (execution.retention, execution.window) == (timedelta(days=3), timedelta(days=2))


async def test_a_queue_needs_no_settings(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> str:
        return semel.current().queue

    async with world.worker(app):
        assert await (await app.enqueue(work, queue="fresh")).result(timeout="60s") == "fresh"
    (state,) = await app.queues()
    assert (state.name, state.ready, state.running, state.delayed) == ("fresh", 0, 0, 0)


async def test_a_worker_serves_the_queues_it_is_told(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> str:
        return semel.current().queue

    other = await app.enqueue(work, queue="other")
    mine = await app.enqueue(work, queue="mine")
    later = await app.enqueue(work, queue="other", delay="1h")
    async with world.worker(app, queues=["mine", "empty"]):
        assert await mine.result(timeout="60s") == "mine"
        assert await other.status() == "pending"
    states = {state.name: (state.ready, state.delayed) for state in await app.queues()}
    assert states == {"mine": (0, 0), "other": (1, 1)}
    assert await later.status() == "pending"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": -1}, r"queues\.q\.concurrency=-1"),
        ({"rate_limit": "fast"}, r"queues\.q\.rate_limit='fast'"),
        ({"retention": "long"}, r"queues\.q\.retention='long'"),
        ({"dedup_window": -1}, r"queues\.q\.dedup_window=-1"),
    ],
)
def test_bad_values_are_named(options: dict[str, object], message: str) -> None:
    app = semel.App("sqlite:///:memory:", config=None)
    with pytest.raises(semel.InvalidValue, match=message):
        app.configure_queue("q", **options)  # type: ignore[arg-type]
    with pytest.raises(semel.InvalidValue, match="queue='a b'"):
        app.configure_queue("a b")
