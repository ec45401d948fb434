"""`semel workflows graph`: the steps of a workflow, in order, with their states."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from semel import App, Execution
from semel.cli.paper import Paper, brief
from semel.cli.verb import database_verb
from semel.cli.workflows.commands import Asked, commands_of
from semel.cli.workflows.finding import Which, workflow_of

WIDEST = 60
_COLOURS = {
    "completed": "#d5f5d5", "done": "#d5f5d5", "started": "#d5f5d5", "open": "#d5e5fa", "failed": "#fad5d5",
    "timed_out": "#fad5d5", "refused": "#fad5d5", "cancelled": "#faf0c5", "dropped": "#eeeeee",
}  # fmt: skip


class Format(StrEnum):
    """How a graph is written."""

    MERMAID = "mermaid"
    DOT = "dot"
    TEXT = "text"


@database_verb()
async def graph(
    app: App,
    paper: Paper,
    which: Which,
    format: Annotated[Format, typer.Option("--format", help="mermaid and dot are drawn by other tools.")] = (
        Format.MERMAID
    ),
) -> None:
    """Draw a workflow: its steps, tasks and children, in order, with their states."""
    handle, execution = await workflow_of(app, which)
    commands = commands_of(await handle.history(), execution)
    if paper.as_json:
        data = [command.as_data() for command in commands]
        paper.data({"id": execution.id, "key": execution.key, "status": execution.status, "commands": data})
        return
    draw = {Format.MERMAID: _mermaid, Format.DOT: _dot, Format.TEXT: _text}[format]
    for line in draw(execution, commands):
        paper.line(line)


def _title(e: Execution) -> str:
    return f"{e.name} {e.key or e.id}: {e.status}"


def _label(command: Asked) -> str:
    what = f"{command.kind} {command.name}".rstrip()
    key = f" ({brief(command.key, WIDEST)})" if command.key else ""
    return f"#{command.number} {what}{key}: {command.state}"


def _mermaid(execution: Execution, commands: Sequence[Asked]) -> list[str]:
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


def _dot(execution: Execution, commands: Sequence[Asked]) -> list[str]:
    lines = ["digraph workflow {", "  node [shape=box, style=filled, fillcolor=white];"]
    lines.append(f"  flow [label={_string(_title(execution))}, shape=ellipse];")
    for command in commands:
        colour = _COLOURS.get(command.state, "white")
        lines.append(f'  c{command.number} [label={_string(_label(command))}, fillcolor="{colour}"];')
        lines += [f"  {f'c{n}' if n else 'flow'} -> c{command.number};" for n in command.after or [0]]
    return [*lines, "}"]


def _string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(execution: Execution, commands: Sequence[Asked]) -> list[str]:
    lines = [_title(execution)]
    for at, command in enumerate(commands, 1):
        after = f"  (after {', '.join(f'#{n}' for n in command.after)})" if command.after else ""
        lines.append(f"{'└─' if at == len(commands) else '├─'} {_label(command)}{after}")
    return lines
