"""`semel workflows list`: workflows, newest first, and those that cannot go on."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from semel import App, Execution, InvalidValue, Status
from semel.cli.listing import StatusOption
from semel.cli.paper import Paper, ago, ahead, as_data, brief, status_text
from semel.cli.verb import database_verb

PAGE = 1000


@database_verb()
async def list_workflows(
    app: App,
    paper: Paper,
    status: StatusOption = None,
    name: Annotated[str | None, typer.Option("--name", help="Only those of this workflow function.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Only those on this queue.")] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only those with this search attribute; may be given again."),
    ] = None,
    parked: Annotated[bool, typer.Option("--parked", help="Only those that cannot go on, and why.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 50,
    before: Annotated[str | None, typer.Option(help="Older than this execution: the next page.")] = None,
) -> None:
    """List workflows, newest first."""
    if parked and status not in (None, Status.WAITING):
        raise InvalidValue(f"--parked --status {status}: a parked workflow is waiting.")
    which: dict[str, Any] = {"name": name, "queue": queue, "attributes": _attributes(attribute or [])}
    if parked:
        found = await _parked(app, which, limit, before)
    else:
        found = list(await app.list(kind="workflow", status=status, limit=limit, before=before, **which))
    if paper.as_json:
        paper.data([as_data(execution) for execution in found])
        return
    if not found:
        paper.line("No workflow is parked." if parked else "No workflow matches.")
        return
    paper.table(("Id", "Workflow", "Key", "Status", "Due", "Begun", "Why"), [_row(e) for e in found])
    paper.next("workflows", "show", found[0].key or found[0].id)
    if len(found) == limit:
        paper.next("workflows", "list", *(["--parked"] if parked else []), "--before", found[-1].id)


def _attributes(given: list[str]) -> dict[str, str]:
    found = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise InvalidValue(f"--attribute {one!r}: write NAME=VALUE.")
        found[name] = value
    return found


async def _parked(app: App, which: dict[str, Any], limit: int, before: str | None) -> list[Execution]:
    found: list[Execution] = []
    while len(found) < limit:
        page = await app.list(kind="workflow", status=Status.WAITING, limit=PAGE, before=before, **which)
        found += [execution for execution in page if is_parked(execution)]
        if len(page) < PAGE:
            break
        before = page[-1].id
    return found[:limit]


def is_parked(execution: Execution) -> bool:
    """Does it wait for other code?"""
    return execution.status.live and execution.error is not None


def _row(e: Execution) -> tuple[str | Text, ...]:
    why = "" if e.error is None else brief(f"{e.error.type}: {e.error.message}", 80)
    status = Text("parked", "bold red") if is_parked(e) else status_text(e.status)
    due = "" if e.run_at is None else ahead(e.run_at)
    return (e.id, e.name, e.key or "", status, due, ago(e.created_at), why)
