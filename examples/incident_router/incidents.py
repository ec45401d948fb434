"""Incidents: pure thresholds, and rows that workflows change in transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

THRESHOLDS = {"error_rate": (5.0, 20.0), "latency": (1.0, 3.0)}
"""The values at which a metric becomes a warning, and at which it becomes critical."""


@dataclass
class Finding:
    metric: str
    value: float
    severity: int
    """0: normal, 1: warning, 2: critical."""


@dataclass
class Change:
    """A change of an incident's state. `sequence` distinguishes a second opening from the first."""

    incident: str
    kind: str
    severity: int
    sequence: int

    @property
    def urgent(self) -> bool:
        """The cooldown is for flapping incidents. It never suppresses an escalation or a closing."""
        return self.kind in ("escalated", "closed")


def evaluate(readings: dict[str, float]) -> list[Finding]:
    """Pure, so workflow code may call it. Sorted, so that the result is the same each time."""
    found = []
    for metric, value in sorted(readings.items()):
        warning, critical = THRESHOLDS.get(metric, (float("inf"), float("inf")))
        found.append(Finding(metric, value, (value >= warning) + (value >= critical)))
    return found


def make_tables(tx: Any) -> None:
    tx.execute(
        "create table if not exists incident (id text primary key, severity integer not null, "
        "sequence integer not null, quiet_until double precision not null, briefed integer not null)"
    )
    tx.execute("create table if not exists decision (agent text primary key, text text not null)")


def upsert_incident(tx: Any, scope: str, finding: Finding) -> Change | None:
    """Compare with the stored state; None if nothing has changed. So a router may check as often as it likes."""
    id_ = f"{scope}.{finding.metric}"
    tx.execute("insert into incident values ($1, 0, 0, 0, 0) on conflict do nothing", id_)
    known, sequence = tx.execute("select severity, sequence from incident where id = $1", id_)[0]
    if finding.severity == known or (finding.severity < known and finding.severity > 0):
        return None
    kind = "closed" if finding.severity == 0 else "opened" if known == 0 else "escalated"
    moved = "update incident set severity = $1, sequence = $2 where id = $3 and sequence = $4 returning id"
    if not tx.execute(moved, finding.severity, sequence + 1, id_, sequence):
        return None  # another router was faster, and reports it
    return Change(id_, kind, finding.severity, sequence + 1)


def claim_cooldown(tx: Any, incident: str, now: float, seconds: float) -> bool:
    """Check and set in one statement: of two concurrent agents only one gets it."""
    claim = "update incident set quiet_until = $1 where id = $2 and quiet_until <= $3 returning id"
    return bool(tx.execute(claim, now + seconds, incident, now))


def describe_incident(tx: Any, change: Change) -> str:
    briefed = tx.execute("select briefed from incident where id = $1", change.incident)[0][0]
    return f"{change.incident} {change.kind} with severity {change.severity}, briefed {briefed} times before"


def record_decision(tx: Any, agent: str, incident: str, text: str) -> None:
    """Record the decision and count the briefing: both or neither, exactly once."""
    tx.execute("insert into decision values ($1, $2)", agent, text)
    tx.execute("update incident set briefed = briefed + 1 where id = $1", incident)
