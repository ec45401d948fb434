"""`semel publish` and `semel events`: publish events, look at what became of them, run them again."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from semel import App, InvalidValue, NotFound, Published, Status
from semel.cli.command import Exit, database_command
from semel.cli.output import Output, ago, brief, status_text, when
from semel.cli.schedule_options import read_time
from semel.contract.events import (
    EventInfo,
    EventMatch,
    EventOutcome,
    EventRun,
    EventState,
    MatchKind,
    OutcomeState,
    SubscriptionInfo,
)
from semel.events import EventPage
from semel.records import to_json

if TYPE_CHECKING:
    from semel import EventEnvelope

STYLES = {
    EventState.ROUTED: "green",
    EventState.UNMATCHED: "dim",
    EventState.WAITING: "yellow",
    EventState.PARKED: "bold red",
}
OUTCOME_STYLES = {
    OutcomeState.GATHERED: "yellow",
    OutcomeState.QUEUED: "yellow",
    OutcomeState.PAUSED: "yellow",
    OutcomeState.STARTED: "green",
    OutcomeState.DROPPED: "bold red",
    OutcomeState.CANCELS: "green",
}
DATA_SHOWN = 2000

Activity = Annotated[str, typer.Argument(help="The activity.", show_default=False)]
Note = Annotated[str | None, typer.Option(help="Why; shown with the activity.", show_default=False)]
Id = Annotated[str, typer.Argument(metavar="EVENT_ID", help="The id of the event.", show_default=False)]


@database_command()
async def publish(
    app: App,
    out: Output,
    type: Annotated[str | None, typer.Argument(help="What happened, such as invoice.paid.", show_default=False)] = None,
    data: Annotated[str | None, typer.Argument(metavar="JSON", help="The particulars.", show_default=False)] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="The same for every delivery of the event.", show_default=False)
    ] = None,
    source: Annotated[str, typer.Option(help="Where it happened.")] = "/semel/cli",
    subject: Annotated[str | None, typer.Option(help="What it happened to.", show_default=False)] = None,
    time: Annotated[str | None, typer.Option(help="When, such as 2026-03-01T09:00:00Z.", show_default=False)] = None,
    deliver_at: Annotated[str | None, typer.Option(help="Deliver it at this time.", show_default=False)] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="A CloudEvent in JSON, or a list of them; - is stdin.", show_default=False),
    ] = None,
) -> Exit:
    """Publish an event: semel publish invoice.paid '{"cents": 900}' --id evt_1

    Or CloudEvents from a file. Exits with 4 if an id stands for another event.
    """
    at = None if deliver_at is None else read_time(deliver_at, "--deliver-at")
    if file is not None:
        if type is not None or id is not None:
            raise InvalidValue("give an event by its type and --id, or --file, not both.")
        events = _read_file(file)
    else:
        if type is None or id is None:
            raise InvalidValue("give a type and --id: semel publish invoice.paid '{\"cents\": 900}' --id evt_1")
        events = [_make_event(type, data, id, source, subject, time)]
    published = await app.publish_many(events, deliver_at=at)
    if out.as_json:
        out.data([_as_json(one) for one in published])
        return Exit.OK
    for one in published:
        _tell(out, one)
    if published:
        out.next("events show", published[-1].event_id)
    return Exit.OK


def _make_event(
    type: str, data: str | None, id: str, source: str, subject: str | None, time: str | None
) -> EventEnvelope:
    cloud: dict[str, Any] = {"event_id": id, "source": source, "type": type, "subject": subject, "time": time}
    cloud["data"] = None if data is None else _read_json(data, "the data")
    from semel import EventEnvelope  # Pydantic takes a while: only for those who publish
    from semel.triggers.problems import validate

    return validate(EventEnvelope, {name: value for name, value in cloud.items() if value is not None}, f"event {id!r}")


def _read_file(file: str) -> list[EventEnvelope]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(f"{file} cannot be read: {error}") from error
    from semel import EventEnvelope

    found = _read_json(text, file)
    return [EventEnvelope.from_cloudevent(one) for one in (found if isinstance(found, list) else [found])]


def _read_json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"{what} is not JSON: {error}.") from None


def _as_json(one: Published[Any]) -> dict[str, Any]:
    runs = [{"id": run.id, "key": run.key, "name": run.name} for run in one.runs]
    return {
        "event_id": one.event_id,
        "duplicate": one.duplicate,
        "state": one.state,
        "runs": runs,
        "problem": one.problem,
        "run_again": one.run_again,
        "outcomes": [to_json(outcome) for outcome in one.outcomes],
    }


def _tell(out: Output, one: Published[Any]) -> None:
    if one.duplicate:
        out.line(f"{one.event_id}: a duplicate: it was delivered before, and nothing new will run.")
        out.line(f"  Run it again with: {one.run_again}")
    else:
        out.line(f"{one.event_id} is {one.state}.", STYLES[one.state])
    for run in one.runs:
        out.line(f"  {run.name} runs as {run.key} ({run.id})")
    for outcome in one.outcomes:
        if outcome.state is not OutcomeState.STARTED:
            out.line(f"  {outcome}", OUTCOME_STYLES[outcome.state])
    if one.problem is not None:
        out.line(f"  {one.problem}", "yellow")


@database_command()
async def list_events(
    app: App,
    out: Output,
    state: Annotated[EventState | None, typer.Option(help="Only events in this state.", show_default=False)] = None,
    type: Annotated[str | None, typer.Option(help="Only events of this type.", show_default=False)] = None,
    before: Annotated[
        str | None, typer.Option(help="The next page: the last event id of this one.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many to show.")] = 20,
) -> None:
    """List events, newest first, and what became of them."""
    found = await app.events.list(state=state, type=type, before=before, limit=limit)
    if out.as_json:
        out.data(found)
        return
    if not found:
        out.line("There are no such events. Publish one:")
        out.next("publish", "invoice.paid", "--id", "evt_1")
        return
    rows = [
        (one.event_id, one.type, one.source, Text(one.state.value, STYLES[one.state]), _runs(one), ago(one.received_at))
        for one in found
    ]
    out.table(("Event", "Type", "Source", "State", "Runs", "Received"), rows)
    out.next("events show", found[0].event_id)


def _runs(one: EventInfo) -> str:
    more = f", {one.duplicates} duplicates" if one.duplicates else ""
    return ", ".join(one.activities) + more


@database_command()
async def show(app: App, out: Output, event_id: Id) -> None:
    """Show an event: its deliveries, its runs, and for each activity why it matches or not."""
    page = await app.events.get(event_id)
    runs = [(run, await _status(app, run)) for run in page.runs]
    if out.as_json:
        with_status = [{**to_json(run), "status": status} for run, status in runs]
        out.data(
            {
                "event": page.info,
                "envelope": page.event.to_cloudevent(),
                "runs": with_status,
                "outcomes": page.outcomes,
                "matches": page.matches,
            }
        )
        return
    print_page(out, page, runs)
    failed = any(status in (Status.FAILED, Status.CANCELLED, Status.TIMED_OUT) for _, status in runs)
    dropped = any(one.state is OutcomeState.DROPPED for one in page.outcomes)
    if failed or dropped or page.info.state is EventState.PARKED:
        out.next("events replay", page.info.event_id)


def print_page(out: Output, page: EventPage, runs: Sequence[tuple[EventRun, Status | None]]) -> None:
    """Print an event for people: deliveries, runs, what became of it else, and which activities want it today."""
    _describe(out, page)
    if runs:
        rows = [(run.activity, _status_text(status), run.key, run.execution, _why(run)) for run, status in runs]
        out.table(("Activity", "Status", "Key", "Execution", "Why"), rows)
    if page.outcomes:
        became = [
            (one.activity, Text(one.state, OUTCOME_STYLES[one.state]), _tell_outcome(one)) for one in page.outcomes
        ]
        out.table(("Activity", "Became", "Why"), became)
    if page.matches:
        out.table(("Activity", "Today", "Why"), [_match_row(match, page) for match in page.matches])


async def _status(app: App, run: EventRun) -> Status | None:
    try:
        return await (await app.get(run.execution)).status()
    except NotFound:
        return None


def _describe(out: Output, page: EventPage) -> None:
    info, event = page.info, page.event
    out.line(f"{event.event_id}: {info.type} from {info.source} is {info.state}", "bold")
    once = "once" if not info.duplicates else f"{info.duplicates + 1} times"
    last = "" if info.last_duplicate_at is None else f", the last {ago(info.last_duplicate_at)}"
    facts = [f"received {when(info.received_at)}, delivered {once}{last}: it counts once"]
    if info.event_id != event.event_id:
        facts.append(f"in the ids of its runs it is {info.event_id}")
    if event.subject is not None:
        facts.append(f"subject {event.subject}")
    if event.time is not None:
        facts.append(f"happened {when(event.time)}" + (", which was in the future when it came" if info.future else ""))
    if info.deliver_at is not None:
        facts.append(f"to be delivered {when(info.deliver_at)}")
    if info.problem is not None:
        facts.append(info.problem)
    facts.append(f"data {brief(json.dumps(event.data, ensure_ascii=False), DATA_SHOWN)}")
    for fact in facts:
        out.line(f"  {fact}")
    out.line()


def _status_text(status: Status | None) -> Text:
    return Text("unknown", "dim") if status is None else status_text(status)


def _tell_outcome(one: EventOutcome) -> str:
    """Why an event waits, and until when; or the run that it is part of; or why it does not run."""
    if one.run is not None:
        return f"in run {one.run}" + (f": {one.reason}" if one.reason else "")
    if one.reason is not None:
        return one.reason
    if one.state is OutcomeState.CANCELS:
        return "runs of events that happened before it are cancelled"
    waits = {"start": "its throttle", "pause": "the end of the pause"}.get(one.option or "", one.option)
    return f"waits for {waits}" + ("" if one.until is None else f" until {when(one.until)}")


def _why(run: EventRun) -> str:
    again = f", generation {run.generation}" if run.generation else ""
    return f"{run.why}, version {run.version}{again}"


def _match_row(match: EventMatch, page: EventPage) -> tuple[str, Text, str]:
    fits = match.kind is MatchKind.MATCHES
    detail = match.detail
    if fits and match.activity not in page.info.activities and page.info.state is not EventState.WAITING:
        detail = f"it has no run: semel events backfill {match.activity}"
    return match.activity, Text(match.kind.value, "green" if fits else "dim"), detail


@database_command()
async def replay(
    app: App,
    out: Output,
    event_id: Id,
    activity: Annotated[
        list[str] | None, typer.Option(help="Only this activity. Can be repeated.", show_default=False)
    ] = None,
    completed: Annotated[bool, typer.Option("--completed", help="Also run again what completed.")] = False,
) -> None:
    """Route a parked event again, or run again what failed for it. What still runs is left alone."""
    replayed = await app.events.replay(event_id, activities=activity or None, completed=completed)
    if out.as_json:
        out.data(_as_json(replayed))
        return
    if not replayed.runs and replayed.state is EventState.ROUTED:
        waiting = [one for one in replayed.outcomes if one.state in (OutcomeState.GATHERED, OutcomeState.QUEUED)]
        if waiting:
            told = "; ".join(map(str, waiting))
            out.line(f"{replayed.event_id}: nothing to run again: it has not run yet, and will by itself ({told}).")
            return
        out.line(f"{replayed.event_id}: nothing to run again: no run for it has failed.")
        return
    _tell(out, replayed)
    out.next("events show", replayed.event_id)


@database_command()
async def backfill(
    app: App,
    out: Output,
    activity: Annotated[str, typer.Argument(help="The activity to run.", show_default=False)],
    since: Annotated[str | None, typer.Option(help="Only events received since then.", show_default=False)] = None,
    until: Annotated[str | None, typer.Option(help="Only events received before then.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many events.")] = 10_000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Name the events and run nothing.")] = False,
) -> None:
    """Run an activity for kept events that it wants and has no run for, oldest first."""
    found = await app.events.backfill(
        activity,
        since=None if since is None else read_time(since, "--since"),
        until=None if until is None else read_time(until, "--until"),
        limit=limit,
        dry_run=dry_run,
    )
    if out.as_json:
        out.data({"activity": activity, "dry_run": dry_run, "events": found})
        return
    shown = ", ".join(found[:10]) + (f" and {len(found) - 10} more" if len(found) > 10 else "")
    would = "would run" if dry_run else "runs"
    out.line(f"{activity} {would} for {len(found)} events" + (f": {shown}." if found else "."))


@database_command()
async def list_subscriptions(app: App, out: Output) -> None:
    """List the activities that want events, and which of them are paused."""
    found = await app.events.subscriptions()
    if out.as_json:
        out.data(found)
        return
    if not found:
        out.line("No activity wants events. Publish what your app declares:")
        out.next("apply")
        return
    rows = [
        (one.id, f"{one.kind} {one.name}", ", ".join(one.types), ", ".join(one.flow), _paused(one)) for one in found
    ]
    out.table(("Activity", "Runs", "Types", "Options", "State"), rows)


def _paused(one: SubscriptionInfo) -> Text:
    if one.paused_at is None:
        return Text("active", "green")
    return Text(f"paused {ago(one.paused_at)}" + (f": {one.note}" if one.note else ""), "yellow")


@database_command()
async def pause(app: App, out: Output, activity: Activity, note: Note = None) -> None:
    """Keep events for an activity back until it is resumed. What runs goes on."""
    await app.events.pause(activity, note)
    if out.as_json:
        out.data({"activity": activity, "paused": True})
        return
    out.line(f"{activity} is paused: events that come are kept, and run when it is resumed.")
    out.next("events resume", activity)


@database_command()
async def resume(app: App, out: Output, activity: Activity, note: Note = None) -> None:
    """Run an activity for events that came while it was paused, oldest first, and for those that come."""
    await app.events.resume(activity, note)
    if out.as_json:
        out.data({"activity": activity, "paused": False})
        return
    out.line(f"{activity} runs for events again. Those that came meanwhile are taken in.")
    out.next("events subscriptions")
