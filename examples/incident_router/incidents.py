"""Incidents: pure thresholds, and rows that workflows change in transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

THRESHOLDS = {"error_rate": (5.0, 20.0), "latency": (1.0, 3.0)}
"""The values at which a metric becomes a warning, and at which it becomes critical."""
MOST_SIGNALS = 500
"""So many signals are read at once; the others are read by the next look."""


@dataclass
class Signal:
    """What an alert said. `severity` is 0: it is over, 1: warning, 2: critical."""

    scope: str
    alert: str
    severity: int
    at: float
    """When it said so, in seconds since 1970."""


@dataclass
class Unread:
    """The signals of a scope after its cursor, in the order in which they were committed."""

    looks: int
    """How often somebody has looked at this scope before."""
    cursor: int
    """The number of the last of these signals."""
    signals: list[Signal]


@dataclass
class Finding:
    """How something stands. Severities are those of signals."""

    name: str
    severity: int


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


def evaluate(signals: list[Signal], readings: dict[str, float]) -> list[Finding]:
    """Pure, so workflow code may call it. Metrics are sorted, so that the result is the same each time."""
    found = [Finding(f"alert.{signal.alert}", signal.severity) for signal in signals]
    for metric, value in sorted(readings.items()):
        warning, critical = THRESHOLDS.get(metric, (float("inf"), float("inf")))
        found.append(Finding(metric, (value >= warning) + (value >= critical)))
    return found


def make_tables(tx: Any) -> None:
    tx.execute(
        "create table if not exists incident_scope (id text primary key, newest integer not null, "
        "cursor integer not null, looks integer not null)"
    )
    tx.execute(
        "create table if not exists incident_signal (event text primary key, scope text not null, "
        "number integer not null, alert text not null, severity integer not null, at double precision not null, "
        "unique (scope, number))"
    )
    tx.execute(
        "create table if not exists incident (id text primary key, severity integer not null, "
        "sequence integer not null, quiet_until double precision not null, briefed integer not null)"
    )
    tx.execute("create table if not exists decision (agent text primary key, text text not null)")


def store_signal(tx: Any, event: str, signal: Signal) -> int:
    """Store what an event says, and return its number within its scope; 0 if its alert has said something newer.

    The update locks the scope's row until the commit, so numbers are committed in their order: no cursor passes one by.
    """
    tx.execute("insert into incident_scope values ($1, 0, 0, 0) on conflict do nothing", signal.scope)
    tx.execute("update incident_scope set newest = newest where id = $1", signal.scope)
    known = tx.execute("select number from incident_signal where event = $1", event)
    if known:
        return int(known[0][0])
    newer = "select 1 from incident_signal where scope = $1 and alert = $2 and at > $3 limit 1"
    if tx.execute(newer, signal.scope, signal.alert, signal.at):
        return 0  # it was late: an alert that is over does not open again
    number = int(tx.execute("select newest + 1 from incident_scope where id = $1", signal.scope)[0][0])
    tx.execute("update incident_scope set newest = $1 where id = $2", number, signal.scope)
    insert = "insert into incident_signal (event, scope, number, alert, severity, at) values ($1, $2, $3, $4, $5, $6)"
    tx.execute(insert, event, signal.scope, number, signal.alert, signal.severity, signal.at)
    return number


def is_seen(tx: Any, scope: str, number: int) -> bool:
    return bool(tx.execute("select 1 from incident_scope where id = $1 and cursor >= $2", scope, number))


def read_signals(tx: Any, scope: str) -> Unread:
    tx.execute("insert into incident_scope values ($1, 0, 0, 0) on conflict do nothing", scope)
    cursor, looks = tx.execute("select cursor, looks from incident_scope where id = $1", scope)[0]
    rows = tx.execute(
        "select number, alert, severity, at from incident_signal where scope = $1 and number > $2 order by number "
        "limit $3",
        scope,
        cursor,
        MOST_SIGNALS,
    )
    return Unread(looks, rows[-1][0] if rows else cursor, [Signal(scope, *row[1:]) for row in rows])


def apply_findings(tx: Any, scope: str, unread: Unread, findings: list[Finding]) -> list[Change] | None:
    """Move the cursor and change the incidents, both or neither. None: another router has looked since, look again."""
    moved = "update incident_scope set cursor = $1, looks = looks + 1 where id = $2 and looks = $3 returning id"
    if not tx.execute(moved, unread.cursor, scope, unread.looks):
        return None
    changes = [update_incident(tx, scope, finding) for finding in findings]
    return [change for change in changes if change is not None]


def update_incident(tx: Any, scope: str, finding: Finding) -> Change | None:
    """Compare with the stored state; None if nothing has changed. So a router may look as often as it likes."""
    id_ = f"{scope}.{finding.name}"
    tx.execute("insert into incident values ($1, 0, 0, 0, 0) on conflict do nothing", id_)
    known, sequence = tx.execute("select severity, sequence from incident where id = $1", id_)[0]
    if finding.severity == known or (finding.severity < known and finding.severity > 0):
        return None
    kind = "closed" if finding.severity == 0 else "opened" if known == 0 else "escalated"
    tx.execute("update incident set severity = $1, sequence = $2 where id = $3", finding.severity, sequence + 1, id_)
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
