"""Starts the runs of events inside a transaction, and writes them down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from semel.contract.events import EventRun
from semel.contract.runs import Why
from semel.contract.times import from_micros
from semel.engine.ticks import Start
from semel.engines.journal.runs import Runs, run_row
from semel.engines.journal.script import Row, Script, SqlBatch

NOT_KNOWN: Final[Mapping[str, str]] = MappingProxyType({})


def start_runs(
    namespace: str, starts: Sequence[Start], where: Runs, generations: Mapping[str, int]
) -> Script[list[EventRun]]:
    """Start the runs of events and write them down. `generations`: the newest run that there was under each key."""
    if not starts:
        return []
    found: list[EventRun] = []
    rows: list[Row] = []
    for start, (execution, request) in zip(starts, (yield from where.start(starts)), strict=True):
        key = start.request.key or ""
        generation = generations.get(key, -1)
        if request is not None or execution == start.request.id:
            generation += 1
            again = start if generation == start.generation else start._replace(generation=generation)
            rows.append(run_row(again, execution, request))
        found.append(run_of(start, execution, generation))
    if rows:
        yield SqlBatch("add_runs", rows, (namespace,))
    return found


def run_of(start: Start, execution: str, generation: int) -> EventRun:
    """A run that is started."""
    key, name = start.request.key or "", start.request.options.name
    return EventRun(start.schedule, key, execution, start.why, start.version, generation, start.slot, name)


def newest_runs(
    namespace: str, keys: Sequence[str], functions: Mapping[str, str] = NOT_KNOWN
) -> Script[list[EventRun]]:
    """The newest run under each of these keys. `functions`: what activities run, as far as it is known."""
    rows = yield SqlBatch("runs_by_key", [(key,) for key in keys], (namespace,))
    return [
        EventRun(
            activity,
            key,
            execution,
            Why(why),
            version,
            generation,
            from_micros(created),
            functions.get(activity, ""),
            bool(started),
        )
        for key, generation, activity, _, why, execution, version, created, started in rows
    ]
