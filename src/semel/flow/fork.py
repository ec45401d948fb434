"""Going back: which commit a workflow can go on from, and what it takes along from what came after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from semel.engine.protocol import RecordedRun
from semel.errors import NotResettable
from semel.flow import entries, snapshot
from semel.flow.commands import NO_ANSWER, Kind
from semel.flow.entries import Asked, Began, Dropped, Entry, Fired, Resolved, Signalled, Turned

_EXECUTIONS: Final = (Kind.TASK, Kind.WORKFLOW)


@dataclass(slots=True)
class Fork:
    """A journal up to a commit, and what was written after it that stays true."""

    open: dict[int, Asked] = field(default_factory=dict)
    """Executions that were asked for and, up to there, had given no answer."""
    answers: dict[int, Resolved] = field(default_factory=dict)
    """What they answered after it."""
    signals: list[tuple[int, Signalled]] = field(default_factory=list)
    """Signals that came after it, and when: they are not lost."""
    attributes: dict[str, str] = field(default_factory=dict)
    """Search attributes as they were there."""


def fork(past: RecordedRun, commit: int) -> Fork:
    """What going back to a commit means. NotResettable: it is none of this run."""
    last = past.base + len(past.commits)
    if not past.base <= commit <= last:
        gone = f" ({past.base} and what was before ended when it continued as new)" if past.base else ""
        raise NotResettable(f"workflow {past.key!r} has the rows {past.base + 1} to {last}{gone}, not {commit}.")
    made = Fork()
    if past.snapshot is not None:
        made.attributes = dict(snapshot.load(past.snapshot).attributes)
    for at, now, entry in _all(past):
        if at > commit:
            _after(made, now, entry)
        else:
            _until(made, entry)
    return made


def _until(made: Fork, entry: Entry) -> None:
    match entry:
        case Asked(command=number, kind=kind) if kind in _EXECUTIONS:
            made.open[number] = entry
        case Asked(kind=Kind.ATTRIBUTE, name=name, mark=value):
            made.attributes[name] = value
            if not value:
                del made.attributes[name]
        case Resolved(command=number) | Dropped(command=number):
            made.open.pop(number, None)
        case _:
            pass


def _after(made: Fork, now: int, entry: Entry) -> None:
    match entry:
        case Resolved(command=number) if number in made.open:
            made.answers[number] = entry
        case Signalled():
            made.signals.append((now, entry))
        case _:
            pass


def commit_before(past: RecordedRun, to: int | str) -> int:
    """The last commit before the answer to a command: by its number, by its name (the last one), or as "row:7"."""
    text = str(to)
    if text.startswith("row:") and text[4:].isdecimal():
        return int(text[4:])
    asked = {entry.command: entry for _, _, entry in _all(past) if isinstance(entry, Asked)}
    if text.isdecimal():
        number = int(text)
        if number not in asked:
            raise NotResettable(f"workflow {past.key!r} has no command {number}{_which(past, asked)}.")
    else:
        named = [number for number, entry in asked.items() if entry.name == text and entry.kind not in NO_ANSWER]
        if not named:
            there = dict.fromkeys(e.name for e in asked.values() if e.name and e.kind not in NO_ANSWER)
            names = ", ".join(there) or "none"
            raise NotResettable(f"workflow {past.key!r} asked for nothing of the name {text!r}. There are: {names}.")
        number = named[-1]
    return _answered(past, number) - 1


def _which(past: RecordedRun, asked: dict[int, Asked]) -> str:
    if not asked:
        return ": it has asked for nothing yet"
    gone = " since it continued as new" if past.base else ""
    return f": it has {min(asked)} to {max(asked)}{gone}"


def _answered(past: RecordedRun, number: int) -> int:
    """The commit that holds the answer to a command; the one after the last while there is none."""
    waiting: dict[str, list[int]] = {}
    unheard = Counter[str]()
    if past.snapshot is not None:
        unheard.update(signal.name for signal in snapshot.load(past.snapshot).signals)
    for at, _, entry in _all(past):
        match entry:
            case Resolved(command=n) | Fired(command=n) if n == number:
                return at
            case Signalled(name=name):
                heard = waiting.get(name)
                if not heard:
                    unheard[name] += 1
                elif heard.pop(0) == number:
                    return at
            case Asked(command=n, kind=Kind.SIGNAL, name=name):
                if not unheard[name]:
                    waiting.setdefault(name, []).append(n)
                    continue
                unheard[name] -= 1
                if n == number:
                    return at
            case Asked(command=n, kind=kind) if n == number and kind in NO_ANSWER:
                return at
            case _:
                pass
    return past.base + len(past.commits) + 1


def _all(past: RecordedRun) -> Iterator[tuple[int, int, Entry]]:
    """Every entry, with its commit and workflow time."""
    now = 0
    for at, body in enumerate(past.commits, past.base + 1):
        for entry in entries.load(body):
            if isinstance(entry, Began | Turned):
                now = entry.at
            yield at, now, entry
