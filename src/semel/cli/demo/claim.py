"""The claim of the demo, computed from what is on disk and what was seen; nothing is printed that was not counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from semel import Explanation, Status
from semel.cli.demo.ledger import Entry

REQUESTS = 50


@dataclass(frozen=True, slots=True)
class Claim:
    """What happened, in numbers."""

    calls: int
    charges: int
    requests: int
    duplicates: int
    crashes: int
    doubts: tuple[str, ...]
    """Why it is not true that the payment happened once; empty when it is."""

    def __str__(self) -> str:
        return (
            f"once: {_count(self.charges, 'charge')}, {_count(self.requests, 'request')}, "
            f"{_count(self.duplicates, 'duplicate')} suppressed, {_count(self.crashes, 'crash', 'crashes')} survived"
        )


def claim(ledger: Sequence[Entry], told: Explanation, *, kills: int, receipts: Sequence[str] | None = None) -> Claim:
    """Count the charges in the ledger, the requests in the explanation, and the kills that were survived.

    `receipts` are what the customers hold; without them (on a later day) those are not checked.
    """
    charges = [entry.charge for entry in ledger if entry.charged]
    duplicates = sum(suppressed.count for suppressed in told.suppressed)
    requests = len(told.executions) + duplicates
    completed = [execution for execution in told.executions if execution.status is Status.COMPLETED]
    survived = kills if completed and completed[0].attempt == kills + 1 else 0
    doubts = []
    if len(charges) != 1:
        doubts.append(f"the provider's ledger has {len(charges)} charges")
    if len({entry.key for entry in ledger}) != 1:
        doubts.append(f"the provider saw {len({entry.key for entry in ledger})} effect keys")
    if len(told.executions) != 1 or len(completed) != 1:
        doubts.append(f"{len(told.executions)} executions were admitted and {len(completed)} completed")
    if survived != kills or len(ledger) != kills + 1:
        doubts.append(f"{kills} crashes, {len(ledger)} calls and {survived} survived do not fit together")
    if receipts is not None:
        if requests != REQUESTS or kills != 1:
            doubts.append(f"{requests} requests of {REQUESTS} are accounted for, and {kills} kills of 1")
        if len(receipts) != REQUESTS or set(receipts) != set(charges):
            doubts.append(f"{len(receipts)} receipts name {sorted(set(receipts))}, the ledger {charges}")
    return Claim(len(ledger), len(charges), requests, duplicates, survived, tuple(doubts))


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one}" if number == 1 else f"{number} {many or one + 's'}"
