"""A journal as people read it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from semel.codec import decode_plain
from semel.contract.times import from_micros
from semel.flow import entries, history_file, snapshot
from semel.flow.commands import key_in
from semel.flow.entries import Asked, Began, Dropped, Entry, Fired, Resolved, Signalled, Stopped, Turned, stored


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a workflow, or that it asked for."""

    row: int
    """The commit it was written with."""
    at: datetime
    """Workflow time."""
    what: str
    """began, asked, resolved, fired, signalled, cancelled or dropped."""
    command: int | None = None
    kind: str = ""
    name: str = ""
    status: str = ""
    value: Any = None
    ref: str | None = None
    key: str | None = None
    """The id that a task or a child workflow was asked for under."""


def history_events(rows: Iterable[bytes], first: int = 1) -> list[Event]:
    """Events in the order in which they were written."""
    now = 0
    asked: dict[int, Asked] = {}
    became: dict[int, str] = {}
    events = []
    for at, body in enumerate(rows, first):
        for entry in entries.load(body):
            match entry:
                case Began(at=now) | Turned(at=now):
                    pass
                case Asked(command=number):
                    asked[number] = entry
                case Resolved(command=number, ref=str(ref)):
                    became[number] = ref
            if not isinstance(entry, Turned):
                events.append(_event(at, from_micros(now), entry, asked))
    # What was asked for under a key may have become one that was there already.
    return [replace(e, ref=became[e.command]) if e.what == "asked" and e.command in became else e for e in events]


def read_history(text: str) -> tuple[dict[str, Any], list[Event]]:
    """An exported history: whose it is, and its events. InvalidValue: it is none."""
    past = history_file.load(text)
    head = {"key": past.key, "id": past.id, past.kind: past.name}
    if past.kind == "entity":
        head["state"] = decode_plain(None if past.snapshot is None else snapshot.load(past.snapshot).input)
    else:
        head["input"] = decode_plain(past.input)
    return head, history_events(past.commits, past.base + 1)


def _event(row: int, at: datetime, entry: Entry, asked: dict[int, Asked]) -> Event:
    match entry:
        case Began(version=version, run=run):
            return Event(row, at, "began", name=f"run {run}", status=f"version {version}")
        case Asked(number, kind, name, mark, ref):
            if kind == "timer":
                due = from_micros(int(mark))
                return Event(row, at, "asked", number, kind, name, value=due.isoformat())
            return Event(row, at, "asked", number, kind, name, ref=ref, key=key_in(kind, mark))
        case Resolved(number, status, output, error, ref):
            value = decode_plain(stored(output)) if error is None else str(error)
            kind, name = _of(asked.get(number))
            return Event(row, at, "resolved", number, kind, name, status, value, ref)
        case Fired(number):
            return Event(row, at, "fired", number, "timer")
        case Signalled(name, payload, key):
            return Event(row, at, "signalled", None, "signal", name, value=decode_plain(stored(payload)), ref=key)
        case Stopped(late):
            return Event(row, at, "cancelled", status="late" if late else "")
        case Dropped(number):
            return Event(row, at, "dropped", number, *_of(asked.get(number)))
        case Turned():
            return Event(row, at, "turned")


def _of(asked: Asked | None) -> tuple[str, str]:
    return ("", "") if asked is None else (asked.kind, asked.name)
