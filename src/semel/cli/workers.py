"""`semel workers`: who holds a lease."""

from __future__ import annotations

from semel import App
from semel.cli.paper import Paper, ago, when
from semel.cli.verb import database_verb


@database_verb()
async def workers(app: App, paper: Paper) -> None:
    """Show the workers that hold a lease."""
    found = await app.workers()
    if paper.as_json:
        paper.data(found)
        return
    if not found:
        paper.line("No worker holds a lease.")
        paper.next("worker", "module:app")
        return
    rows = [(w.name, w.queues, ago(w.started_at), when(w.expires_at)) for w in found]
    paper.table(("Worker", "Queues", "Started", "Lease until"), rows)
