"""A worker tells what it does: to an observer, in the log, and to the failure hook."""

import asyncio
import logging
import time
from typing import Any

import pytest

import semel
from semel import Failure, Status, WorkerEvent, WorkerEventType
from tests.world import World, ended, eventually

CLAIMED, STARTED, ENDED, RETRIED, PARKED, DUPLICATE = (
    WorkerEventType.CLAIMED, WorkerEventType.STARTED, WorkerEventType.ENDED, WorkerEventType.RETRIED,
    WorkerEventType.PARKED, WorkerEventType.DUPLICATE,
)  # fmt: skip


class Ears(semel.Observer):
    def __init__(self) -> None:
        self.events: list[WorkerEvent] = []

    def event(self, event: WorkerEvent) -> None:
        self.events.append(event)

    def types(self, kind: str) -> list[WorkerEventType]:
        return [event.type for event in self.events if event.kind == kind]

    def last(self, type: WorkerEventType, kind: str) -> WorkerEvent:
        return [event for event in self.events if (event.type, event.kind) == (type, kind)][-1]


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "semel.worker" and r.levelno == level]


async def test_a_task_is_claimed_started_retried_and_ended(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "semel")
    ears, failures = Ears(), list[Failure]()
    app = world.app(observer=ears, on_failure=failures.append)

    @app.task(retry=semel.Retry(2, initial=0.01, jitter=0))
    async def unlucky(lucky: bool) -> str:
        if not lucky and semel.current().attempt == 1:
            raise KeyError("first")
        if not lucky:
            raise ValueError("no luck")
        return "done"

    async with world.worker(app):
        good = await app.enqueue(unlucky, True, task_id="good")
        assert await good.result(timeout="60s") == "done"
        await eventually(lambda: ears.types("task")[-1:] == [ENDED])
        end = ears.last(ENDED, "task")
        assert (end.name, end.key, end.execution, end.attempt, end.status) == (
            "unlucky", "good", good.id, 1, Status.COMPLETED,
        )  # fmt: skip
        assert end.seconds is not None
        assert end.seconds >= 0
        assert ears.types("task") == [CLAIMED, STARTED, ENDED]
        bad = await app.enqueue(unlucky, False, task_id="bad")
        assert await ended(bad) is Status.FAILED
        await eventually(lambda: failures)
    assert ears.types("task")[3:] == [CLAIMED, STARTED, RETRIED, CLAIMED, STARTED, ENDED]
    retried, end = ears.last(RETRIED, "task"), ears.last(ENDED, "task")
    assert (retried.attempt, retried.retry_in) == (1, pytest.approx(0.01))
    assert retried.error is not None
    assert retried.error.type == "KeyError"
    assert (end.attempt, end.status) == (2, Status.FAILED)
    assert end.error is not None
    (failure,) = failures
    assert (failure.id, failure.name, failure.key, failure.kind, failure.attempt) == (
        bad.id, "unlucky", "bad", "task", 2,
    )  # fmt: skip
    assert failure.error.type == "ValueError"
    assert failure.status is Status.FAILED
    assert isinstance(failure.exception, ValueError)
    assert failure.exception.__traceback__ is not None
    (info,) = [line for line in lines(caplog, logging.INFO) if "completed" in line]
    assert info.startswith("task unlucky 'good' completed in ")
    assert f"(execution {good.id}, attempt 1)" in info
    (warning,) = lines(caplog, logging.WARNING)
    where = f"(execution {bad.id}, attempt 1)"
    assert warning == f"task unlucky 'bad' failed {where}, next attempt in 0.01 s: KeyError: 'first'"
    (error,) = lines(caplog, logging.ERROR)
    assert "task unlucky 'bad' failed" in error
    assert bad.id in error
    assert 'raise ValueError("no luck")' in error
    assert "semel/engines" not in error
    assert "in unlucky" in error


async def test_nothing_is_made_when_nobody_listens(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "semel")
    app = world.app()

    @app.task
    async def work() -> None: ...

    made: list[Any] = []
    monkeypatch.setattr("semel.runtime.events.WorkerEvent", lambda **fields: made.append(fields))
    async with world.worker(app):
        await (await app.enqueue(work)).result(timeout="60s")
    assert made == []


class Cart:
    items: int = 0

    @semel.handler
    async def add(self, ctx: semel.EntityContext, count: int) -> int:
        if count < 0:
            raise ValueError("negative")
        self.items += count
        return self.items


async def test_workflows_and_messages_tell_how_they_end(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "semel")
    ears, failures = Ears(), list[Failure]()

    async def remember(failure: Failure) -> None:
        failures.append(failure)

    app = world.app(observer=ears, on_failure=remember)
    app.entity(Cart)

    @app.task(retry=1)
    async def charge() -> None:
        raise ConnectionError("card declined")

    @app.workflow
    async def order(ctx: semel.Context, fails: bool) -> str:
        if fails:
            await ctx.execute_task(charge)
        return "ok"

    async with world.worker(app):
        good = await app.start_workflow(order, False, workflow_id="good")
        assert await good.result(timeout="60s") == "ok"
        await eventually(lambda: ears.types("workflow")[-1:] == [ENDED])
        assert [t for t in ears.types("workflow") if t is not CLAIMED] == [STARTED, ENDED]
        end = ears.last(ENDED, "workflow")
        assert (end.name, end.key, end.execution, end.status) == ("order", "good", good.id, Status.COMPLETED)
        bad = await app.start_workflow(order, True, workflow_id="bad")
        with pytest.raises(semel.ExecutionFailed) as caught:
            await bad.result(timeout="60s")
        cart = app.entity(Cart, "c1")
        assert await cart.ask("add", 2, dedup_key="m1", timeout="60s") == 2
        assert await cart.ask("add", 2, dedup_key="m1", timeout="60s") == 2
        with pytest.raises(semel.ExecutionFailed):
            await cart.ask("add", -1, timeout="60s")
        await eventually(lambda: len(failures) == 3)
    by_kind = {failure.kind: failure for failure in failures}
    assert (by_kind["workflow"].name, by_kind["workflow"].key, by_kind["workflow"].id) == ("order", "bad", bad.id)
    assert isinstance(by_kind["workflow"].exception, semel.ExecutionFailed)
    assert isinstance(by_kind["task"].exception, ConnectionError)
    assert (by_kind["message"].name, by_kind["message"].key) == ("Cart.add", "Cart/c1")
    assert isinstance(by_kind["message"].exception, ValueError)
    errors = lines(caplog, logging.ERROR)
    assert len(errors) == 3, errors
    assert any(
        "message Cart.add 'Cart/c1' failed" in line and 'raise ValueError("negative")' in line for line in errors
    )
    done = [line for line in lines(caplog, logging.INFO) if "completed" in line]
    assert any(line.startswith("workflow order 'good' completed in") for line in done)
    assert any(line.startswith("message Cart.add 'Cart/c1' completed in") for line in done)
    error = caught.value
    assert (error.error_type, error.root_cause_type) == ("semel.ExecutionFailed", "ConnectionError")
    assert "in charge" in error.traceback
    assert "in order" in error.traceback
    assert "semel/flow" not in error.traceback
    assert error.traceback.strip() in error.__notes__[0]


async def test_duplicates_are_told(world: World) -> None:
    ears = Ears()
    app = world.app(observer=ears)

    @app.task
    async def work(n: int) -> None: ...

    first = await app.enqueue(work, 1, task_id="k")
    await app.enqueue(work, 1, task_id="k")
    with pytest.raises(semel.KeyConflict):
        await app.enqueue(work, 2, task_id="k")
    told = [(e.type, e.name, e.key, e.execution, e.reason) for e in ears.events]
    assert told == [
        (DUPLICATE, "work", "k", first.id, "joined"),
        (DUPLICATE, "work", "k", first.id, "input_differs"),
    ]


async def test_steps_that_are_tried_again_are_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "semel")
    ears = Ears()
    app = world.app(observer=ears)

    async def flaky() -> int:
        if semel.current().attempt == 1:
            raise ConnectionError("away")
        return 1

    @app.workflow
    async def flow(ctx: semel.Context) -> int:
        return await ctx.step(flaky, retry=semel.Retry(2, initial=0.01, jitter=0))

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="w")
        assert await handle.result(timeout="60s") == 1
    retried = ears.last(RETRIED, "step")
    assert (retried.name, retried.key, retried.execution, retried.attempt) == ("flaky", "w", handle.id, 1)
    (warning,) = lines(caplog, logging.WARNING)
    where = f"(execution {handle.id}, attempt 1)"
    assert warning == f"step flaky 'w' failed {where}, next attempt in 0.01 s: ConnectionError: away"


async def test_a_workflow_that_cannot_go_on_tells_why(world: World) -> None:
    ears = Ears()
    app = world.app(observer=ears)

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        open("/etc/hostname")  # noqa: ASYNC230, SIM115, PTH123

    async with world.worker(app):
        await app.start_workflow(flow, workflow_id="w")
        await eventually(lambda: PARKED in ears.types("workflow"))
    parked = ears.last(PARKED, "workflow")
    assert (parked.name, parked.key) == ("flow", "w")
    assert parked.error is not None
    assert "belongs in a task" in parked.error.message


async def test_hooks_and_observers_that_raise_harm_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(semel.Observer):
        def observe(self, verb: str, seconds: float, error: BaseException | None) -> None:
            raise RuntimeError("broken observer")

        def event(self, event: WorkerEvent) -> None:
            raise RuntimeError("broken observer")

    called = []

    def hook(failure: Failure) -> None:
        called.append(failure.key)
        raise RuntimeError("broken hook")

    app = world.app(observer=Broken(), on_failure=hook)

    @app.task(retry=1)
    async def work() -> None:
        raise ValueError("no")

    async with world.worker(app):
        for key in ("a", "b"):
            assert await ended(await app.enqueue(work, task_id=key)) is Status.FAILED
    assert called == ["a", "b"], "leaving the worker waits for the hook"
    assert "on_failure(work" in caplog.text
    assert "broken hook" in caplog.text
    assert "the observer raised on an event" in caplog.text


@pytest.mark.journal("moves the clock past a lease; on a cluster it is the workflow of the task that finds out")
async def test_a_task_whose_worker_died_on_its_last_attempt_is_told(world: World) -> None:
    ears, failures = Ears(), list[Failure]()
    one, two, begun = world.app(), world.app(observer=ears, on_failure=failures.append), asyncio.Event()
    for app in (one, two):

        @app.task(retry=1)
        async def work() -> None:
            begun.set()
            await asyncio.Event().wait()

    handle = await one.enqueue(work, task_id="k")
    async with world.worker(one, grace=0, lease="10m") as dead:
        await begun.wait()
        await world.cut_off(dead)
        async with world.worker(two, lease="10m"):
            await world.advance("11m")
            await eventually(lambda: failures)
    (failure,) = failures
    assert (failure.id, failure.name, failure.key, failure.kind) == (handle.id, "work", "k", "task")
    assert (failure.error.type, failure.exception) == ("semel.WorkerLost", None)


async def test_a_task_that_blocks_the_event_loop_is_named(world: World, caplog: pytest.LogCaptureFixture) -> None:
    ears = Ears()
    app = world.app(observer=ears)

    def blocked() -> list[str]:
        return [line for line in caplog.messages if "the event loop is blocked" in line]

    @app.task
    async def greedy() -> None:
        end = time.monotonic() + 20
        while not blocked() and time.monotonic() < end:
            time.sleep(0.05)  # noqa: ASYNC251

    async with world.worker(app):
        handle = await app.enqueue(greedy, task_id="k")
        await handle.result(timeout="30s")
        await eventually(lambda: WorkerEventType.LOOP_BLOCKED in ears.types("task"))
    (line,) = blocked()
    assert "by task greedy 'k' at " in line
    assert "test_worker_events.py:" in line
    assert "in greedy" in line
