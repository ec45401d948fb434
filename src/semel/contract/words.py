"""`explain` in words: what ran under a key, which duplicates did not, and until when the key is taken."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from semel.contract.decision import Reason
from semel.contract.durations import format_duration
from semel.contract.lifecycle import Status
from semel.contract.records import Execution, Suppressed, Undelivered

_WHY = {
    Reason.JOINED: "it had not ended, so they share its result",
    Reason.REPLAYED: "it had finished, so they got its outcome",
    Reason.INPUT_DIFFERS: "refused: the input was different",
    Reason.FUNCTION_DIFFERS: "refused: the key belongs to another function",
    Reason.SEEN: "its key had been seen within the window",
    Reason.MESSAGE_DIFFERS: "refused: its key belonged to another message",
}

_NOT_COUNTED = (
    "Duplicate counts are unavailable: there is no records database to count them "
    "(App(…, records=…)), or it does not answer."
)


def explain_text(
    key: str,
    executions: Sequence[Execution],
    suppressed: Sequence[Suppressed] | None,
    now: datetime,
    why_it_waits: str = "",
    undelivered: Undelivered | None = None,
) -> str:
    """Explain a key in words, newest execution first. `suppressed` is None if duplicates are not counted.

    `why_it_waits` is what keeps the newest execution from running, if that is known.
    """
    if not executions:
        return f"Nothing is known under the key {key!r}: it never ran, or its window is over."
    times = "once" if len(executions) == 1 else f"{len(executions)} times"
    lines = [f"Key {key!r} was admitted {times}."]
    for execution in executions:
        lines.append("")
        lines.extend(_execution_lines(execution))
        mine = [s for s in suppressed or () if s.execution_id == execution.id]
        lines.extend(f"  {_suppressed(s)}" for s in mine)
    if why_it_waits:
        lines += ["", f"{why_it_waits[0].upper()}{why_it_waits[1:]}"]
    if undelivered is not None:
        lines += undelivered.lines(key)
    lines += ["", _window(executions[0], now)]
    if suppressed is None:
        lines += ["", _NOT_COUNTED]
    return "\n".join(lines)


def _execution_lines(e: Execution) -> list[str]:
    lines = [f"Execution {e.id} of {e.name!r} on queue {e.queue!r}: {e.status}."]
    lines.append(f"  Admitted {_when(e.created_at)}, attempt {e.attempt} of {e.max_attempts}.")
    if e.stranded:
        lines.append(
            "  It will never run: the database has lost its lane or its queue entry. Cancel it and start it again."
        )
    elif e.status is Status.RUNNING:
        lines.append(f"  Running on {e.worker or 'a worker'} since {_when(e.started_at)}.")
    elif e.run_at is not None:
        lines.append(f"  Waiting until {_when(e.run_at)}.")
    if e.finished_at is not None:
        lines.append(f"  Ended {_when(e.finished_at)}.")
    if e.progress:
        lines.append(f"  Progress: {e.progress}")
    if e.error is not None:
        what = "Error" if e.status.terminal else "Last error"
        lines.append(f"  {what}: {e.error}")
    if e.parent_id is not None:
        lines.append(f"  Started by workflow {e.parent_id}.")
    if e.previous_id is not None:
        lines.append(f"  It followed execution {e.previous_id}.")
    if e.expired:
        lines.append("  Its input and result are past their retention; only the key is remembered.")
    return lines


def _suppressed(s: Suppressed) -> str:
    if s.reason is Reason.OVERFLOWED:
        keys = "1 message key was" if s.count == 1 else f"{s.count} message keys were"
        return f"{keys} forgotten before the window was over, the last at {_when(s.last_at)}: more than max_keys."
    if s.count == 1:
        return f"1 duplicate did not run ({_WHY[s.reason]}), at {_when(s.first_at)}."
    return (
        f"{s.count} duplicates did not run ({_WHY[s.reason]}), "
        f"the first at {_when(s.first_at)}, the last at {_when(s.last_at)}."
    )


def _window(e: Execution, now: datetime) -> str:
    ends = e.window_ends_at
    if ends is None:
        return "It has not ended: any further request under this key joins it."
    if now >= ends:
        return f"Its window ended {_when(ends)}: the next request under this key runs."
    if e.status is not Status.COMPLETED:
        return (
            f"It ended {e.status}, which frees the key: the next request runs again "
            "(unless it is made with reuse='reject')."
        )
    return (
        f"The key is taken until {_when(ends)} (its window is {format_duration(e.window)} from the end): "
        "until then duplicates get this result."
    )


def _when(at: datetime | None) -> str:
    return "at an unknown time" if at is None else at.strftime("%Y-%m-%d %H:%M:%S UTC")
