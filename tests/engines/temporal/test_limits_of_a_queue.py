"""A queue's rate limit is kept by the cluster; limits that Temporal has no word for are refused, not ignored."""

import time
from datetime import timedelta
from pathlib import Path

import pytest

import semel
from semel.contract.rates import Rate
from semel.settings import QueueSettings
from tests.conftest import new_world
from tests.world import World

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return new_world("temporal", tmp_path, request)


async def test_a_rate_holds_and_is_shown_to_everybody(cluster: World) -> None:
    app = cluster.app()
    app.configure_queue("mail", rate_limit="5/sec", retention="3d")
    starts: list[float] = []

    @app.task(queue="mail")
    async def send(n: int) -> None:
        starts.append(time.monotonic())

    async with cluster.worker(app):
        for handle in await app.enqueue_many(send.call(n) for n in range(20)):
            await handle.result(timeout="30s")
    assert max(starts) - min(starts) > 1.5
    (state,) = await cluster.app().queues()
    assert (state.name, state.settings.rate_limit, state.settings.retention) == (
        "mail", Rate(5, 1.0), timedelta(days=3),
    )  # fmt: skip


async def test_what_one_app_does_not_mention_stays_as_another_has_set_it(cluster: World) -> None:
    one, two = cluster.app(), cluster.app()
    one.configure_queue("mail", rate_limit="5/sec")
    two.configure_queue("mail", dedup_window="2d")
    await one.queues()
    (state,) = await two.queues()
    assert state.settings.rate_limit == Rate(5, 1.0)
    one.configure_queue("mail", rate_limit="none")
    (state,) = await one.queues()
    assert state.settings.rate_limit == Rate(0, 1.0)
    assert state.settings != QueueSettings()


async def test_what_would_not_be_kept_is_refused(cluster: World) -> None:
    app = cluster.app()

    @app.task(rate_limit="1/min")
    async def slow() -> None: ...

    @app.task(concurrency_key="{customer}")
    async def bill(customer: str) -> None: ...

    with pytest.raises(semel.ConfigError, match="task 'slow' declares a rate_limit"):
        await app.enqueue(slow)
    with pytest.raises(semel.ConfigError, match="task 'bill' declares a concurrency_key"):
        await app.enqueue(bill, "ada")
    app.configure_queue("narrow", concurrency=2)
    with pytest.raises(semel.ConfigError, match="queue 'narrow' declares concurrency=2"):
        await app.queues()
