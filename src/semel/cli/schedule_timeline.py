"""Past and coming slots of a schedule on a line, for `semel schedules show`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.text import Text

from semel import Status
from semel.cli.output import STYLES, when
from semel.contract.occurrences import Occurrence
from semel.contract.runs import ScheduleInfo, ScheduleRun, SkippedSlots, Why

_SIGNS = {
    Status.COMPLETED: "●",
    Status.FAILED: "✗",
    Status.TIMED_OUT: "✗",
    Status.CANCELLED: "■",
    Status.RUNNING: "▶",
    Status.PENDING: "▷",
    Status.WAITING: "▷",
}
NOW = "│"


@dataclass(frozen=True, slots=True)
class Mark:
    """One slot, or a range of slots, on the line."""

    at: datetime
    sign: str
    style: str
    word: str
    detail: str


def mark_run(run: ScheduleRun, status: Status | None) -> Mark:
    """A run. Without a status its execution is not kept any more."""
    parts = [f"version {run.version}", run.execution]
    if run.why is not Why.SLOT:
        parts.insert(0, f"{run.why}, {run.slots} slots in one run" if run.slots > 1 else str(run.why))
    if run.generation:
        parts.insert(1, f"generation {run.generation}")
    if status is None:
        return Mark(run.scheduled_for, "?", "dim", "not kept any more", ", ".join(parts))
    return Mark(run.scheduled_for, _SIGNS[status], STYLES[status], status.value, ", ".join(parts))


def mark_skipped(skipped: SkippedSlots) -> Mark:
    """Slots that did not run."""
    many = f"×{skipped.count}" if skipped.count > 1 else ""
    since = f"{skipped.count} slots since {when(skipped.first)}" if skipped.count > 1 else ""
    into = "" if skipped.into is None else f"in the run of {when(skipped.into)}"
    detail = ", ".join(part for part in (since, into) if part)
    return Mark(skipped.last, f"·{many}", "yellow", f"skipped: {skipped.reason}", detail)


def mark_coming(coming: Occurrence, info: ScheduleInfo, now: datetime) -> list[Mark]:
    """A wall-clock time that is not decided: its slots, or why it has none."""
    wall = "" if coming.timezone == "UTC" else f"{coming.wall:%Y-%m-%d %H:%M:%S} in {coming.timezone}"
    if not coming.slots:
        return [Mark(coming.wall, "–", "dim", f"does not fire: {coming.outcome}", wall)]
    paused = info.paused_at is not None
    return [_mark_slot(slot, coming.outcome.value, paused, slot <= now, wall) for slot in coming.slots]


def _mark_slot(slot: datetime, outcome: str, paused: bool, due: bool, wall: str) -> Mark:
    if paused:
        return Mark(slot, "○", "dim", "paused", wall)
    if due:
        return Mark(slot, "◔", "yellow", "due", wall or "no worker has looked at it yet")
    return Mark(slot, "○", "cyan", outcome, wall)


def draw_line(past: Sequence[Mark], coming: Sequence[Mark]) -> Text:
    """Signs in the order of time, with a bar for now."""
    line = Text("  ")
    for mark in past:
        line.append(mark.sign, mark.style).append(" ")
    line.append(NOW, "bold").append(" ")
    for mark in coming:
        line.append(mark.sign, mark.style).append(" ")
    return line


def explain_signs(marks: Sequence[Mark]) -> str:
    """What the signs of a line mean, each once."""
    words = {mark.sign.partition("×")[0]: mark.word.partition(":")[0] for mark in marks}
    return "  " + "   ".join([*(f"{sign} {word}" for sign, word in words.items()), f"{NOW} now"])


def describe_when(mark: Mark) -> str:
    """When a mark is: an instant, or a wall-clock time that never comes."""
    return when(mark.at) if mark.at.tzinfo is not None else f"{mark.at:%Y-%m-%d %H:%M:%S}"
