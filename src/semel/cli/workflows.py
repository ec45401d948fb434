"""`semel workflows list`, `signal`, `cancel`, `terminate` and `reset`, by key or by execution id."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.text import Text

from semel import App, EngineError, ErrorInfo, Execution, Handle, InvalidValue, NotFound, Status
from semel.cli.command import Exit, database_command
from semel.cli.executions import StatusOption, is_parked
from semel.cli.output import Output, ago, ahead, brief, status_text

Which = Annotated[
    str,
    typer.Argument(
        metavar="KEY", help="The id of the workflow, or the beginning of its execution id.", show_default=False
    ),
]
WhichOne = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="The id of the workflow, Class/id of the entity, or the beginning of an execution id.",
        show_default=False,
    ),
]


async def flow_of(app: App, which: str) -> tuple[Handle[Any], Execution]:
    """The newest workflow or entity under a key, or the execution of that id. NotFound says what there is instead."""
    handle = await app.find(which, kind="workflow") or await app.find(which, kind="entity")
    if handle is None:
        try:
            handle = await app.get(which)
        except NotFound:
            raise NotFound(
                f"no workflow or entity is called {which!r}, and no execution id begins with it (or several "
                f"do), in namespace {app.settings.namespace!r}. See: semel workflows list"
            ) from None
    execution = await handle.describe()
    if execution.kind == "task":
        raise NotFound(f"execution {execution.id} is a task, not a workflow. See: semel show {execution.id}")
    return handle, execution


async def workflow_of(app: App, which: str) -> tuple[Handle[Any], Execution]:
    """The newest workflow under a key, or the execution of that id. NotFound: it is an entity."""
    handle, execution = await flow_of(app, which)
    if execution.kind != "workflow":
        raise NotFound(
            f"{execution.key} ({execution.id}) is an {execution.kind}, not a workflow. "
            f"See: semel workflows show {execution.key}"
        )
    return handle, execution


PAGE = 1000
WIDEST = 160
_PREFIX = re.compile(r"(\w+ \[SEMEL-\w+\]: )?(?:(?:workflow|entity) .*? cannot go on: |workflow '[^']*': )?", re.DOTALL)
"""The beginning of an error that the other columns show as well."""


class Kind(StrEnum):
    """The kinds of executions that can be parked."""

    WORKFLOW = "workflow"
    ENTITY = "entity"


@database_command()
async def list_workflows(
    app: App,
    out: Output,
    status: StatusOption = None,
    kind: Annotated[
        Kind | None,
        typer.Option(
            "--kind", help="Workflows or entities. Default: workflow; with --parked both.", show_default=False
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Only executions of this function or class.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Only executions on this queue.")] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only workflows with this search attribute; may be repeated."),
    ] = None,
    parked: Annotated[bool, typer.Option("--parked", help="Only those that cannot continue, and why.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Show at most this many.")] = 50,
    before: Annotated[str | None, typer.Option(help="Only executions older than this id, for the next page.")] = None,
) -> None:
    """List workflows, or entities, newest first."""
    if parked and status not in (None, Status.WAITING):
        raise InvalidValue(f"--parked --status {status}: a parked workflow is waiting.")
    which: dict[str, Any] = {"name": name, "queue": queue, "attributes": _attributes(attribute or [])}
    if parked:
        kinds = list(Kind) if kind is None else [kind]
        found = [e for one in kinds for e in await _parked(app, one, which, limit, before)]
        found += [e for e in await _unserved(app, kinds, which, limit) if e.id not in {one.id for one in found}]
        found = sorted(found, key=lambda e: e.created_at, reverse=True)[:limit]
    else:
        found = list(await app.list(kind=kind or Kind.WORKFLOW, status=status, limit=limit, before=before, **which))
    if out.as_json:
        out.data(found)
        return
    if not found:
        out.line(_none(kind, parked))
        return
    out.table(("Id", "Kind", "Name", "Key", "Status", "Due", "Started", "Why"), [_row(e) for e in found])
    out.next("workflows", "show", found[0].key or found[0].id)
    if len(found) == limit:
        more = [*(["--parked"] if parked else []), *([] if kind is None else ["--kind", kind])]
        out.next("workflows", "list", *more, "--before", found[-1].id)


def _none(kind: Kind | None, parked: bool) -> str:
    if parked and kind is None:
        return "No workflow or entity is parked."
    return f"No {kind or Kind.WORKFLOW} {'is parked' if parked else 'matches'}."


def _attributes(given: list[str]) -> dict[str, str]:
    found = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise InvalidValue(f"--attribute {one!r}: write NAME=VALUE.")
        found[name] = value
    return found


async def _parked(app: App, kind: Kind, which: dict[str, Any], limit: int, before: str | None) -> list[Execution]:
    found: list[Execution] = []
    while len(found) < limit:
        page = await app.list(kind=kind, status=Status.WAITING, limit=PAGE, before=before, **which)
        found += [execution for execution in page if is_parked(execution)]
        if len(page) < PAGE:
            break
        before = page[-1].id
    return found[:limit]


async def _unserved(app: App, kinds: Sequence[Kind], which: dict[str, Any], limit: int) -> list[Execution]:
    """Executions whose function no worker has, with that as their error."""
    found: list[Execution] = []
    try:
        groups = await app.unserved()
    except EngineError:  # a Temporal server that keeps no list of workers
        return found
    for one in groups:
        if one.kind not in kinds or which["name"] not in (None, one.name) or which["queue"] not in (None, one.queue):
            continue
        asked = {**which, "name": one.name, "queue": one.queue}
        why = ErrorInfo("semel.NoWorker", f"no running worker has a {one.kind} {one.name!r} on queue {one.queue!r}")
        there = await app.list(kind=one.kind, limit=limit, **asked)
        found += [replace(e, error=why) for e in there if e.status in (Status.PENDING, Status.WAITING)]
    return found


def reason(error: ErrorInfo) -> str:
    """The type of an error and its cause, without what the other columns show."""
    return f"{error.type.rpartition('.')[2]}: {_PREFIX.sub('', error.message, count=1)}"


def _row(e: Execution) -> tuple[str | Text, ...]:
    why = "" if e.error is None else brief(reason(e.error), WIDEST)
    status = Text("parked", "bold red") if is_parked(e) else status_text(e.status)
    due = "" if e.run_at is None else ahead(e.run_at)
    return (e.id, e.kind, e.name, e.key or "", status, due, ago(e.created_at), why)


@database_command()
async def signal(
    app: App,
    out: Output,
    which: Which,
    name: Annotated[str, typer.Argument(help="The name that ctx.wait_signal waits for.")],
    payload: Annotated[str | None, typer.Argument(metavar="JSON", help="The payload.")] = None,
    dedup_key: Annotated[str | None, typer.Option(help="Signals with the same key are delivered once.")] = None,
) -> None:
    """Send a signal: semel workflows signal order-1 approved true"""
    handle, _ = await workflow_of(app, which)
    await handle.signal(name, _json(payload), dedup_key=dedup_key)
    if out.as_json:
        out.data({"id": handle.id, "key": handle.key, "signal": name})
    else:
        out.line(f"{name!r} was sent to {handle.key}.")
        out.next("workflows", "show", handle.key or handle.id)


def _json(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidValue(
            f"the payload {text!r} is not JSON: {error}. Quote it for the shell, such as '\"yes\"'."
        ) from None


@database_command()
async def cancel(app: App, out: Output, which: WhichOne) -> Exit:
    """Ask a workflow or an entity to stop; its code can clean up first."""
    handle, before = await flow_of(app, which)
    return _ended(out, before, before.status if before.status.terminal else await handle.cancel())


@database_command()
async def terminate(
    app: App,
    out: Output,
    which: WhichOne,
    why: Annotated[str, typer.Option(help="The reason, kept with the execution.")] = "terminated",
) -> Exit:
    """End a workflow or an entity at once, without notifying its code."""
    handle, before = await flow_of(app, which)
    return _ended(out, before, before.status if before.status.terminal else await handle.terminate(why))


def _ended(out: Output, before: Execution, status: Status) -> Exit:
    id, key = before.id, before.key
    had_ended = before.status.terminal or (status.terminal and status is not Status.CANCELLED)
    if out.as_json:
        cancelled = not had_ended or status is Status.CANCELLED
        out.data({"id": id, "key": key, "status": status, "cancelled": cancelled})
    elif had_ended:
        out.line(f"{key} had already ended: {status}.")
    elif status is Status.CANCELLED:
        out.line(f"{key} is cancelled.")
    else:
        out.line(f"{key} has been asked to stop.")
        if is_parked(before):
            out.line("It is parked, and is cancelled once compatible code is deployed. To end it now:")
            out.next("workflows", "terminate", key or id)
        else:
            out.next("workflows", "show", key or id)
    return Exit.CONFLICT if had_ended else Exit.OK


@database_command()
async def reset(
    app: App,
    out: Output,
    which: Which,
    to: Annotated[
        str, typer.Option(help="The command to go back to, by number or name; or row:N to keep the first N rows.")
    ],
) -> None:
    """Continue from before a step, as a new execution: semel workflows reset order-1 --to ship

    What was recorded before that step does not run again, and effect keys stay the same. A workflow that is still
    running is ended, and continues as the new execution.
    """
    handle, _ = await workflow_of(app, which)
    new = await handle.reset(to)
    if out.as_json:
        out.data({"id": handle.id, "key": handle.key, "as": new.id})
    else:
        out.line(f"{handle.key} ({handle.id}) continues from before {to} as {new.id}.")
        out.next("workflows", "show", new.key or new.id)
