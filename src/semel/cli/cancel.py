"""`semel cancel`: cancel what waits, ask what runs to stop."""

from __future__ import annotations

from typing import Annotated

import typer

from semel import App, Status
from semel.cli.exits import Exit
from semel.cli.paper import Paper
from semel.cli.verb import database_verb


@database_verb()
async def cancel(
    app: App, paper: Paper, id: Annotated[str, typer.Argument(help="An execution, or the beginning of its id.")]
) -> Exit:
    """Cancel an execution."""
    handle = await app.get(id)
    before = await handle.status()
    status = before if before.terminal else await handle.cancel()
    had_ended = before.terminal or (status.terminal and status is not Status.CANCELLED)
    if paper.as_json:
        paper.data({"id": handle.id, "status": status, "cancelled": not had_ended or status is Status.CANCELLED})
    elif had_ended:
        paper.line(f"{handle.id} had ended before: {status}.")
    elif status is Status.CANCELLED:
        paper.line(f"{handle.id} is cancelled.")
    else:
        paper.line(f"{handle.id} is {status}: it has been asked to stop.")
        paper.next("show", handle.id)
    return Exit.CONFLICT if had_ended else Exit.OK
