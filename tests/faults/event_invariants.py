"""Read from the tables: an event and the runs that it starts are there together, each run once for each generation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from semel.triggers.ids import event_run_id, parse_run_id
from tests.faults.schedule_invariants import Sql, run_faults


def is_slot(key: str) -> bool:
    """Does this key stand for a slot of a schedule? Those are backfilled, too."""
    parsed = parse_run_id(key)
    return parsed is not None and parsed[1] is not None


async def event_faults(sql: Sql, events: Mapping[str, Sequence[str]]) -> list[str]:
    """What does not hold when all work is done. `events`: the activities that must have a run for each event."""
    found = await run_faults(sql) if events else []
    rows = await sql("select id, state, activities from semel_event")
    stored = {id_: (state, set(filter(None, activities.split(",")))) for id_, state, activities in rows}
    runs = await sql("select key, generation, why from semel_run where why in ('event', 'replay', 'backfill')")
    keys = {key for key, _, _ in runs if not is_slot(key)}
    outcomes = await sql("select event, activity, state, run, reason from semel_event_outcome")
    taken = {(id_, activity) for id_, activity, *_ in outcomes}
    found += await flow_faults(sql, keys)
    for id_, (state, activities) in stored.items():
        if state == "waiting":
            found.append(f"event {id_} still waits")
        if (state == "routed") != bool(activities):
            found.append(f"event {id_} is {state} and has runs of {activities}")
        for activity in activities:
            if (id_, activity) not in taken and event_run_id(activity, id_) not in keys:
                found.append(f"event {id_} says that {activity} ran, and there is no record of it")
    known = {event_run_id(activity, id_) for id_, (_, activities) in stored.items() for activity in activities}
    known |= {run for _, _, _, run, _ in outcomes}
    found += [f"run {key} is for an event that does not know it" for key in sorted(keys - known)]
    for id_, wanted in events.items():
        have = stored.get(id_, ("missing", set[str]()))[1]
        if have != set(wanted):
            found.append(f"event {id_} has runs of {sorted(have)} instead of {sorted(wanted)}")
    generations = sorted((key, generation) for key, generation, _ in runs)
    for key in keys:
        numbers = [generation for one, generation in generations if one == key]
        if numbers != list(range(len(numbers))):
            found.append(f"run {key} has the generations {numbers}")
    return found


async def flow_faults(sql: Sql, runs: Collection[str]) -> list[str]:
    """What does not hold of events that are gathered or limited: each is in one run, or was dropped for a reason."""
    found: list[str] = []
    gathered: dict[str, set[str]] = {}
    for event, activity, state, run, reason in await sql(
        "select event, activity, state, run, reason from semel_event_outcome"
    ):
        if state not in ("started", "dropped", "cancels"):
            found.append(f"event {event} is still {state} by {activity}")
        if state == "dropped" and not reason:
            found.append(f"event {event} was dropped by {activity} for no reason")
        if (state == "started") != (run is not None) or (run is not None and run not in runs):
            found.append(f"event {event} is {state} by {activity}, in run {run}")
        if run is not None:
            gathered.setdefault(run, set()).add(event)
    for kind, activity, due_at in await sql("select kind, activity, due_at from semel_event_flow"):
        if due_at is not None or kind in ("start", "cancel"):
            found.append(f"the {kind} of {activity} is still to be looked at")
    for key, given in await sql("select key, input from semel_execution where input is not null"):
        if key in gathered:
            events = [one["event_id"] for one in msgspec.json.decode(bytes(given)).get("events", ())]
            if sorted(events) != sorted(gathered[key]):
                found.append(f"run {key} has got {events} instead of {sorted(gathered[key])}")
    return found
