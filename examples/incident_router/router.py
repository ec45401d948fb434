"""The router and the agent.

    python -m examples.incident_router.router

A schedule starts a router every five minutes; a webhook can trigger it in between. The router and the agents are
workflows, which decide. Reading metrics, asking the model and filing tickets are tasks, which act. Run it again in the
same folder: the incident opens again, and the cooldown suppresses the briefing.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from rich import print

import semel
from examples.incident_router import incidents
from examples.incident_router.incidents import Change
from examples.incident_router.ports import Advice, FakeAgent, FakeSensors, FakeTickets, Outside

app = semel.App(namespace="incident-router")
outside = Outside()

BUCKET = 300
LINGER = 60.0
"""How long a router keeps listening after its bucket, so that no kick for the bucket finds a router that is ending."""
COOLDOWN = 1800.0


@app.task(retry=5, timeout="10s")
async def read_metrics(scope: str) -> dict[str, float]:
    return await outside.sensors.read(scope)


@app.task(queue="agents", retry=3, timeout="5m")
async def ask_agent(brief: str) -> Advice:
    return await outside.agent.advise(brief, semel.effect_key("advise"))


@app.task(retry=20)
async def file_ticket(text: str) -> None:
    await outside.tickets.file(text, semel.effect_key("file"))


@app.workflow
async def set_up(ctx: semel.Context) -> None:
    await ctx.transaction(incidents.make_tables)


@app.workflow
async def route(ctx: semel.Context, scope: str, bucket: datetime) -> int:
    """Check once, and again at every kick, until the bucket ends. Return how many agents were called."""
    ctx.search_attributes["scope"] = scope
    until = bucket + timedelta(seconds=BUCKET + LINGER)
    called = 0
    while True:
        called += await look(ctx, scope)
        try:
            await ctx.wait_signal("kick", timeout=max(0.0, (until - ctx.now()).total_seconds()))
        except TimeoutError:
            return called


async def look(ctx: semel.Context, scope: str) -> int:
    called = 0
    metrics = await ctx.execute_task(read_metrics, scope)
    for finding in incidents.evaluate(metrics):
        change = await ctx.transaction(incidents.upsert_incident, scope, finding)
        if change is not None:
            id_ = f"agent:{change.incident}:{change.kind}:{change.sequence}"
            await ctx.start_workflow(brief_agent, change, workflow_id=id_, on_parent_close="abandon")
            called += 1
    ctx.publish("seen", metrics)
    return called


@app.workflow
async def brief_agent(ctx: semel.Context, change: Change) -> str:
    """Ask the model what to do about a change, unless it was asked about this incident recently."""
    ctx.search_attributes["incidentKey"] = change.incident
    fresh = await ctx.transaction(incidents.claim_cooldown, change.incident, ctx.now().timestamp(), COOLDOWN)
    if not fresh and not change.urgent:
        return "cooling down"
    brief = await ctx.transaction(incidents.describe_incident, change)
    advice = await ctx.execute_task(ask_agent, brief, task_id=f"advise:{ctx.workflow_id}")
    if advice.ticket is not None:
        await ctx.execute_task(file_ticket, advice.ticket, task_id=f"ticket:{ctx.workflow_id}")
    await ctx.transaction(incidents.record_decision, ctx.workflow_id, change.incident, advice.text)
    return "briefed"


async def kick(scope: str, now: datetime | None = None) -> semel.Handle[int]:
    """Have the router of this bucket check: start it, signal it if it is running, start it again if it has ended.

    For both the schedule and webhooks, as often as they like.
    """
    moment = now or datetime.now(UTC)
    bucket = datetime.fromtimestamp(moment.timestamp() // BUCKET * BUCKET, UTC)
    id_ = f"router:{scope}:{bucket:%Y-%m-%dT%H:%M}"
    while True:
        handle = await app.start_workflow(route, scope, bucket, workflow_id=id_, reuse="always")
        if not handle.duplicate:
            return handle  # it starts now and sees the current metrics
        try:
            await handle.signal("kick")
        except semel.WorkflowEnded:
            continue
        return handle


async def seen(router: semel.Handle[int], error_rate: float) -> None:
    """Wait until the router has checked and every agent that it called is done."""
    async with asyncio.timeout(20):
        while (await router.published("seen", {})).get("error_rate") != error_rate:
            await asyncio.sleep(0.02)
    for agent in await app.list(kind="workflow", name="brief_agent"):
        if agent.status.live:
            await (await app.get(agent.id)).result("1m")


async def main() -> None:
    agent, sensors, tickets = FakeAgent(), FakeSensors(), FakeTickets()
    outside.agent, outside.sensors, outside.tickets = agent, sensors, tickets
    async with app, app.worker():
        await (await app.start_workflow(set_up, workflow_id="set-up:incidents")).result("1m")
        before = {agent.id for agent in await app.list(name="brief_agent")}
        for error_rate in (7.0, 7.5, 25.0, 0.1):
            sensors.values["error_rate"] = error_rate
            await seen(await kick("shop"), error_rate)
        for agent_run in reversed(await app.list(name="brief_agent")):
            if agent_run.id not in before:
                print(agent_run.key, await (await app.get(agent_run.id)).result("1m"))
    for brief in agent.briefs:
        print(brief)
    print(f"{len(tickets.filed)} tickets")


if __name__ == "__main__":
    asyncio.run(main())
