"""`semel migrate`: make the tables or bring them up to date."""

from __future__ import annotations

import sys

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from semel import App
from semel.cli.paper import Paper, console
from semel.cli.verb import database_verb


@database_verb(creates=True)
async def migrate(app: App, paper: Paper) -> None:
    """Make or update the tables. Safe to run at any time, by several at once, and again after a crash."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    err = console(sys.stderr)
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task("looking at the tables", total=None)
        applied = await app.migrate(lambda label: progress.update(task, description=f"applying {label}"))
    if paper.as_json:
        paper.data({"applied": list(applied)})
        return
    for label in applied:
        paper.line(f"applied {label}", "green")
    paper.line("The tables are up to date." if applied else "Nothing to do: the tables are up to date.")
    if applied:
        paper.next("doctor")
        paper.next("worker", "module:app")
