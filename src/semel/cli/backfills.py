"""`semel schedules backfill` and `semel backfills`: run slots of the past, watch, pause, resume and cancel that."""

from __future__ import annotations

import asyncio
import sys
from itertools import groupby
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from semel import App, InvalidValue
from semel.cli.apply import has_terminal
from semel.cli.command import Exit, database_command
from semel.cli.output import Output, console, note, when
from semel.cli.schedule_options import read_time
from semel.cli.schedules import Id, Note
from semel.contract.backfill import BackfillInfo, BackfillPlan, BackfillStatus, PlannedSlot, SlotFate
from semel.records import to_json

POLL = 0.3
SHOWN = 40
"""So many ranges of a plan are shown."""
BAR = 24
STYLES = {
    SlotFate.DONE: "green",
    SlotFate.FAILED: "red",
    SlotFate.RUNNING: "blue",
    SlotFate.MISSING: "yellow",
    SlotFate.SKIPPED: "yellow",
    SlotFate.UNKNOWN: "magenta",
}
STATUS_STYLES = {
    BackfillStatus.RUNNING: "blue",
    BackfillStatus.PAUSED: "yellow",
    BackfillStatus.COMPLETED: "green",
    BackfillStatus.CANCELLED: "red",
}
BackfillId = Annotated[str, typer.Argument(metavar="ID", help="The id of the backfill.", show_default=False)]


@database_command()
async def backfill(
    app: App,
    out: Output,
    id: Id,
    start: Annotated[str, typer.Option("--from", help="The first time, such as 2026-03-01T00:00:00Z.")],
    end: Annotated[str, typer.Option("--to", help="Slots at this time and later are left out.")],
    rerun: Annotated[
        str, typer.Option(help="Which slots: missing (never ran), failed (also those that failed) or all.")
    ] = "missing",
    force: Annotated[
        bool, typer.Option("--force", help="Also slots of which it is not known any more what became of them.")
    ] = False,
    max_active: Annotated[int, typer.Option(help="How many runs at once.")] = 1,
    request_key: Annotated[
        str | None, typer.Option(help="Sent again under the same key, it is the same backfill.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and run nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended; exits with 1 if a run fails.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> Exit:
    """Run slots of the past: semel schedules backfill daily --from 2026-03-01T00:00:00Z --to 2026-03-08T00:00:00Z

    Shows what became of each slot and which would run, asks, and leaves it to the workers, also while the schedule is
    paused.
    """
    begin, until = read_time(start, "--from"), read_time(end, "--to")
    options: Any = {"rerun": rerun, "force": force, "max_active": max_active, "request_key": request_key}
    plan = await app.schedules.backfill(id, begin, until, dry_run=True, **options)
    if not out.as_json:
        _show_plan(out, plan)
    if dry_run:
        if out.as_json:
            out.data(_plan_json(plan))
        return Exit.OK
    if not plan.to_run and request_key is None:
        if out.as_json:
            out.data(_plan_json(plan))
        else:
            out.line("Nothing to do.")
        return Exit.OK
    if not yes:
        _ask(plan)
    made = await app.schedules.backfill(id, begin, until, **options)
    if wait:
        made = await _watch(app, made, quiet=out.as_json)
    if out.as_json:
        out.data(made)
    else:
        out.line(_sentence(made))
        out.next("backfills show", made.id)
    return Exit.FAILED if wait and (made.failed or made.status is BackfillStatus.CANCELLED) else Exit.OK


def _plan_json(plan: BackfillPlan) -> dict[str, Any]:
    return {**to_json(plan), "counts": plan.counts, "to_run": plan.to_run}


def _show_plan(out: Output, plan: BackfillPlan) -> None:
    ranges = [list(some) for _, some in groupby(plan.slots, key=lambda one: (one.fate, one.runs, one.reason))]
    rows = [_row(some) for some in ranges[:SHOWN]]
    out.table(("From", "To", "Slots", "What became of them", "Plan"), rows)
    if len(ranges) > SHOWN:
        out.line(f"  and {len(ranges) - SHOWN} more ranges; --json lists every slot", "dim")
    counts = ", ".join(f"{count} {fate}" for fate, count in plan.counts.items() if count)
    out.line(f"{len(plan.slots)} slots: {counts}. {plan.to_run} would run.", "bold")
    if plan.counts[SlotFate.UNKNOWN] and not plan.force:
        out.line("What is on record of unknown slots is past its retention: --force runs them too.", "dim")


def _row(some: list[PlannedSlot]) -> tuple[str | Text, ...]:
    first = some[0]
    fate = f"{first.fate}: {first.reason}" if first.reason is not None else first.fate.value
    what = ("runs again" if first.generation else "runs") if first.runs else "stays as it is"
    return when(first.slot), when(some[-1].slot), str(len(some)), Text(fate, STYLES[first.fate]), what


def _ask(plan: BackfillPlan) -> None:
    if not has_terminal():
        raise InvalidValue(f"{plan.to_run} slots would run, and there is no terminal to ask on: add --yes.")
    typer.confirm(f"Run {plan.to_run} slots of {plan.schedule}?", abort=True, err=True)


async def _watch(app: App, found: BackfillInfo, *, quiet: bool) -> BackfillInfo:
    """Wait for the end of a backfill, with a bar on stderr. Interrupted, the backfill goes on."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(sys.stderr), disable=quiet) as progress:
        bar = progress.add_task(found.id, total=found.slots)
        try:
            while found.status.open or found.running:
                progress.update(bar, completed=found.done, description=_progress_words(found))
                await asyncio.sleep(POLL)
                found = await app.schedules.backfills.get(found.id)
            progress.update(bar, completed=found.done, description=_progress_words(found))
        except asyncio.CancelledError:
            note(f"The backfill goes on without you. Stop it with: semel backfills cancel {found.id}")
            raise
    return found


def _progress_words(found: BackfillInfo) -> str:
    failed = f", {found.failed} failed" if found.failed else ""
    return f"{found.status}: {found.completed} completed{failed}, {len(found.running)} running"


def _sentence(found: BackfillInfo) -> str:
    left = sum(found.left.values())
    return (
        f"Backfill {found.id} of {found.schedule} is {found.status}: {found.done} of {found.slots} slots, "
        f"{found.completed} completed, {found.failed} failed, {len(found.running)} running, {left} left as they are."
    )


@database_command()
async def list_backfills(
    app: App,
    out: Output,
    schedule: Annotated[str | None, typer.Option(help="Of this schedule only.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 50,
) -> None:
    """List backfills, newest first."""
    found = await app.schedules.backfills.list(schedule, limit=limit)
    if out.as_json:
        out.data(found)
        return
    if not found:
        out.line("There are no backfills.")
        return
    rows = [
        (
            one.id,
            one.schedule,
            f"{when(one.start)} to {when(one.end)}",
            one.rerun.value,
            Text(one.status.value, STATUS_STYLES[one.status]),
            _bar(one),
            str(one.failed or ""),
        )
        for one in found
    ]
    out.table(("Backfill", "Schedule", "Range", "Rerun", "Status", "Slots", "Failed"), rows)
    out.next("backfills show", found[0].id)


def _bar(one: BackfillInfo) -> str:
    filled = BAR * one.done // one.slots
    return f"{'█' * filled}{'░' * (BAR - filled)} {one.done}/{one.slots}"


@database_command()
async def show_backfill(app: App, out: Output, id: BackfillId) -> None:
    """Show how far a backfill has come."""
    found = await app.schedules.backfills.get(id)
    if out.as_json:
        out.data(found)
        return
    _describe(out, found)
    if found.status is BackfillStatus.RUNNING:
        out.next("backfills pause", id)
    elif found.status is BackfillStatus.PAUSED:
        out.next("backfills resume", id)
    else:
        out.next("schedules show", found.schedule)


def _describe(out: Output, found: BackfillInfo) -> None:
    out.line(_sentence(found), "bold")
    out.line(f"  {_bar(found)}", STATUS_STYLES[found.status])
    facts = [
        f"slots from {when(found.start)} to before {when(found.end)}, with version {found.version} of the schedule",
        f"rerun {found.rerun}{', forced' if found.force else ''}, {found.max_active} at once",
        f"created {when(found.created_at)}, changed {when(found.changed_at)}",
    ]
    if found.note is not None:
        facts.append(f"note: {found.note}")
    facts += [f"{count} left as they are: {fate}" for fate, count in found.left.items()]
    facts += [f"running: {key}" for key in found.running]
    for fact in facts:
        out.line(f"  {fact}")


@database_command()
async def pause(app: App, out: Output, id: BackfillId, note: Note = None) -> Exit:
    """Start no more runs until it is resumed. What runs goes on."""
    return _report(out, await app.schedules.backfills.pause(id, note), BackfillStatus.PAUSED)


@database_command()
async def resume(app: App, out: Output, id: BackfillId, note: Note = None) -> Exit:
    """Go on where it was paused."""
    return _report(out, await app.schedules.backfills.resume(id, note), BackfillStatus.RUNNING)


@database_command()
async def cancel(app: App, out: Output, id: BackfillId, note: Note = None) -> Exit:
    """Start no more runs, for good. What runs goes on."""
    return _report(out, await app.schedules.backfills.cancel(id, note), BackfillStatus.CANCELLED)


def _report(out: Output, found: BackfillInfo, wanted: BackfillStatus) -> Exit:
    """What a backfill has become. One that has ended stays so, and the command says it."""
    if out.as_json:
        out.data(found)
    else:
        out.line(_sentence(found))
        out.next("backfills show", found.id)
    return Exit.OK if found.status is wanted else Exit.CONFLICT
