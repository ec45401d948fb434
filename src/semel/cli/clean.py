"""`semel clean`: what workers do every hour, now."""

from __future__ import annotations

from semel import App
from semel.cli.paper import Paper
from semel.cli.verb import database_verb


@database_verb()
async def clean(app: App, paper: Paper) -> None:
    """Drop what is past its retention. Workers do so by themselves."""
    looked = await app.clean()
    if paper.as_json:
        paper.data({"executions": looked})
    else:
        paper.line(f"Looked at {looked} executions that are past their retention or their window.")
