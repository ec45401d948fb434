"""`semel show`: one execution, with what went in and what came out."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from semel import App, Execution, Handle, Status
from semel.cli.paper import Paper, when
from semel.cli.verb import database_verb
from semel.cli.workflows.listing import is_parked
from semel.contract.durations import spell
from semel.records import to_json

_RELEASED = (Status.FAILED, Status.CANCELLED, Status.TIMED_OUT)


@database_verb()
async def show(
    app: App,
    paper: Paper,
    id: Annotated[str, typer.Argument(help="An execution, or the beginning of its id.")],
) -> None:
    """Show one execution: where it stands, its input, its result or its error."""
    handle = await app.get(id)
    execution = await handle.describe()
    given = await handle.input()
    result = await _result(handle, execution)
    if paper.as_json:
        paper.data({**to_json(execution), "input": given, "result": result})
        return
    for label, value in _lines(execution):
        if value:
            paper.line(f"{label:<12}{value}")
    paper.line(f"{'input':<12}{'past its retention' if given is None else _brief(given)}")
    if execution.status is Status.COMPLETED:
        paper.line(f"{'result':<12}{'past its retention' if execution.expired else _brief(result)}")
    parked = execution.kind != "task" and is_parked(execution)
    if execution.error is not None:
        label = "parked" if parked else "error"
        paper.line(f"{label:<12}{execution.error}", "red")
        if execution.error.traceback:
            paper.line(execution.error.traceback.rstrip(), "dim")
    if execution.kind == "entity" and execution.key is not None:
        found = (await app.explain(execution.key, kind="entity")).undelivered
        for line in found.lines(execution.key):
            paper.line(line)
    if execution.kind != "task":
        paper.next("workflows", "show", execution.key or execution.id)
    if execution.key is not None:
        paper.next("explain", execution.key)
    if execution.status in _RELEASED:
        paper.next("redrive", execution.id)
    elif parked:
        paper.next("workflows", "terminate", execution.key or execution.id)
    elif execution.status.live:
        paper.next("cancel", execution.id)


async def _result(handle: Handle[Any], execution: Execution) -> Any:
    if execution.status is not Status.COMPLETED or execution.expired:
        return None
    return await handle.output()


def _lines(e: Execution) -> list[tuple[str, str]]:
    return [
        ("id", e.id),
        (e.kind, e.name),
        ("key", e.key or ""),
        ("status", f"{e.status}{' (asked to stop)' if e.cancel_requested and e.status.live else ''}"),
        ("queue", e.queue),
        ("priority", str(e.priority) if e.priority else ""),
        ("attempt", f"{e.attempt} of {e.max_attempts}" if e.kind == "task" else ""),
        ("asked for", when(e.created_at)),
        ("due", when(e.run_at)),
        ("started", when(e.started_at)),
        ("ended", when(e.finished_at)),
        ("kept until", f"{when(e.expires_at)} ({spell(e.retention)})" if e.expires_at else ""),
        ("worker", e.worker or ""),
        ("progress", e.progress or ""),
        ("parent", e.parent_id or ""),
        ("followed", e.previous_id or ""),
    ]


def _brief(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
