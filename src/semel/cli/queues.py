"""`semel queues`: queues, what is in them, and their limits."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from semel import App
from semel.cli.paper import Paper, spelled
from semel.cli.verb import database_verb


@database_verb()
async def queues(app: App, paper: Paper) -> None:
    """Show queues, what is in them, and their limits."""
    found = await app.queues()
    if paper.as_json:
        paper.data(
            [
                {
                    "name": queue.name,
                    "ready": queue.ready,
                    "running": queue.running,
                    "delayed": queue.delayed,
                    "retention": queue.settings.retention,
                    "dedup_window": queue.settings.dedup_window,
                    "rate_limit": queue.settings.rate_limit,
                    "concurrency": queue.settings.concurrency,
                }
                for queue in found
            ]
        )
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
    return spelled(value) if isinstance(value, timedelta) else str(value)
