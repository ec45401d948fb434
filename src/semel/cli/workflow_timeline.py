"""`semel workflows show` and `graph`: what happened to a workflow or an entity, and what it waits for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.text import Text

from semel import App, Event, Execution, Handle, NotFound, Status
from semel.cli.command import database_command
from semel.cli.executions import RELEASED, is_parked
from semel.cli.output import Output, ago, brief, elapsed, when
from semel.cli.workflows import Which, WhichOne, flow_of, workflow_of
from semel.records import to_json

RESULT_WIDTH = 70
NOTHING = {"workflow": "Nothing has happened yet.", "entity": "No message is being handled."}
_GIVEN = {"workflow": "input", "entity": "state"}
_GONE = {"workflow": "past its retention", "entity": ""}
LABEL_WIDTH = 60
_COLOURS = {
    "completed": "#d5f5d5",
    "done": "#d5f5d5",
    "started": "#d5f5d5",
    "open": "#d5e5fa",
    "failed": "#fad5d5",
    "timed_out": "#fad5d5",
    "refused": "#fad5d5",
    "cancelled": "#faf0c5",
    "dropped": "#eeeeee",
}
_AT_ONCE = frozenset({"enqueue", "send", "cancel"})
_REMARKS = frozenset({"publish", "attribute", "patch"})
"""Commands that nothing waits for; the timeline shows them."""


@dataclass
class AskedCommand:
    """One command of a workflow, and how it ended."""

    number: int
    kind: str
    name: str
    asked_at: datetime
    ref: str | None = None
    key: str | None = None
    due: datetime | None = None
    state: str = "open"
    """open, done, dropped (no longer waited for), or the status of an execution."""
    after: list[int] = field(default_factory=list)
    """The commands whose answers led to this one; empty for the first commands."""

    @property
    def open(self) -> bool:
        """Is there no answer yet?"""
        return self.state == "open"

    def as_data(self) -> dict[str, Any]:
        """The command as `--json` shows it."""
        return {
            "command": self.number,
            "kind": self.kind,
            "name": self.name,
            "state": self.state,
            "since": self.asked_at,
            "ref": self.ref,
            "key": self.key,
            "due": self.due,
            "after": self.after,
        }


def commands_of(events: Sequence[Event], execution: Execution) -> list[AskedCommand]:
    """The commands of a workflow, in the order in which it made them."""
    found = _collect(events)
    for command in found:
        if command.open and (execution.status.terminal or _timer_was_abandoned(command, execution)):
            command.state = "dropped"
    return found


def _timer_was_abandoned(command: AskedCommand, execution: Execution) -> bool:
    """An abandoned timer is not recorded, but the workflow no longer wakes for it."""
    if command.due is None or execution.status is not Status.WAITING or execution.error is not None:
        return False
    return execution.run_at is None or command.due < execution.run_at - timedelta(milliseconds=1)


def _collect(events: Sequence[Event]) -> list[AskedCommand]:
    found: dict[int, AskedCommand] = {}
    ends: list[int] = []
    heard: dict[str, int] = {}
    listening: dict[str, list[int]] = {}
    batch: list[int] = []
    for event in events:
        number = event.command
        if event.kind in _REMARKS:
            continue
        if event.what == "asked" and number is not None:
            one = found[number] = _asked(event)
            one.after = list(ends)
            batch.append(number)
            if event.kind == "signal":
                if heard.get(event.name):
                    heard[event.name] -= 1
                    one.state = "done"
                else:
                    listening.setdefault(event.name, []).append(number)
            continue
        if batch:  # what comes next follows from what is answered now
            ends = [end for end in ends if not any(end in found[n].after for n in batch)]
            ends += [n for n in batch if found[n].state == "done"]
            batch = []
        if event.what == "signalled":
            waiting = listening.get(event.name)
            if waiting:
                number = waiting.pop(0)
                found[number].state = "done"
                ends.append(number)
            else:
                heard[event.name] = heard.get(event.name, 0) + 1
        elif number in found:
            found[number].state = {"fired": "done", "dropped": "dropped"}.get(event.what, event.status)
            ends.append(number)
    return list(found.values())


def _asked(event: Event) -> AskedCommand:
    due = datetime.fromisoformat(event.value) if event.kind == "timer" and event.value else None
    state = "done" if event.kind in _AT_ONCE else "open"
    return AskedCommand(event.command or 0, event.kind, event.name, event.at, event.ref, event.key, due, state)


@database_command()
async def show_workflow(app: App, out: Output, which: WhichOne) -> None:
    """Show a workflow or an entity: what happened, what it waits for, and why it cannot continue.

    For an entity, show its state and the message that is being handled.
    """
    handle, execution = await flow_of(app, which)
    events, unknown = await _events(handle, execution)
    waits = [command for command in commands_of(events, execution) if command.open]
    given = await (handle.input() if execution.kind == "workflow" else handle.state())
    result = await handle.output() if execution.status is Status.COMPLETED and not execution.expired else None
    attributes = await handle.attributes()
    if out.as_json:
        out.data(
            {
                **to_json(execution),
                "parked": is_parked(execution),
                _GIVEN[execution.kind]: given,
                "result": result,
                "attributes": attributes,
                "events": events,
                "open": [command.as_data() for command in waits],
            }
        )
        return
    _print_head(out, execution, given, attributes)
    if unknown:
        out.line(unknown)
    else:
        print_timeline(out, events, NOTHING[execution.kind])
    await _print_waiting(app, out, waits)
    _print_end(out, execution, events, result)


async def _events(handle: Handle[Any], execution: Execution) -> tuple[Sequence[Event], str]:
    """The events, or why there are none: a Temporal cluster keeps no journal of an entity."""
    try:
        return await handle.history(), ""
    except NotFound as error:
        if execution.kind == "workflow":
            raise
        return (), error.message


def _print_head(out: Output, e: Execution, given: Any, attributes: dict[str, str]) -> None:
    status = f"{e.status}{' (parked)' if is_parked(e) else ''}{' (asked to stop)' if e.cancel_requested else ''}"
    for label, value in (
        ("key", e.key or ""),
        ("id", e.id),
        (e.kind, e.name),
        ("status", status),
        ("queue", e.queue),
        ("started", when(e.created_at)),
        ("ended", when(e.finished_at)),
        ("due", when(e.run_at)),
        ("worker", e.worker or ""),
        ("followed", e.previous_id or ""),
        ("attributes", ", ".join(f"{name}={value}" for name, value in attributes.items())),
        (_GIVEN[e.kind], _GONE[e.kind] if given is None else brief(json.dumps(given, ensure_ascii=False), 200)),
    ):
        if value:
            out.line(f"{label:<12}{value}")
    out.line()


def print_timeline(out: Output, events: Sequence[Event], nothing: str) -> None:
    """A line for each thing that happened."""
    if not events:
        out.line(nothing)
        return
    first = events[0].at
    out.table(("Row", "Time", "After", "#", "What", "Name", "Result"), [_row(event, first) for event in events])


def _row(event: Event, first: datetime) -> tuple[str | Text, ...]:
    number = "" if event.command is None else str(event.command)
    what = " ".join(word for word in (event.what, event.kind) if word)
    style = "red" if event.status in RELEASED else "green" if event.status == Status.COMPLETED else ""
    at = f"{event.at:%Y-%m-%d %H:%M:%S}"
    after = f"+{elapsed(event.at - first)}"
    return (str(event.row), at, after, number, what, event.name, Text(_result(event), style))


def _result(event: Event) -> str:
    if event.what == "asked":
        return event.key or (str(event.value) if event.kind == "timer" else event.ref or "")
    text = "" if event.value is None else brief(_as_text(event.value), RESULT_WIDTH)
    return f"{event.status}: {text}" if event.status and text else event.status or text


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


async def _print_waiting(app: App, out: Output, waits: Sequence[AskedCommand]) -> None:
    if waits:
        out.line()
        out.line("It waits for:")
    for command in waits:
        line = f"  #{command.number} {command.kind} {command.name}".rstrip()
        status = await _status_of(app, command)
        out.line(f"{line}, since {ago(command.asked_at)}{f': {status}' if status else ''}")


async def _status_of(app: App, command: AskedCommand) -> str:
    """The status of a task or a child, or when a timer is due."""
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


def _print_end(out: Output, execution: Execution, events: Sequence[Event], result: Any) -> None:
    out.line()
    if execution.status is Status.COMPLETED:
        text = "past its retention" if execution.expired else json.dumps(result, ensure_ascii=False)
        out.line(f"{'result':<12}{text}", "green")
    if execution.error is not None:
        label = "parked" if is_parked(execution) else "error"
        out.line(f"{label:<12}{execution.error}", "red")
    key = execution.key or execution.id
    if execution.status in RELEASED:
        failed = [event for event in events if event.what == "resolved" and event.status in RELEASED]
        if failed:
            out.next("workflows", "reset", key, "--to", failed[-1].name or str(failed[-1].command))
        if execution.kind == "workflow":
            out.next("redrive", execution.id)
    elif is_parked(execution):
        out.line("It continues by itself once compatible code is deployed. To end it instead:", "dim")
        out.next("workflows", "terminate", key)
    elif execution.status.live:
        out.next("workflows", "cancel", key)


class Format(StrEnum):
    """How a graph is written."""

    MERMAID = "mermaid"
    TEXT = "text"


@database_command()
async def graph(
    app: App,
    out: Output,
    which: Which,
    format: Annotated[Format, typer.Option("--format", help="mermaid is drawn by other tools, text by this one.")] = (
        Format.MERMAID
    ),
) -> None:
    """Draw a workflow: its steps, tasks and children, in order, with their states."""
    handle, execution = await workflow_of(app, which)
    commands = commands_of(await handle.history(), execution)
    if out.as_json:
        data = [command.as_data() for command in commands]
        out.data({"id": execution.id, "key": execution.key, "status": execution.status, "commands": data})
        return
    draw = {Format.MERMAID: _mermaid, Format.TEXT: _text}[format]
    for line in draw(execution, commands):
        out.line(line)


def _title(e: Execution) -> str:
    return f"{e.name} {e.key or e.id}: {e.status}"


def _label(command: AskedCommand) -> str:
    what = f"{command.kind} {command.name}".rstrip()
    key = f" ({brief(command.key, LABEL_WIDTH)})" if command.key else ""
    return f"#{command.number} {what}{key}: {command.state}"


def _mermaid(execution: Execution, commands: Sequence[AskedCommand]) -> list[str]:
    lines = ["flowchart TD", f'  flow(["{_quoted(_title(execution))}"])']
    for command in commands:
        left, right = ("[[", "]]") if command.kind == "workflow" else ("([", "])") if command.kind == "signal" else "[]"
        lines.append(f'  c{command.number}{left}"{_quoted(_label(command))}"{right}')
        lines += [f"  {f'c{n}' if n else 'flow'} --> c{command.number}" for n in command.after or [0]]
    for state, colour in _COLOURS.items():
        mine = [f"c{command.number}" for command in commands if command.state == state]
        if mine:
            lines += [f"  classDef {state} fill:{colour},stroke:#888", f"  class {','.join(mine)} {state}"]
    return lines


def _quoted(text: str) -> str:
    """Mermaid reads entities in a label, and nothing else."""
    return text.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


def _text(execution: Execution, commands: Sequence[AskedCommand]) -> list[str]:
    lines = [_title(execution)]
    for at, command in enumerate(commands, 1):
        after = f"  (after {', '.join(f'#{n}' for n in command.after)})" if command.after else ""
        lines.append(f"{'└─' if at == len(commands) else '├─'} {_label(command)}{after}")
    return lines
