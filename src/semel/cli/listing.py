"""`semel list`: executions, newest first."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from semel import App, Execution, Status
from semel.cli.paper import Paper, ago, status_text
from semel.cli.verb import database_verb

StatusOption = Annotated[Status | None, typer.Option("--status", help="Only those that stand so.")]
QueueOption = Annotated[str | None, typer.Option("--queue", help="Only those on this queue.")]
NameOption = Annotated[str | None, typer.Option("--name", help="Only those of this task or workflow.")]


class Kind(StrEnum):
    """What a key stands for: the same one may stand for a task and for a workflow."""

    TASK = "task"
    WORKFLOW = "workflow"
    ENTITY = "entity"


@database_verb()
async def list_executions(
    app: App,
    paper: Paper,
    status: StatusOption = None,
    queue: QueueOption = None,
    name: NameOption = None,
    kind: Annotated[Kind | None, typer.Option("--kind", help="Only those of this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 50,
    before: Annotated[str | None, typer.Option(help="Older than this id: the next page.")] = None,
) -> None:
    """List executions, newest first."""
    found = await app.list(status=status, queue=queue, name=name, kind=kind, limit=limit, before=before)
    if paper.as_json:
        paper.data(found)
        return
    if not found:
        paper.line("Nothing here matches.")
        paper.next("queues")
        return
    columns = ("Id", "Kind", "Name", "Key", "Status", "Queue", "Try", "Asked for")
    paper.table(columns, [_row(execution) for execution in found])
    paper.next("show", found[0].id)
    if len(found) == limit:
        paper.next("list", "--before", found[-1].id)


def _row(e: Execution) -> tuple[str | Text, ...]:
    tries = f"{e.attempt}/{e.max_attempts}" if e.kind == "task" else ""
    return (e.id, e.kind, e.name, e.key or "", status_text(e.status), e.queue, tries, ago(e.created_at))
