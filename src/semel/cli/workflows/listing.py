"""`semel workflows list`: workflows and entities, newest first, and those that cannot go on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.text import Text

from semel import App, EngineError, ErrorInfo, Execution, InvalidValue, Status
from semel.cli.listing import StatusOption
from semel.cli.paper import Paper, ago, ahead, brief, status_text
from semel.cli.verb import database_verb

PAGE = 1000
WIDEST = 160
_PREFIX = re.compile(r"(\w+ \[SEMEL-\w+\]: )?(?:(?:workflow|entity) .*? cannot go on: |workflow '[^']*': )?", re.DOTALL)
"""What an error begins with that the other columns tell as well."""


class Kind(StrEnum):
    """What can be parked."""

    WORKFLOW = "workflow"
    ENTITY = "entity"


@database_verb()
async def list_workflows(
    app: App,
    paper: Paper,
    status: StatusOption = None,
    kind: Annotated[
        Kind | None, typer.Option("--kind", help="Default: workflow; with --parked both.", show_default=False)
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Only those of this function or class.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Only those on this queue.")] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only those with this search attribute; may be given again."),
    ] = None,
    parked: Annotated[bool, typer.Option("--parked", help="Only those that cannot go on, and why.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 50,
    before: Annotated[str | None, typer.Option(help="Older than this execution: the next page.")] = None,
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
    if paper.as_json:
        paper.data(found)
        return
    if not found:
        paper.line(_none(kind, parked))
        return
    paper.table(("Id", "Kind", "Name", "Key", "Status", "Due", "Begun", "Why"), [_row(e) for e in found])
    paper.next("workflows", "show", found[0].key or found[0].id)
    if len(found) == limit:
        more = [*(["--parked"] if parked else []), *([] if kind is None else ["--kind", kind])]
        paper.next("workflows", "list", *more, "--before", found[-1].id)


def _none(kind: Kind | None, parked: bool) -> str:
    if parked and kind is None:
        return "No workflow is parked, and no entity."
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
    """Those that wait for a function that no worker has, with that for their error."""
    found: list[Execution] = []
    try:
        groups = await app.unserved()
    except EngineError:  # a Temporal server that keeps no list of workers
        return found
    for one in groups:
        if one.kind not in kinds or which["name"] not in (None, one.name) or which["queue"] not in (None, one.queue):
            continue
        asked = {**which, "name": one.name, "queue": one.queue}
        why = ErrorInfo("semel.NoWorker", f"no worker that runs has a {one.kind} {one.name!r} on queue {one.queue!r}")
        there = await app.list(kind=one.kind, limit=limit, **asked)
        found += [replace(e, error=why) for e in there if e.status in (Status.PENDING, Status.WAITING)]
    return found


def is_parked(execution: Execution) -> bool:
    """Does it wait for other code?"""
    return execution.status.live and execution.error is not None


def reason(error: ErrorInfo) -> str:
    """The part of an error that tells why, after its name."""
    return f"{error.type.rpartition('.')[2]}: {_PREFIX.sub('', error.message, count=1)}"


def _row(e: Execution) -> tuple[str | Text, ...]:
    why = "" if e.error is None else brief(reason(e.error), WIDEST)
    status = Text("parked", "bold red") if is_parked(e) else status_text(e.status)
    due = "" if e.run_at is None else ahead(e.run_at)
    return (e.id, e.kind, e.name, e.key or "", status, due, ago(e.created_at), why)
