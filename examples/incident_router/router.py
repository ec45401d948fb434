"""The governance namespace: collect signals, route them, call the agent.

    python -m examples.incident_router.router

An alert comes in as an event, as often as its sender likes, and is one signal. It kicks the router of its scope; a
schedule kicks it every five minutes. The router reads the signals after its cursor and the metrics, and calls an agent
for each incident that changed. Workflows decide; reading metrics, asking the model and filing tickets are tasks, which
act. Run it again in the same folder: the incident opens again, and the cooldown suppresses the briefing.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from rich import print

import semel
from examples.incident_router import incidents
from examples.incident_router.incidents import Change, Signal
from examples.incident_router.ports import Advice, FakeAgent, FakeSensors, FakeTickets, Outside

app = semel.App(namespace="governance")
outside = Outside()

QUEUE = "governance-tasks"
SCOPES = ("shop",)
"""What the schedule looks at; alerts may be about others, too."""
SEVERITIES = {"warning": 1, "critical": 2}
BUCKET = 300
COOLDOWN = 1800.0
KICK_AGAIN = 1.0
LONGEST_WAIT = 60.0


@app.task(queue=QUEUE, retry=5, timeout="10s")
async def read_metrics(scope: str) -> dict[str, float]:
    return await outside.sensors.read(scope)


@app.task(queue=QUEUE, retry=3, timeout="5m")
async def ask_agent(brief: str) -> Advice:
    return await outside.agent.advise(brief, semel.effect_key("advise"))


@app.task(queue=QUEUE, retry=20)
async def file_ticket(text: str) -> None:
    await outside.tickets.file(text, semel.effect_key("file"))


@app.task(queue=QUEUE, retry=20)
async def kick_router(scope: str, at: datetime) -> None:
    await kick(scope, at)


@app.on_schedule("*/5 * * * *")
@app.task(queue=QUEUE)
async def watch(run: semel.Run) -> None:
    """Have the router of every scope look, in the bucket that the slot is the beginning of."""
    for scope in SCOPES:
        await kick(scope, run.scheduled_for)


@app.on_event("alert.*")
@app.workflow(queue=QUEUE)
async def collect_signal(ctx: semel.Context, event: semel.EventEnvelope) -> int:
    """Store what an alert says, and kick the router until its cursor has passed it. Return the signal's number.

    A kick that meets a router in its last moment can be lost. The cursor is what counts, so no signal is.
    """
    data, at = event.data, event.time or ctx.now()
    severity = 0 if event.type == "alert.resolved" else SEVERITIES[data["severity"]]
    signal = Signal(data["scope"], data["alert"], severity, at.timestamp())
    ctx.search_attributes["scope"] = signal.scope
    number = await ctx.transaction(incidents.store_signal, event.event_id, signal)
    wait = KICK_AGAIN
    while not await ctx.transaction(incidents.is_seen, signal.scope, number):
        await ctx.execute_task(kick_router, signal.scope, ctx.now())
        await ctx.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)
    return number


@app.workflow(queue=QUEUE)
async def set_up(ctx: semel.Context) -> None:
    await ctx.transaction(incidents.make_tables)


@app.workflow(queue=QUEUE)
async def route(ctx: semel.Context, scope: str, bucket: datetime) -> int:
    """Look once, and again at every kick, until the bucket ends. Return how many agents were called."""
    ctx.search_attributes["scope"] = scope
    until = bucket + timedelta(seconds=BUCKET)
    called = 0
    while True:
        called += await look(ctx, scope)
        try:
            await ctx.wait_signal("kick", timeout=max(0.0, (until - ctx.now()).total_seconds()))
        except TimeoutError:
            return called


async def look(ctx: semel.Context, scope: str) -> int:
    """Read signals and metrics, change incidents, call an agent for each change; return how many."""
    while True:
        unread = await ctx.transaction(incidents.read_signals, scope)
        metrics = await ctx.execute_task(read_metrics, scope)
        findings = incidents.evaluate(unread.signals, metrics)
        changes = await ctx.transaction(incidents.apply_findings, scope, unread, findings)
        if changes is not None:
            break  # else the router of another bucket has looked meanwhile, and what was read is old
    for change in changes:
        id_ = f"agent:{change.incident}:{change.kind}:{change.sequence}"
        await ctx.start_workflow(brief_agent, change, workflow_id=id_, on_parent_close="abandon")
    return len(changes)


@app.workflow(queue=QUEUE)
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


async def kick(scope: str, at: datetime) -> semel.Handle[int]:
    """Have the router of this time's bucket look: start it, signal it if it runs, start it again if it has ended."""
    bucket = datetime.fromtimestamp(at.timestamp() // BUCKET * BUCKET, UTC)
    id_ = f"router:{scope}:{bucket:%Y-%m-%dT%H:%M}"
    while True:
        handle = await app.start_workflow(route, scope, bucket, workflow_id=id_, reuse="always")
        if not handle.duplicate:
            return handle  # it starts now, and reads what there is
        try:
            await handle.signal("kick")
        except semel.WorkflowEnded:
            continue
        return handle


async def receive(cloud_event: dict[str, Any]) -> semel.Published[semel.Handle[Any]]:
    """What a web framework calls for a webhook. When it returns, the event is committed: answer its sender."""
    return await app.publish(semel.EventEnvelope.from_cloudevent(cloud_event))


def make_alert(at: datetime, severity: str | None) -> dict[str, Any]:
    """The webhook of a monitoring system; without a severity, the alert is over."""
    time, type_ = at.isoformat(), "alert.resolved" if severity is None else "alert.firing"
    data = {"scope": "shop", "alert": "checkout", "severity": severity}
    return {"specversion": "1.0", "source": "/monitoring", "id": time, "time": time, "type": type_, "data": data}


async def agents(before: set[str], count: int) -> list[str]:
    """Wait for so many new agents; what became of each, oldest first."""
    async with asyncio.timeout(60):
        while len(found := [one for one in await app.list(name="brief_agent") if one.id not in before]) < count:
            await asyncio.sleep(0.02)
        return [f"{one.key} {await (await app.get(one.id)).result()}" for one in reversed(found)]


async def main() -> None:
    agent, sensors, tickets = FakeAgent(), FakeSensors(), FakeTickets()
    outside.agent, outside.sensors, outside.tickets = agent, sensors, tickets
    signals = 0
    async with app:
        await app.apply()
        async with app.worker():
            await (await app.start_workflow(set_up, workflow_id="set-up:incidents")).result("1m")
            before = {one.id for one in await app.list(name="brief_agent")}
            for severity, error_rate, called in (("warning", 0.1, 1), ("critical", 25.0, 3), (None, 0.1, 5)):
                sensors.values["error_rate"] = error_rate
                alert = make_alert(datetime.now(UTC), severity)
                for _ in range(3):  # as senders do that get no answer in time
                    signals += not (await receive(alert)).duplicate
                became = await agents(before, called)
    for line in became:
        print(line)
    for brief in agent.briefs:
        print(brief)
    print(f"{signals} signals, {len(tickets.filed)} tickets")


if __name__ == "__main__":
    asyncio.run(main())
