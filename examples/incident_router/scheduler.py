"""The scheduler namespace: graphs that users run on schedules of their own. What becomes of a run, governance is told.

    python -m examples.incident_router.scheduler

The two namespaces share a database and nothing else. A user's schedule is created, changed and deleted by calls such as
`create_schedule`, never by a worker; its id is that of the user's record, it skips what overlaps and what was missed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol

from rich import print

import semel
from examples.incident_router import router as governance

app = semel.App(namespace="scheduler")
QUEUE = "scheduler-tasks"


class Graphs(Protocol):
    """Where graphs are executed."""

    async def execute(self, graph: str, key: str) -> str: ...


@dataclass
class FakeGraphs:
    broken: set[str] = field(default_factory=set)

    async def execute(self, graph: str, key: str) -> str:
        if graph in self.broken:
            raise ConnectionError(f"{graph} has no answer")
        return f"{graph} is done"


graphs: Graphs = FakeGraphs()


@app.task(queue=QUEUE, retry=1)
async def run_graph(graph: str, run: semel.Run) -> str:
    """Execute a graph for one slot. Governance gets one event for each run: its id is the run's."""
    try:
        result = await graphs.execute(graph, semel.effect_key("execute"))
    except Exception:
        await governance.receive(report(graph, run, "critical"))
        raise
    await governance.receive(report(graph, run, None))
    return result


def report(graph: str, run: semel.Run, severity: str | None) -> dict[str, Any]:
    data = {"scope": "graphs", "alert": graph, "severity": severity}
    type_ = "alert.resolved" if severity is None else "alert.firing"
    time = run.scheduled_for.isoformat()
    return {"specversion": "1.0", "source": "/scheduler", "id": run.key, "time": time, "type": type_, "data": data}


async def create_schedule(record: str, graph: str, cron: str) -> None:
    """What POST /schedules calls, under the id of the user's record."""
    await app.schedules.put(record, run_graph, graph, cron=cron, timezone="UTC", overlap="skip", misfire="skip")


async def main() -> None:
    global graphs
    graphs = fake = FakeGraphs(broken={"report"})
    async with governance.app, app:
        await governance.app.apply()
        await create_schedule("record-1", "report", "0 9 * * *")
        async with governance.app.worker(), app.worker():
            await (await governance.app.start_workflow(governance.set_up, workflow_id="set-up:incidents")).result("1m")
            before = {one.id for one in await governance.app.list(name="brief_agent")}
            try:
                await (await app.schedules.trigger("record-1")).result("1m")
            except semel.ExecutionFailed as error:
                print(error.error_message)
            await governance.agents(before, 1)
            fake.broken.clear()
            print(await (await app.schedules.trigger("record-1")).result("1m"))
            for line in await governance.agents(before, 2):
                print(line)


if __name__ == "__main__":
    asyncio.run(main())
