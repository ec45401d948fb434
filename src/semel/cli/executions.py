"""`semel list`, `show`, `explain`, `cancel` and `redrive`."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from semel import App, Execution, Handle, InvalidValue, NotRedrivable, Status
from semel.cli.command import Exit, database_command
from semel.cli.output import Output, ago, console, note, status_text, when
from semel.cli.schedule_options import read_time
from semel.contract.durations import format_duration
from semel.records import to_json

StatusOption = Annotated[Status | None, typer.Option("--status", help="Only executions in this state.")]
QueueOption = Annotated[str | None, typer.Option("--queue", help="Only executions on this queue.")]
NameOption = Annotated[str | None, typer.Option("--name", help="Only executions of this task or workflow.")]


RELEASED = (Status.FAILED, Status.CANCELLED, Status.TIMED_OUT)
"""The states in which an execution can be run again."""
PAGE = 1000


class Kind(StrEnum):
    """What a key belongs to: a task and a workflow may have the same key."""

    TASK = "task"
    WORKFLOW = "workflow"
    ENTITY = "entity"


@database_command()
async def list_executions(
    app: App,
    out: Output,
    status: StatusOption = None,
    queue: QueueOption = None,
    name: NameOption = None,
    kind: Annotated[Kind | None, typer.Option("--kind", help="Only executions of this kind.")] = None,
    scheduled_after: Annotated[
        str | None, typer.Option(help="Only runs of schedules whose slot is at this time or after it.")
    ] = None,
    scheduled_before: Annotated[
        str | None, typer.Option(help="Only runs of schedules whose slot is before this time.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Show at most this many.")] = 50,
    before: Annotated[str | None, typer.Option(help="Only executions older than this id, for the next page.")] = None,
) -> None:
    """List executions, newest first. Those of schedules by their slots, if a time is given."""
    found = await app.list(
        status=status,
        queue=queue,
        name=name,
        kind=kind,
        scheduled_after=_time(scheduled_after, "scheduled_after"),
        scheduled_before=_time(scheduled_before, "scheduled_before"),
        limit=limit,
        before=before,
    )
    if out.as_json:
        out.data(found)
        return
    if not found:
        out.line("No executions match.")
        out.next("queues")
        return
    columns = ("Id", "Kind", "Name", "Key", "Status", "Queue", "Attempt", "Created")
    out.table(columns, [_row(execution) for execution in found])
    out.next("show", found[0].id)
    if len(found) == limit:
        given = {
            "--status": status,
            "--queue": queue,
            "--name": name,
            "--kind": kind,
            "--scheduled-after": scheduled_after,
            "--scheduled-before": scheduled_before,
        }
        filters = [part for option, value in given.items() if value is not None for part in (option, str(value))]
        out.next("list", *filters, "--before", found[-1].id)


def _time(text: str | None, name: str) -> datetime | None:
    return None if text is None else read_time(text, f"--{name.replace('_', '-')}")


def is_parked(execution: Execution) -> bool:
    """Does a workflow or an entity wait for code that can continue it?"""
    return execution.kind != "task" and execution.status.live and execution.error is not None


def _row(e: Execution) -> tuple[str | Text, ...]:
    tries = f"{e.attempt}/{e.max_attempts}" if e.kind == "task" else ""
    return (e.id, e.kind, e.name, e.key or "", status_text(e.status), e.queue, tries, ago(e.created_at))


@database_command()
async def show(
    app: App,
    out: Output,
    id: Annotated[str, typer.Argument(help="An execution id, or the beginning of one.")],
) -> None:
    """Show one execution: its status, input, result or error."""
    handle = await app.get(id)
    execution = await handle.describe()
    given = await handle.input()
    result = await _result(handle, execution)
    if out.as_json:
        out.data({**to_json(execution), "input": given, "result": result})
        return
    for label, value in _lines(execution):
        if value:
            out.line(f"{label:<12}{value}")
    out.line(f"{'input':<12}{'past its retention' if given is None else _brief(given)}")
    if execution.status is Status.COMPLETED:
        out.line(f"{'result':<12}{'past its retention' if execution.expired else _brief(result)}")
    parked = is_parked(execution)
    if execution.error is not None:
        label = "parked" if parked else "error"
        out.line(f"{label:<12}{execution.error}", "red")
        if execution.error.traceback:
            out.line(execution.error.traceback.rstrip(), "dim")
    if execution.kind == "entity" and execution.key is not None:
        found = (await app.explain(execution.key, kind="entity")).undelivered
        for line in found.lines(execution.key):
            out.line(line)
    if execution.kind != "task":
        out.next("workflows", "show", execution.key or execution.id)
    if execution.key is not None:
        out.next("explain", execution.key)
    if execution.status in RELEASED:
        out.next("redrive", execution.id)
    elif parked:
        out.next("workflows", "terminate", execution.key or execution.id)
    elif execution.status.live:
        out.next("cancel", execution.id)


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
        ("created", when(e.created_at)),
        ("due", when(e.run_at)),
        ("started", when(e.started_at)),
        ("ended", when(e.finished_at)),
        ("kept until", f"{when(e.expires_at)} ({format_duration(e.retention)})" if e.expires_at else ""),
        ("worker", e.worker or ""),
        ("progress", e.progress or ""),
        ("parent", e.parent_id or ""),
        ("followed", e.previous_id or ""),
    ]


def _brief(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@database_command()
async def explain(
    app: App,
    out: Output,
    key: Annotated[str, typer.Argument(help="A task_id, a workflow_id, or Class/id of an entity.")],
    kind: Annotated[
        Kind | None, typer.Option("--kind", help="The kind of execution. Default: the first kind that has this key.")
    ] = None,
) -> Exit:
    """Explain what ran under a key, which duplicates did not and why, and until when the key is taken."""
    explained = await app.explain(key, kind=kind)
    for other in explained.other_kinds:
        article = "An" if other == "entity" else "A"
        note(f"{article} {other} has the same key. See: semel explain {key} --kind {other}")
    if out.as_json:
        out.data(explained)
    else:
        out.line(explained.text)
        if explained.executions:
            newest = explained.executions[0]
            if newest.kind == "workflow":
                out.next("workflows", "show", key)
            else:
                out.next("show", newest.id)
            if newest.status in RELEASED:
                out.next("redrive", newest.id)
        else:
            out.next("list")
    return Exit.OK if explained.executions else Exit.NOT_FOUND


@database_command()
async def cancel(
    app: App, out: Output, id: Annotated[str, typer.Argument(help="An execution id, or the beginning of one.")]
) -> Exit:
    """Cancel an execution."""
    handle = await app.get(id)
    before = await handle.status()
    status = before if before.terminal else await handle.cancel()
    had_ended = before.terminal or (status.terminal and status is not Status.CANCELLED)
    if out.as_json:
        out.data({"id": handle.id, "status": status, "cancelled": not had_ended or status is Status.CANCELLED})
    elif had_ended:
        out.line(f"{handle.id} had already ended: {status}.")
    elif status is Status.CANCELLED:
        out.line(f"{handle.id} is cancelled.")
    else:
        out.line(f"{handle.id} is {status}: it has been asked to stop.")
        out.next("show", handle.id)
    return Exit.CONFLICT if had_ended else Exit.OK


@database_command()
async def redrive(
    app: App,
    out: Output,
    id: Annotated[str | None, typer.Argument(help="An execution id, or the beginning of one.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Run all matching executions again.")] = False,
    status: Annotated[
        Status, typer.Option("--status", help="With --all: failed, cancelled or timed_out.")
    ] = Status.FAILED,
    queue: QueueOption = None,
    name: NameOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --all: do not ask for confirmation.")] = False,
) -> Exit:
    """Run a failed, cancelled or timed-out execution again; the old one stays in history."""
    if every == (id is not None):
        raise InvalidValue("give an execution id, or --all with --status, --queue and --name to select executions.")
    if id is not None:
        return await _redrive_one(app, out, id)
    if status not in RELEASED:
        raise InvalidValue(f"--status {status}: only {', '.join(RELEASED)} executions can be run again.")
    ids = await _matching(app, status, queue, name)
    if not ids:
        if out.as_json:
            out.data({"redriven": [], "skipped": []})
        else:
            out.line(f"No {status} executions match.")
        return Exit.OK
    if not yes:
        _ask(len(ids), status)
    return await _redrive_all(app, out, ids)


async def _redrive_one(app: App, out: Output, id: str) -> Exit:
    old = await app.get(id)
    new = await app.redrive(old.id)
    if out.as_json:
        out.data({"redriven": [{"id": old.id, "as": new.id}], "skipped": []})
    else:
        out.line(f"{old.id} runs again as {new.id}.")
        out.next("show", new.id)
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
        raise InvalidValue(f"{count} {status} executions match, and there is no terminal to ask on: add --yes.")
    typer.confirm(f"Run {count} {status} executions again (skipping those that already were)?", abort=True, err=True)


async def _redrive_all(app: App, out: Output, ids: list[str]) -> Exit:
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
    if out.as_json:
        out.data({"redriven": redriven, "skipped": skipped})
    else:
        out.line(
            f"{len(redriven)} run again, {len(skipped)} skipped (run again before, or not the newest under their key)."
        )
        out.next("list", "--status", "pending")
    return Exit.OK
