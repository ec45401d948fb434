"""Retention: slips say when to look at finished executions; the contract says what becomes of them."""

from __future__ import annotations

from semel.contract.retention import Fate, Keeping, fate
from semel.contract.times import from_micros, micros, span
from semel.engines.journal.script import Ask, Each, Line, Row, Script, procedure

SLIPS_AT_ONCE = 50
LOOK_AGAIN = 3_600_000_000
"""Microseconds until one that belongs to an open workflow is looked at again."""


@procedure(Line.CONTROL)
def clean() -> Script[tuple[int, int]]:
    """One batch: (slips taken, executions looked at)."""
    slips = yield Ask("due_slips", (SLIPS_AT_ONCE,))
    ids = [(id_,) for slip in slips for id_ in slip[0].split(",")]
    if not ids:
        return len(slips), 0
    strip: list[Row] = []
    forget: list[Row] = []
    again: list[Row] = []
    for id_, holds_key, finished, retention, window, at, needed in (yield Each("fates", ids)):
        if needed:
            again.append((at + LOOK_AGAIN, id_))
            continue
        keep = Keeping(span(retention), span(window))
        finished_at, now = from_micros(finished), from_micros(at)
        match fate(keep, finished_at, bool(holds_key), now):
            case Fate.KEEP:
                again.append((finished + micros(keep.retention), id_))
            case Fate.STRIP:
                strip.append((id_,))
                again.append((finished + micros(keep.window), id_))
            case Fate.FORGET:
                forget.append((id_,))
    for name, rows in (
        ("strip", strip), ("forget", forget), ("forget_flows", strip + forget), ("forget_seen", forget),
        ("slip", again),
    ):  # fmt: skip
        if rows:
            yield Each(name, rows)
    return len(slips), len(ids)
