"""A queue's rate limit is kept by the cluster; limits that Temporal cannot enforce are refused, not ignored."""

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.contract.rates import Rate
from semel.engine.requests import request
from semel.engine.start_request import StartRequest
from semel.engines.temporal.coverage import Coverage
from semel.flow.commands import Kind
from semel.settings import QueueSettings
from tests.conftest import new_world
from tests.world import World, ended

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
            await handle.result(timeout="120s")
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


async def test_workflows_and_entities_are_refused_it_too(cluster: World) -> None:
    """With the error that a client gets, which the code may catch; a replay gets it again."""
    app = cluster.app()

    @app.task(rate_limit="1/min")
    async def slow() -> None: ...

    @app.task(concurrency_key="{customer}")
    async def bill(customer: str) -> None: ...

    @app.workflow
    async def order(ctx: semel.Context) -> list[str]:
        asked: list[Callable[[], Awaitable[Any]]] = [
            lambda: ctx.execute_task(slow), lambda: ctx.execute_task(slow, task_id="k"),
            lambda: ctx.execute_task(bill, "ada"), lambda: ctx.execute_task(bill, "ada", task_id="k"),
            lambda: ctx.enqueue(slow), lambda: ctx.enqueue(bill, "ada", task_id="k", delay="1h"),
            lambda: ctx.execute_workflow(child, workflow_id="task:odd"),
        ]  # fmt: skip
        told = []
        for ask in asked:
            try:
                await ask()
            except semel.SemelError as error:
                told.append(f"{type(error).__name__}: {error.message}")
        await ctx.wait_signal("go")
        return told

    @app.workflow
    async def child(ctx: semel.Context) -> None:
        await ctx.execute_task(bill, "ada")

    @app.entity
    class Account:
        refused: str = ""

        @semel.handler
        async def pay(self, ctx: semel.EntityContext) -> str:
            try:
                await ctx.enqueue(slow)
            except semel.ConfigError as error:
                self.refused = error.message
            return self.refused

    with pytest.raises(semel.ConfigError) as outside:
        await app.enqueue(slow)
    rate, key = (
        outside.value.message,
        outside.value.message.replace("slow", "bill").replace("rate_limit", "concurrency_key", 1),
    )
    async with cluster.worker(app):
        handle = await app.start_workflow(order, workflow_id="order")
        failed = await app.start_workflow(child, workflow_id="child")
        assert await ended(failed) == "failed"
        error = (await failed.describe()).error
        assert error is not None
        assert error.type.endswith("ConfigError")
        assert await app.entity(Account, "a").ask("pay", timeout="60s") == rate
    async with cluster.worker(app):  # which replays it
        await handle.signal("go")
        assert await app.entity(Account, "a").ask("pay", timeout="60s") == rate
        told = await handle.result(timeout="60s")
    assert [one.partition(": ")[2] for one in told[:6]] == [rate, rate, key, key, rate, key]
    assert told[6].startswith("InvalidKey: workflow_id='task:odd'")
    await cluster.listed()
    assert {one.name for one in await app.list()} == {"order", "child", "Account"}
    assert [one.ok for one in await app.replay()] == [True] * 3


async def test_what_was_refused_is_not_redriven(cluster: World) -> None:
    app, later = cluster.app(), cluster.app()

    @app.task(retry=1)
    async def charge() -> None:
        raise ValueError("no funds")

    @later.task(name="charge", rate_limit="1/min")
    async def limited_charge() -> None: ...

    async with cluster.worker(app):
        handle = await app.enqueue(charge, task_id="c")
        assert await ended(handle) == "failed"
    with pytest.raises(semel.ConfigError, match="task 'charge' declares a rate_limit"):
        await later.redrive(handle.id)


def test_what_a_namespace_would_forget_is_refused_inside_too() -> None:
    """A worker does not even start with it: unless the namespace has been told to keep for less since."""
    app = semel.App("sqlite:///:memory:", config=None)

    @app.task
    async def week() -> None: ...

    def asked(task_id: str | None, **options: Any) -> StartRequest:
        return request(app.settings, week, (), {}, task_id=task_id, **options)

    cluster = Coverage("brief", timedelta(days=3), records=False)
    for kind, start in (
        (Kind.TASK, asked("w")), (Kind.ENQUEUE, asked(None)), (Kind.ENQUEUE, asked("w", delay="1h")),
    ):  # fmt: skip
        refusal = cluster.refusal_inside(kind, start)
        assert isinstance(refusal, semel.ConfigError)
        assert "task 'week' is to be kept for 7d, and namespace 'brief' keeps for 3d" in refusal.message
    assert cluster.refusal_inside(Kind.TASK, asked(None)) is None  # part of its workflow, and kept with it
    assert Coverage("long", timedelta(days=30), records=False).refusal_inside(Kind.TASK, asked("w")) is None
