"""`semel redrive`: run failed executions again, one or all that match."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from semel import App, InvalidValue, NotRedrivable, Status
from semel.cli.exits import Exit
from semel.cli.listing import NameOption, QueueOption
from semel.cli.paper import Paper, console
from semel.cli.verb import database_verb

PAGE = 1000
_RELEASED = (Status.FAILED, Status.CANCELLED, Status.TIMED_OUT)


@database_verb()
async def redrive(
    app: App,
    paper: Paper,
    id: Annotated[str | None, typer.Argument(help="An execution, or the beginning of its id.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All that match, instead of one.")] = False,
    status: Annotated[
        Status, typer.Option("--status", help="With --all: failed, cancelled or timed_out.")
    ] = Status.FAILED,
    queue: QueueOption = None,
    name: NameOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --all: do not ask.")] = False,
) -> Exit:
    """Run a failed, cancelled or timed-out execution again; the old one stays in history."""
    if every == (id is not None):
        raise InvalidValue("give one ID, or --all with --status, --queue and --name to say which.")
    if id is not None:
        return await _one(app, paper, id)
    if status not in _RELEASED:
        raise InvalidValue(f"--status {status}: only {', '.join(_RELEASED)} executions can be run again.")
    ids = await _matching(app, status, queue, name)
    if not ids:
        if paper.as_json:
            paper.data({"redriven": [], "skipped": []})
        else:
            paper.line(f"No {status} executions match.")
        return Exit.OK
    if not yes:
        _ask(len(ids), status)
    return await _all(app, paper, ids)


async def _one(app: App, paper: Paper, id: str) -> Exit:
    old = await app.get(id)
    new = await app.redrive(old.id)
    if paper.as_json:
        paper.data({"redriven": [{"id": old.id, "as": new.id}], "skipped": []})
    else:
        paper.line(f"{old.id} runs again as {new.id}.")
        paper.next("show", new.id)
    return Exit.OK


async def _matching(app: App, status: Status, queue: str | None, name: str | None) -> list[str]:
    ids: list[str] = []
    before = None
    while True:
        page = await app.list(status=status, queue=queue, name=name, limit=PAGE, before=before)
        ids += [execution.id for execution in page if execution.kind != "entity"]  # its next message does that
        if len(page) < PAGE:
            return ids
        before = page[-1].id


def _ask(count: int, status: Status) -> None:
    if not sys.stdin.isatty():
        raise InvalidValue(f"{count} {status} executions match, and no one is here to ask: say --yes.")
    typer.confirm(f"Run {count} {status} executions again (those that already were are skipped)?", abort=True, err=True)


async def _all(app: App, paper: Paper, ids: list[str]) -> Exit:
    redriven: list[dict[str, str]] = []
    skipped: list[str] = []
    columns = (TextColumn("running again"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    err = console(sys.stderr)
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        for id in progress.track(reversed(ids), total=len(ids)):
            try:
                new = await app.redrive(id)
            except NotRedrivable:
                skipped.append(id)
            else:
                redriven.append({"id": id, "as": new.id})
    if paper.as_json:
        paper.data({"redriven": redriven, "skipped": skipped})
    else:
        paper.line(f"{len(redriven)} run again, {len(skipped)} skipped: run again before, or their key has moved on.")
        paper.next("list", "--status", "pending")
    return Exit.OK
