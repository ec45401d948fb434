"""`semel workflows show`: what happened to a workflow or an entity, in order, and what it waits for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.text import Text

from semel import App, Event, Execution, Handle, NotFound, Status
from semel.cli.paper import Paper, ago, brief, elapsed, when
from semel.cli.verb import database_verb
from semel.cli.workflows.commands import Asked, commands_of
from semel.cli.workflows.finding import WhichOne, flow_of
from semel.cli.workflows.listing import is_parked
from semel.records import to_json

_RELEASED = (Status.FAILED, Status.CANCELLED, Status.TIMED_OUT)
WIDEST = 70
NOTHING = {"workflow": "Nothing has happened yet.", "entity": "Nothing is under way."}
_GIVEN = {"workflow": "input", "entity": "state"}
_GONE = {"workflow": "past its retention", "entity": ""}


@database_verb()
async def show(app: App, paper: Paper, which: WhichOne) -> None:
    """Show a workflow or an entity: what happened, in order, what it waits for, and why it cannot go on if so.

    Of an entity its state is shown, and the message that is under way.
    """
    handle, execution = await flow_of(app, which)
    events, unknown = await _events(handle, execution)
    waits = [command for command in commands_of(events, execution) if command.open]
    given = await (handle.input() if execution.kind == "workflow" else handle.state())
    result = await handle.output() if execution.status is Status.COMPLETED and not execution.expired else None
    attributes = await handle.attributes()
    if paper.as_json:
        paper.data(
            {
                **to_json(execution), "parked": is_parked(execution), _GIVEN[execution.kind]: given, "result": result,
                "attributes": attributes, "events": events,
                "open": [command.as_data() for command in waits],
            }
        )  # fmt: skip
        return
    _head(paper, execution, given, attributes)
    if unknown:
        paper.line(unknown)
    else:
        timeline(paper, events, NOTHING[execution.kind])
    await _waiting(app, paper, waits)
    _end(paper, execution, events, result)


async def _events(handle: Handle[Any], execution: Execution) -> tuple[Sequence[Event], str]:
    """What happened, or why that is not known here: a cluster has no journal of an entity."""
    try:
        return await handle.history(), ""
    except NotFound as error:
        if execution.kind == "workflow":
            raise
        return (), error.message


def _head(paper: Paper, e: Execution, given: Any, attributes: dict[str, str]) -> None:
    status = f"{e.status}{' (parked)' if is_parked(e) else ''}{' (asked to stop)' if e.cancel_requested else ''}"
    for label, value in (
        ("key", e.key or ""),
        ("id", e.id),
        (e.kind, e.name),
        ("status", status),
        ("queue", e.queue),
        ("begun", when(e.created_at)),
        ("ended", when(e.finished_at)),
        ("due", when(e.run_at)),
        ("worker", e.worker or ""),
        ("followed", e.previous_id or ""),
        ("attributes", ", ".join(f"{name}={value}" for name, value in attributes.items())),
        (_GIVEN[e.kind], _GONE[e.kind] if given is None else brief(json.dumps(given, ensure_ascii=False), 200)),
    ):
        if value:
            paper.line(f"{label:<12}{value}")
    paper.line()


def timeline(paper: Paper, events: Sequence[Event], nothing: str) -> None:
    """A line for each thing that happened."""
    if not events:
        paper.line(nothing)
        return
    first = events[0].at
    paper.table(("Row", "Time", "After", "#", "What", "Name", "Result"), [_row(event, first) for event in events])


def _row(event: Event, first: datetime) -> tuple[str | Text, ...]:
    number = "" if event.command is None else str(event.command)
    what = " ".join(word for word in (event.what, event.kind) if word)
    style = "red" if event.status in _RELEASED else "green" if event.status == Status.COMPLETED else ""
    at = f"{event.at:%Y-%m-%d %H:%M:%S}"
    return (
        str(event.row), at, f"+{elapsed(event.at - first)}", number, what, event.name, Text(_result(event), style),
    )  # fmt: skip


def _result(event: Event) -> str:
    if event.what == "asked":
        return event.key or (str(event.value) if event.kind == "timer" else event.ref or "")
    told = "" if event.value is None else brief(_told(event.value), WIDEST)
    return f"{event.status}: {told}" if event.status and told else event.status or told


def _told(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


async def _waiting(app: App, paper: Paper, waits: Sequence[Asked]) -> None:
    if waits:
        paper.line()
        paper.line("It waits for:")
    for command in waits:
        line = f"  #{command.number} {command.kind} {command.name}".rstrip()
        standing = await _standing(app, command)
        paper.line(f"{line}, since {ago(command.asked_at)}{f': {standing}' if standing else ''}")


async def _standing(app: App, command: Asked) -> str:
    """How a task or a child stands, or when a timer is due."""
    if command.kind == "timer":
        return f"due {when(command.due)}"
    if command.ref is None:
        return ""
    handle: Handle[Any] | None = None
    try:
        handle = await app.get(command.ref)
    except NotFound:  # it joined another one
        if command.key is not None:
            handle = await app.find(command.key, kind=command.kind)
    if handle is None:
        return command.ref
    execution = await handle.describe()
    tries = f", attempt {execution.attempt} of {execution.max_attempts}" if execution.kind == "task" else ""
    return f"{execution.id} is {execution.status}{tries}"


def _end(paper: Paper, execution: Execution, events: Sequence[Event], result: Any) -> None:
    paper.line()
    if execution.status is Status.COMPLETED:
        told = "past its retention" if execution.expired else json.dumps(result, ensure_ascii=False)
        paper.line(f"{'result':<12}{told}", "green")
    if execution.error is not None:
        label = "parked" if is_parked(execution) else "error"
        paper.line(f"{label:<12}{execution.error}", "red")
    key = execution.key or execution.id
    if execution.status in _RELEASED:
        failed = [event for event in events if event.what == "resolved" and event.status in _RELEASED]
        if failed:
            paper.next("workflows", "reset", key, "--to", failed[-1].name or str(failed[-1].command))
        if execution.kind == "workflow":
            paper.next("redrive", execution.id)
    elif is_parked(execution):
        paper.line("It goes on by itself once there is code that can. To give it up:", "dim")
        paper.next("workflows", "terminate", key)
    elif execution.status.live:
        paper.next("workflows", "cancel", key)
