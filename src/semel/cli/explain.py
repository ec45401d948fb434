"""`semel explain`: everything known of a key, in words."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from semel import App, Explanation, Status
from semel.cli.entities import message_data
from semel.cli.exits import Exit
from semel.cli.listing import Kind
from semel.cli.paper import Paper, as_data, note, plain
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
    told = await app.explain(key, kind=kind)
    for other in told.other_kinds:
        note(f"{'An' if other == 'entity' else 'A'} {other} has this key too. See: semel explain {key} --kind {other}")
    if paper.as_json:
        paper.data(explanation_data(told))
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


def explanation_data(told: Explanation) -> dict[str, Any]:
    """An explanation for programs."""
    return {
        "key": told.key,
        "kind": told.kind,
        "executions": [as_data(execution) for execution in told.executions],
        "suppressed": [plain(suppressed) for suppressed in told.suppressed],
        "failed_messages": [message_data(message) for message in told.undelivered.failed],
        "refused": [plain(conflict) for conflict in told.undelivered.refused],
        "asked_at": told.asked_at,
        "text": told.text,
    }
