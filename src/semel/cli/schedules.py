"""`semel schedules`: look at schedules, create and change them, pause, resume and trigger them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from semel import App, Handle, InvalidValue, NotFound, Status
from semel.cli.command import CommandFailed, Debug, Exit, Json, Target, database_command, guarded, load_app
from semel.cli.enqueue import read_json
from semel.cli.output import Output, ago, ahead, console, when
from semel.cli.schedule_options import read_schedule_options, takes_schedule_options
from semel.cli.schedule_timeline import (
    Mark,
    describe_when,
    draw_line,
    explain_signs,
    mark_coming,
    mark_run,
    mark_skipped,
)
from semel.contract.occurrences import Occurrence
from semel.contract.runs import ScheduleInfo, ScheduleRun
from semel.records import to_json
from semel.sweepers import describe_state, is_sweeper

WAITING_SHOWN = 5
PAST = 12
COMING = 6

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the schedule.", show_default=False)]
Note = Annotated[str | None, typer.Option(help="Why; shown with the schedule.", show_default=False)]


@database_command()
async def list_schedules(app: App, out: Output) -> None:
    """List all schedules, when they fire next, and which are paused."""
    found = await app.schedules.list()
    if out.as_json:
        out.data(found)
        return
    if not found:
        out.line("There are no schedules. Declare one with @app.on_schedule, and publish it:")
        out.next("apply", "module:app")
        return
    rows = [(one.id, _when(one), one.name, _next(one), _state(one), one.owner) for one in found]
    out.table(("Schedule", "When", "Runs", "Next", "State", "Owner"), rows)
    out.next("schedules show", found[0].id)


def _when(one: ScheduleInfo) -> str:
    return one.when if one.timezone == "UTC" else f"{one.when} ({one.timezone})"


def _next(one: ScheduleInfo) -> str:
    if one.next_slot is None:
        return "" if one.paused_at is not None else "after the run" if "after each run" in one.when else "never"
    overdue = one.next_slot <= datetime.now(UTC)
    return f"{when(one.next_slot)} ({'due' if overdue else ahead(one.next_slot)})"


def _state(one: ScheduleInfo) -> Text:
    if one.paused_at is not None:
        return Text(f"paused {ago(one.paused_at)}", "yellow")
    if one.failures:
        return Text(f"{one.failures} failed in a row", "red")
    return Text("on", "green")


@database_command()
async def show(
    app: App,
    out: Output,
    id: Id,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many runs and skipped ranges to show.")] = PAST,
) -> None:
    """Show a schedule: past and coming slots on a line, what runs and waits, and why slots did not run."""
    info = await app.schedules.get(id)
    runs = [(run, await _status(app, run)) for run in await app.schedules.runs(id, limit=limit)]
    skipped = await app.schedules.skipped(id, limit=limit)
    coming = await _coming(app, info, COMING)
    sweeper = await app.sweepers.get(id) if is_sweeper(info) else None
    if out.as_json:
        with_status = [{**to_json(run), "status": status} for run, status in runs]
        swept = {} if sweeper is None else {"sweeper": sweeper}
        out.data({"schedule": info, "runs": with_status, "skipped": skipped, "next": coming, **swept})
        return
    past = [mark_run(run, status) for run, status in runs] + [mark_skipped(one) for one in skipped]
    past = sorted(past, key=lambda mark: mark.at)[-limit:]
    now = datetime.now(UTC)
    undecided = [mark for one in coming for mark in mark_coming(one, info, now)]
    past += [mark for mark in undecided if mark.at.tzinfo is not None and mark.at <= now]
    future = [mark for mark in undecided if mark not in past]
    _describe(out, info)
    if sweeper is not None:
        out.line(f"  sweeper: {describe_state(sweeper).detail}")
    out.line()
    console().print(draw_line(past, future), soft_wrap=True)
    out.line(explain_signs([*past, *future]), "dim")
    out.line()
    _print_marks(out, [*past, *future])
    _suggest(out, info)


async def _status(app: App, run: ScheduleRun) -> Status | None:
    try:
        return await (await app.get(run.execution)).status()
    except NotFound:
        return None


async def _coming(app: App, info: ScheduleInfo, count: int) -> list[Occurrence]:
    """What comes; of an interval after each run that is not known beforehand."""
    return [] if "after each run" in info.when else list(await app.schedules.next(info.id, count))


def _describe(out: Output, info: ScheduleInfo) -> None:
    out.line(f"{info.id} runs {info.kind} {info.name} on queue {info.queue}: {_when(info)}", "bold")
    facts = [
        f"version {info.version}, owned by {info.owner}, changed {when(info.changed_at)}",
        f"misfire {info.misfire}, overlap {info.overlap}",
        f"covered until {when(info.cursor)}" + ("" if info.next_slot is None else f"; next {_next(info)}"),
    ]
    if info.paused_at is not None:
        facts.append(f"paused since {when(info.paused_at)}")
    if info.note is not None:
        facts.append(f"note: {info.note}")
    if info.waiting:
        more = f" and {len(info.waiting) - WAITING_SHOWN} more" if len(info.waiting) > WAITING_SHOWN else ""
        facts.append(f"waiting: {', '.join(map(when, info.waiting[:WAITING_SHOWN]))}{more}")
    if info.failures:
        facts.append(f"{info.failures} runs failed, one after the other")
    for fact in facts:
        out.line(f"  {fact}")


def _print_marks(out: Output, marks: list[Mark]) -> None:
    rows = [(describe_when(mark), Text(mark.word, mark.style), mark.detail) for mark in marks]
    if rows:
        out.table(("Slot", "What", "Detail"), rows)


def _suggest(out: Output, info: ScheduleInfo) -> None:
    if info.paused_at is not None:
        out.next("schedules resume", info.id)
    else:
        out.next("schedules next", info.id)


@database_command()
async def next_slots(
    app: App,
    out: Output,
    id: Id,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="How many.")] = 10,
) -> None:
    """Show what fires next, and wall-clock times that do not, with the reason."""
    info, found = await app.schedules.get(id), await app.schedules.next(id, count)
    if out.as_json:
        out.data({"schedule": info.id, "timezone": info.timezone, "paused_at": info.paused_at, "next": found})
        return
    if info.paused_at is not None:
        note = "" if info.note is None else f" ({info.note})"
        out.line(
            f"{id} is paused since {when(info.paused_at)}{note}: until it is resumed, none of these fires.", "yellow"
        )
    paused = info.paused_at is not None
    several = len({one.timezone for one in found}) > 1
    rows = [
        (
            f"{one.wall:%a %Y-%m-%d %H:%M:%S}" + (f" {one.timezone}" if several else ""),
            ", ".join(map(when, one.slots)),
            "paused" if paused and one.slots else one.outcome.value,
        )
        for one in found
    ]
    if rows:
        out.table((f"On the clock in {info.timezone}", "Slot", "What becomes of it"), rows)
    else:
        out.line(f"{id} has no more slots.")
    if info.paused_at is not None:
        out.next("schedules resume", id)


@takes_schedule_options
def create(
    target: Target,
    id: Id,
    name: Annotated[str, typer.Argument(help="The task or workflow to run.", show_default=False)],
    given: Annotated[
        str | None, typer.Argument(metavar="JSON", help="Arguments: an array by position, an object by name.")
    ] = None,
    *,
    as_json: Json = False,
    debug: Debug = False,
    **options: Any,
) -> None:
    """Create a schedule: semel schedules create shop:app digest:paris digest '["Paris"]' --cron '0 9 * * *'

    Exits with 4 if there is one with this id: `semel schedules edit` changes it.
    """

    def work() -> Exit:
        app = load_app(target)
        arguments = [] if given is None else read_json(given, "the input", list | dict)
        chosen = read_schedule_options(options)
        return asyncio.run(_create(app, id, name, arguments, chosen, Output(as_json, app.settings)))

    guarded(work, debug, as_json)


async def _create(app: App, id: str, name: str, arguments: Any, options: dict[str, Any], out: Output) -> Exit:
    function = app.tasks[name]
    async with app:
        if await _exists(app, id):
            message = f"there is a schedule {id!r} already. Change it with: semel schedules edit {id}"
            raise CommandFailed(message, Exit.CONFLICT)
        try:
            if isinstance(arguments, dict):
                info = await app.schedules.put(id, app.schedules.call(function, **arguments), **options)
            else:
                info = await app.schedules.put(id, function, *arguments, **options)
        except TypeError as error:
            raise InvalidValue(f"the arguments do not fit {name}: {error}") from error
        _report(out, info, "is created")
    return Exit.OK


async def _exists(app: App, id: str) -> bool:
    try:
        await app.schedules.get(id)
    except NotFound:
        return False
    return True


def _report(out: Output, info: ScheduleInfo, what: str) -> None:
    if out.as_json:
        out.data(info)
        return
    following = ""
    if info.next_slot is not None and info.next_slot <= datetime.now(UTC):
        following = f" It is due since {when(info.next_slot)}: a worker runs it at once."
    elif info.next_slot is not None:
        following = f" It fires next at {when(info.next_slot)}."
    out.line(f"{info.id} {what} (version {info.version}): {_when(info)}.{following}")
    out.next("schedules next", info.id)


@database_command()
@takes_schedule_options
async def edit(
    app: App,
    out: Output,
    id: Id,
    *,
    reset: Annotated[
        list[str] | None,
        typer.Option(help="An option that gets its default back. Can be repeated.", show_default=False),
    ] = None,
    **options: Any,
) -> None:
    """Change the options that are given, and nothing else: semel schedules edit digest:paris --cron '0 8 * * *'

    Slots that have passed stay as they were decided. What code declares is changed back by the next semel apply.
    """
    chosen, names = read_schedule_options(options), [name.replace("-", "_") for name in reset or ()]
    if not chosen and not names:
        raise InvalidValue("give at least one option to change, such as --cron '0 8 * * *'. See: --help")
    before = await app.schedules.get(id)
    try:
        info = await app.schedules.edit(id, reset=names, **chosen)
    except TypeError as error:
        raise InvalidValue(str(error)) from error
    _report(out, info, "is as it was" if info.version == before.version else "is changed")
    if info.owner == "code" and info.version != before.version and not out.as_json:
        out.line("Code declares this schedule: change it there too, or the next semel apply changes it back.", "yellow")


@database_command()
async def pause(app: App, out: Output, id: Id, note: Note = None) -> None:
    """Let no slot fire until it is resumed. What runs goes on."""
    await app.schedules.pause(id, note)
    info = await app.schedules.get(id)
    if out.as_json:
        out.data(info)
        return
    out.line(f"{id} is paused since {when(info.paused_at)}.")
    out.next("schedules resume", id)


@database_command()
async def resume(app: App, out: Output, id: Id, note: Note = None) -> None:
    """Let slots fire again. What becomes of those inside the pause is up to its misfire policy."""
    before = await app.schedules.get(id)
    await app.schedules.resume(id, note)
    info = await app.schedules.get(id)
    if out.as_json:
        out.data(info)
        return
    if before.paused_at is None:
        out.line(f"{id} is not paused.")
    else:
        became = {"skip": "are skipped", "catchup": "are caught up", "compress": "become one run"}[info.misfire]
        out.line(f"{id} fires again. Slots inside the pause {became} (misfire {info.misfire}).")
    out.next("schedules next", id)


@database_command()
async def trigger(
    app: App,
    out: Output,
    id: Id,
    request_key: Annotated[
        str | None, typer.Option(help="Sent again under the same key, it is the same run.", show_default=False)
    ] = None,
) -> None:
    """Run it now, also while it is paused, beside its slots."""
    handle: Handle[Any] = await app.schedules.trigger(id, request_key)
    if out.as_json:
        out.data({"id": handle.id, "key": handle.key, "name": handle.name, "duplicate": handle.duplicate})
        return
    again = ": a duplicate, nothing new will run" if handle.duplicate else " is enqueued"
    out.line(f"{handle.id}: {handle.name}{again}.")
    out.next("show", handle.id)


@database_command()
async def delete(app: App, out: Output, id: Id) -> None:
    """Delete a schedule. What it has started goes on."""
    await app.schedules.delete(id)
    if out.as_json:
        out.data({"deleted": id})
    else:
        out.line(f"{id} is deleted. What it has started goes on.")
