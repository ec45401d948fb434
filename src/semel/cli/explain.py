"""`semel explain`: everything known of a key, in words."""

from __future__ import annotations

from typing import Annotated

import typer

from semel import App, Status
from semel.cli.exits import Exit
from semel.cli.listing import Kind
from semel.cli.paper import Paper, note
from semel.cli.verb import database_verb

_RELEASED = (Status.FAILED, Status.CANCELLED, Status.TIMED_OUT)


@database_verb()
async def explain(
    app: App,
    paper: Paper,
    key: Annotated[str, typer.Argument(help="The task_id or workflow_id that was given.")],
    kind: Annotated[
        Kind | None, typer.Option("--kind", help="What it stands for. Default: the first that is known.")
    ] = None,
) -> Exit:
    """Tell what ran under a key, what did not and why, and until when that holds."""
    stories = [await app.explain(key, kind=one) for one in ([kind] if kind else Kind)]
    known = [story for story in stories if story.executions]
    told = known[0] if known else stories[0]
    for other in known[1:]:
        note(f"A {other.kind} has this key too. See: semel explain {key} --kind {other.kind}")
    if paper.as_json:
        paper.data(told)
    else:
        paper.line(told.text)
        if told.executions:
            newest = told.executions[0]
            if newest.kind == "workflow":
                paper.next("workflows", "show", key)
            else:
                paper.next("show", newest.id)
            if newest.status in _RELEASED:
                paper.next("redrive", newest.id)
        else:
            paper.next("list")
    return Exit.OK if told.executions else Exit.NOT_FOUND
