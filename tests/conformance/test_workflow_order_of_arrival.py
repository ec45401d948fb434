"""What came first counts first: a timer beats nothing that came before it, however late a worker finds both."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import TypeVar

import pytest

import semel
from tests.temporal_world import TemporalWorld
from tests.world import World, ended, eventually, naps, waits

T = TypeVar("T")
WHEN = ("early", "late")
FIRST_SPAN = 3.0
"""Seconds of the timers. Where stopping a worker takes longer than that, the next try has longer ones."""


class TooSlow(Exception):
    """Something came after its time, since the machine took so many seconds."""

    def __init__(self, took: float) -> None:
        super().__init__(took)
        self.took = took


async def play(scene: Callable[[World, float], Awaitable[T]], world: World) -> T:
    """Play a scene with timers that do not run out before their time."""
    span = FIRST_SPAN
    while True:
        try:
            return await scene(world, span)
        except TooSlow as slow:
            span = 2 * slow.took + 1


class Scene:
    """Flows whose timers run out while no worker is there that could tell them of anything."""

    def __init__(self, world: World, span: float) -> None:
        self.world, self.span = world, span
        self.app = app = world.app()
        self.may_end = may_end = {when: asyncio.Event() for when in WHEN}

        @app.task(queue="elsewhere")
        async def work(when: str) -> str:
            await may_end[when].wait()
            return "answer"

        @app.workflow(queue="elsewhere")
        async def child(ctx: semel.Context, when: str, span: float) -> str:
            return await ctx.execute_task(work, when, task_id=f"of-{when}-{span:g}")

        @app.workflow
        async def signal(ctx: semel.Context, when: str, span: float) -> str:
            return await or_timer(ctx.wait_signal("x", timeout=span))

        @app.workflow
        async def between(ctx: semel.Context, when: str, span: float) -> str:
            """Another timer has gone off when the signal comes."""
            _, found = await asyncio.gather(asyncio.sleep(span / 50), or_timer(ctx.wait_signal("x", timeout=span)))
            return found

        @app.workflow
        async def answer(ctx: semel.Context, when: str, span: float) -> str:
            waiting = asyncio.wait_for(ctx.execute_task(work, when), span)
            return (await asyncio.gather(asyncio.sleep(span / 50), or_timer(waiting)))[1]

        @app.workflow
        async def of_child(ctx: semel.Context, when: str, span: float) -> str:
            handle = await ctx.start_workflow(child, when, span, workflow_id=f"c-{when}-{span:g}")
            return await or_timer(asyncio.wait_for(handle.result(), span))

        @app.workflow
        async def cancelled(ctx: semel.Context, when: str, span: float) -> str:
            await asyncio.sleep(span)
            return "slept"

        @app.workflow(name=f"deadline-{span:g}", timeout=span)
        async def deadline(ctx: semel.Context, when: str, span: float) -> str:
            return await ctx.wait_signal("x", type=str)

        self.flows = (signal, between, answer, of_child, cancelled, deadline)

    async def play(self) -> dict[str, str]:
        """How each flow ended."""
        app, world = self.app, self.world
        async with world.worker(app, queues=["elsewhere"]):
            began = world.time()
            handles = await self.start()
            try:
                async with world.worker(app, queues=["default"]):
                    await asyncio.gather(*map(waits, handles.values()))
                    # A workflow whose child is still being started waits as well, but its timer does not run yet.
                    await asyncio.gather(*(naps(handles[f"of_child-{when}"]) for when in WHEN))
                await self.send(handles, "early")
            except (AssertionError, semel.WorkflowEnded):
                assert world.time() - began > self.span
            if (took := world.time() - began) > self.span:
                for handle in handles.values():
                    await handle.terminate()
                raise TooSlow(took)
            await let_pass(world, self.span)
            await self.send(handles, "late")
            async with world.worker(app, queues=["default"]):
                found = {name: await end_of(handle) for name, handle in handles.items()}
        assert [one for one in await app.replay() if not one.ok] == []
        return found

    async def start(self) -> dict[str, semel.Handle[str]]:
        flows = {f"{flow.fn.__name__}-{when}": (flow, when) for flow in self.flows for when in WHEN}
        return {
            name: await self.app.start_workflow(flow, when, self.span, workflow_id=f"{name}-{self.span:g}")
            for name, (flow, when) in flows.items()
        }

    async def send(self, handles: dict[str, semel.Handle[str]], when: str) -> None:
        for name in ("signal", "between", "deadline"):
            await handles[f"{name}-{when}"].signal("x", "signal")
        await handles[f"cancelled-{when}"].cancel()
        self.may_end[when].set()
        await eventually(lambda: has_ended(self.app, f"c-{when}-{self.span:g}"))
        await eventually(lambda: has_answer(self.world, handles[f"answer-{when}"]))


async def let_pass(world: World, seconds: float) -> None:
    """Let timers run out. On Temporal it is the server's own clock that counts."""
    if world.engine == "temporal":
        await asyncio.sleep(seconds + 0.5)
    else:
        await world.advance(seconds + 1)


async def end_of(handle: semel.Handle[str]) -> str:
    status = await ended(handle)
    return await handle.result() if status == "completed" else str(status)


async def has_ended(app: semel.App, key: str) -> bool:
    handle = await app.find(key, kind="workflow")
    return handle is not None and (await handle.status()).terminal


async def has_answer(world: World, handle: semel.Handle[str]) -> bool:
    """Has the task without a key ended that a workflow waits for?"""
    if isinstance(world, TemporalWorld):
        run = (await world.client()).get_workflow_handle((await handle.describe()).key or "")
        events = (await run.fetch_history()).events
        return any(event.HasField("activity_task_completed_event_attributes") for event in events)
    return await world.count(f"semel_inbox where kind = 'done' and execution = '{handle.id}'") > 0


async def or_timer(work: Awaitable[str]) -> str:
    try:
        return await work
    except TimeoutError:
        return "timer"


@pytest.mark.timeout(300)
async def test_what_came_before_a_timer_wins_and_what_came_after_it_does_not(world: World) -> None:
    found = await play(lambda world, span: Scene(world, span).play(), world)
    assert found == {
        "signal-early": "signal", "between-early": "signal", "deadline-early": "signal", "cancelled-early": "cancelled",
        "answer-early": "answer", "of_child-early": "answer",
        "answer-late": "timer", "of_child-late": "timer",
        "signal-late": "timer", "between-late": "timer", "deadline-late": "timed_out", "cancelled-late": "slept",
    }  # fmt: skip


@pytest.mark.timeout(300)
async def test_a_message_that_came_before_an_idle_period_was_over_puts_it_off(world: World) -> None:
    found = await play(play_entities, world)
    assert found == {"early": ["first", "second", "third"], "late": ["first", "idle", "second", "third"]}


async def play_entities(world: World, span: float) -> dict[str, list[str]]:
    app = world.app()

    @app.entity(name=f"Parcel{span:g}")
    class Parcel:
        log: list[str] = field(default_factory=list)

        @semel.handler
        async def add(self, ctx: semel.EntityContext, what: str) -> list[str]:
            self.log.append(what)
            return self.log

        @semel.idle(span)
        async def rest(self, ctx: semel.EntityContext) -> None:
            self.log.append("idle")

    parcels = {when: app.entity(Parcel, f"{when}-{span:g}") for when in WHEN}
    async with world.worker(app):
        began = world.time()
        for parcel in parcels.values():
            await parcel.ask("add", "first", timeout="60s")
    await parcels["early"].send("add", "second")
    if (took := world.time() - began) > span:
        raise TooSlow(took)
    await let_pass(world, span)
    await parcels["late"].send("add", "second")
    async with world.worker(app):
        return {when: await parcel.ask("add", "third", timeout="60s") for when, parcel in parcels.items()}


@pytest.mark.journal("on a cluster nobody announces anything")
async def test_what_was_not_announced_counts_first_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow that is held, since a step of it runs, looks into its inbox before it lets a timer go off."""
    app, running, may_end = world.app(), asyncio.Event(), asyncio.Event()

    async def step() -> None:
        running.set()
        await may_end.wait()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        _, found = await asyncio.gather(ctx.step(step), or_timer(ctx.wait_signal("x", timeout=3)))
        return found

    async with world.worker(app) as worker:
        monkeypatch.setattr(worker.hub, "news", lambda ids: None)
        handle = await app.start_workflow(flow, workflow_id="k")
        await running.wait()
        await handle.signal("x", "signal")
        begun = (await handle.describe()).created_at.timestamp()
        await eventually(lambda: world.time() > begun + 3.2)
        may_end.set()
        assert await handle.result(timeout="60s") == "signal"


@pytest.mark.proof
@pytest.mark.timeout(300)
async def test_no_signal_in_time_is_missed_under_load(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> tuple[str, float]:
        due = ctx.now().timestamp() + 3
        return await or_timer(ctx.wait_signal("x", timeout=3)), due

    async def meet(n: int) -> tuple[str, bool]:
        async with few:
            handle = await app.start_workflow(flow, workflow_id=f"k{n}")
        await asyncio.sleep(n % 30 / 8)
        sent = float("inf")
        async with few:
            with contextlib.suppress(semel.WorkflowEnded):
                await handle.signal("x", "signal")
                sent = world.time()
        found, due = await handle.result(timeout="200s")
        return found, sent < due

    few = asyncio.Semaphore(20)
    async with world.worker(app):
        found = await asyncio.gather(*(meet(n) for n in range(240)))
    assert ("timer", True) not in found, f"{found.count(('timer', True))} signals were missed"
    assert ("signal", True) in found
