"""The commands of a workflow, put together from what happened to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from semel import Event, Execution, Status

_AT_ONCE = frozenset({"enqueue", "send", "cancel"})
_REMARKS = frozenset({"publish", "attribute", "patch"})
"""They are in the timeline, and nothing waits for them."""


@dataclass
class Asked:
    """One thing that a workflow asked for, and what became of it."""

    number: int
    kind: str
    name: str
    asked_at: datetime
    ref: str | None = None
    key: str | None = None
    due: datetime | None = None
    state: str = "open"
    """open, done, dropped (nobody waits for it any more), or the status of an execution."""
    after: list[int] = field(default_factory=list)
    """Commands whose answers led to it; none for what it began with."""

    @property
    def open(self) -> bool:
        """Is there no answer yet?"""
        return self.state == "open"

    def as_data(self) -> dict[str, Any]:
        """For programs."""
        return {
            "command": self.number, "kind": self.kind, "name": self.name, "state": self.state,
            "since": self.asked_at, "ref": self.ref, "key": self.key, "due": self.due, "after": self.after,
        }  # fmt: skip


def commands_of(events: Sequence[Event], execution: Execution) -> list[Asked]:
    """In the order in which they were asked for."""
    found = _together(events)
    for command in found:
        if command.open and (execution.status.terminal or _no_timer(command, execution)):
            command.state = "dropped"
    return found


def _no_timer(command: Asked, execution: Execution) -> bool:
    """A timer that was given up leaves no trace of its own, but the workflow does not wake for it any more."""
    if command.due is None or execution.status is not Status.WAITING or execution.error is not None:
        return False
    return execution.run_at is None or command.due < execution.run_at - timedelta(milliseconds=1)


def _together(events: Sequence[Event]) -> list[Asked]:
    found: dict[int, Asked] = {}
    ends: list[int] = []
    heard: dict[str, int] = {}
    listening: dict[str, list[int]] = {}
    batch: list[int] = []
    for event in events:
        number = event.command
        if event.kind in _REMARKS:
            continue
        if event.what == "asked" and number is not None:
            one = found[number] = _asked(event)
            one.after = list(ends)
            batch.append(number)
            if event.kind == "signal":
                if heard.get(event.name):
                    heard[event.name] -= 1
                    one.state = "done"
                else:
                    listening.setdefault(event.name, []).append(number)
            continue
        if batch:  # what comes next follows from what is answered now
            ends = [end for end in ends if not any(end in found[n].after for n in batch)]
            ends += [n for n in batch if found[n].state == "done"]
            batch = []
        if event.what == "signalled":
            waiting = listening.get(event.name)
            if waiting:
                number = waiting.pop(0)
                found[number].state = "done"
                ends.append(number)
            else:
                heard[event.name] = heard.get(event.name, 0) + 1
        elif number in found:
            found[number].state = {"fired": "done", "dropped": "dropped"}.get(event.what, event.status)
            ends.append(number)
    return list(found.values())


def _asked(event: Event) -> Asked:
    due = datetime.fromisoformat(event.value) if event.kind == "timer" and event.value else None
    state = "done" if event.kind in _AT_ONCE else "open"
    return Asked(event.command or 0, event.kind, event.name, event.at, event.ref, event.key, due, state)
