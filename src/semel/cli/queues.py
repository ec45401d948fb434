"""`semel queues`: queues, what is in them, and their limits."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from semel import App
from semel.cli.paper import Paper
from semel.cli.verb import database_verb
from semel.contract.durations import spell


@database_verb()
async def queues(app: App, paper: Paper) -> None:
    """Show queues, what is in them, and their limits."""
    found = await app.queues()
    if paper.as_json:
        paper.data(found)
        return
    if not found:
        paper.line("There are no queues yet: a queue appears with its first task.")
        return
    rows = []
    for queue in found:
        limits = dataclasses.asdict(queue.settings) | {"rate_limit": queue.settings.rate_limit}
        told = [f"{name} {_brief(value)}" for name, value in limits.items() if value is not None]
        rows.append((queue.name, str(queue.ready), str(queue.running), str(queue.delayed), ", ".join(told)))
    paper.table(("Queue", "Ready", "Running", "Delayed", "Settings"), rows)
    paper.next("list", "--queue", found[0].name)


def _brief(value: object) -> str:
    return spell(value) if isinstance(value, timedelta) else str(value)
