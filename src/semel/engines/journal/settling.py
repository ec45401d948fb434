"""How work ends: in batches, and only by the hand that holds it."""

from __future__ import annotations

from msgspec import Struct

from semel.contract.lifecycle import Status
from semel.engines.journal.claiming import Claim
from semel.engines.journal.script import Each, Line, Row, Script, procedure

MOST_AT_ONCE = 200
"""As many ids fit into one NOTIFY."""


class Ending(Struct, frozen=True):
    """What became of one claim. `retry_in` seconds: another attempt; None: `status` is final."""

    claim: Claim
    status: Status
    output: bytes | None = None
    error: bytes | None = None
    retry_in: float | None = None


@procedure(Line.SETTLE, atomic=True)
def settle(worker: int, endings: list[Ending]) -> Script[set[int]]:
    """Write endings; the seqs that were refused because the claim is no longer this worker's."""
    if any(e.claim.parent for e in endings):  # who wait for them are woken in one order by all, and never in a circle
        endings = sorted(endings, key=lambda e: e.claim.parent or "")
    rows = [(e.claim.lane, e.claim.seq, e.status.value, e.output, e.error) for e in endings]
    written = _seqs((yield Each("settle", rows, (worker,))))
    return (yield from _missing(endings, written))


@procedure(Line.SETTLE, atomic=True)
def put_off(worker: int, endings: list[Ending]) -> Script[set[int]]:
    """The same for attempts that will be repeated, unless someone wants them cancelled: that is their end then."""
    rows = [(e.claim.lane, e.claim.seq, e.error, round((e.retry_in or 0.0) * 1_000_000)) for e in endings]
    written = _seqs((yield Each("retry", rows, (worker,))))
    rest = [
        (e.claim.lane, e.claim.seq, Status.CANCELLED.value, None, None) for e in endings if e.claim.seq not in written
    ]
    if rest:
        written |= _seqs((yield Each("settle", rest, (worker,))))
    return (yield from _missing(endings, written))


def _seqs(rows: list[Row]) -> set[int]:
    return {int(seq) for row in rows if row[0] for seq in row[0].split(",")}


def _missing(endings: list[Ending], written: set[int]) -> Script[set[int]]:
    """What was not written now may have been written by a try whose reply was lost."""
    missing = [e.claim for e in endings if e.claim.seq not in written]
    if not missing:
        return set()
    earlier = yield Each("settled", [(c.execution, c.seq) for c in missing])
    return {c.seq for c in missing} - {row[1] for row in earlier}
