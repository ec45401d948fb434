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
    status = await handle.cancel()
    had_ended = status.terminal and status is not Status.CANCELLED
    if paper.as_json:
        paper.data({"id": handle.id, "status": status, "cancelled": not had_ended})
    elif status is Status.CANCELLED:
        paper.line(f"{handle.id} is cancelled.")
    elif had_ended:
        paper.line(f"{handle.id} had ended before: {status}.")
    else:
        paper.line(f"{handle.id} is {status}: it has been asked to stop.")
        paper.next("show", handle.id)
    return Exit.CONFLICT if had_ended else Exit.OK
