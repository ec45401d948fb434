"""Every key that Semel derives, byte for byte: an upgrade that changed one would do everything once more (fault 33)."""

from __future__ import annotations

from datetime import timedelta

import semel
from semel.triggers import ActivityDefinition, IntervalTriggerConfig, TaskSpec
from semel.triggers.ids import derive_run_id
from tests.world import World, eventually

ID = "550e8400-e29b-41d4-a716-446655440000"
HOUR = timedelta(hours=1)
Keys = dict[str, tuple[str | None, str]]


def note(keys: Keys, what: str) -> None:
    """The key of the running task or step, and the key of an effect of it."""
    keys[what] = semel.current().key, semel.effect_key("pay")


async def test_tasks_workflows_steps_and_entities(world: World) -> None:
    app, keys = world.app(), Keys()

    @app.task
    async def charge(what: str) -> None:
        note(keys, what)

    def stamp(what: str) -> None:
        note(keys, what)

    @app.workflow
    async def child(ctx: semel.Context) -> None:
        await ctx.execute_task(charge, "task of a child")

    @app.workflow
    async def order(ctx: semel.Context) -> str:
        await ctx.step(stamp, "first step")
        await ctx.step(stamp, "second step")
        await ctx.execute_task(charge, "task of a workflow")
        await ctx.execute_task(charge, "task under a key", task_id="k-2")
        await ctx.execute_workflow(child, workflow_id="o-1-child")
        return ctx.effect_key("pay")

    @app.entity
    class Cart:
        @semel.handler
        async def add(self, ctx: semel.EntityContext) -> str:
            await ctx.step(stamp, "step of an entity")
            await ctx.execute_task(charge, "task of an entity")
            return ctx.effect_key("pay")

    async with world.worker(app):
        plain = await app.enqueue(charge, "task without a key")
        await plain.result("60s")
        await (await app.enqueue(charge, "task", task_id="k-1")).result("60s")
        workflow = await (await app.start_workflow(order, workflow_id="o-1")).result("60s")
        messages = [await app.entity(Cart, "c-1").ask("add", timeout="60s") for _ in range(2)]
    space = f"semel1:{app.settings.namespace}"
    assert {"workflow": workflow, "messages": messages, **keys} == {
        "workflow": f"{space}:workflow:o-1:pay",
        "messages": [f"{space}:entity:Cart/c-1#1:pay", f"{space}:entity:Cart/c-1#2:pay"],
        "task": ("k-1", f"{space}:task:k-1:pay"),
        "task without a key": (None, f"{space}:task-id:{plain.id}:pay"),
        "first step": ("stamp:1:o-1", f"{space}:step:stamp:1:o-1:pay"),
        "second step": ("stamp:2:o-1", f"{space}:step:stamp:2:o-1:pay"),
        "task of a workflow": (None, f"{space}:task-id:charge:1:o-1:pay"),
        "task under a key": ("k-2", f"{space}:task:k-2:pay"),
        "task of a child": (None, f"{space}:task-id:charge:1:o-1-child:pay"),
        "step of an entity": ("stamp:2:Cart/c-1", f"{space}:step:stamp:2:Cart/c-1:pay"),
        "task of an entity": (None, f"{space}:task-id:charge:2:Cart/c-1:pay"),
    }


async def test_runs_of_schedules_and_events(world: World) -> None:
    app, keys = world.app(), Keys()
    begin = world.now().replace(microsecond=0) + HOUR

    @app.task(retry=1)
    async def report(run: semel.Run) -> None:
        note(keys, f"{run.why} {run.schedule} {run.generation}")

    @app.task(retry=1)
    async def part() -> None:
        index = int((semel.current().key or "").rpartition(":")[2])
        note(keys, "task of an activity" if index else "first task of an activity")

    @app.on_event("invoice.paid")
    @app.task(retry=1)
    async def bill(run: semel.Run) -> None:
        note(keys, f"{run.why}")

    @app.workflow
    async def digest(ctx: semel.Context, run: semel.Run) -> None:
        await ctx.execute_task(report, run)

    hourly = IntervalTriggerConfig(every="1h", start_at=begin)
    app.activity(ActivityDefinition(activity_id=ID, triggers=hourly, tasks=[TaskSpec(task_type="part")] * 2))
    await app.apply()
    await app.schedules.put("daily", report, every="1h", start_at=begin)
    await app.schedules.put("digest:ann", digest, every="1h", start_at=begin)
    slot = begin.isoformat()
    async with world.worker(app):
        await world.advance("61m")
        last = {"slot daily 0", "slot digest:ann 0", "task of an activity"}
        await eventually(lambda: last <= keys.keys())
        await app.schedules.trigger("daily", "req-1")
        await app.publish(
            semel.EventEnvelope(event_id="evt_abc123", source="/shop", type="invoice.paid", time=begin, data={})
        )
        await eventually(lambda: {"manual daily 0", "event"} <= keys.keys())

        async def done() -> bool:
            handle = await app.find(f"activity-daily:{slot}")
            return handle is not None and (await handle.status()).terminal

        await eventually(done)
        made = await app.schedules.backfill(
            "daily", begin, begin + timedelta(seconds=1), rerun="all", request_key="b-1"
        )
        await eventually(lambda: "backfill daily 1" in keys)
    space = f"semel1:{app.settings.namespace}"
    run = derive_run_id(app.settings.namespace, "schedule", f"activity-{ID}:{slot}")
    assert {"backfill": made.id, **keys} == {
        "backfill": "b-1",
        "slot daily 0": (f"activity-daily:{slot}", f"{space}:task:activity-daily:{slot}:pay"),
        "slot digest:ann 0": (None, f"{space}:task-id:report:1:activity-digest:ann:{slot}:pay"),
        "task of an activity": (f"task-{run}:part:1", f"{space}:task:task-{run}:part:1:pay"),
        "first task of an activity": (f"task-{run}:part:0", f"{space}:task:task-{run}:part:0:pay"),
        "manual daily 0": ("activity-daily:manual:req-1", f"{space}:task:activity-daily:manual:req-1:pay"),
        "event": ("activity-bill:evt_abc123", f"{space}:task:activity-bill:evt_abc123:pay"),
        "backfill daily 1": (f"activity-daily:{slot}", f"{space}:task:activity-daily:{slot}:pay#2"),
    }
