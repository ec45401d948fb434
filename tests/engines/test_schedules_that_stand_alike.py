"""Schedules that stand alike are looked at once, and each comes to what it would come to alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from semel.contract.slot_policy import SlotPolicy
from semel.contract.slots import SlotRun
from semel.contract.timing import Timing
from semel.engine import ticks
from semel.engine.schedules import ScheduleDefinition, ScheduleRow, StoredState
from semel.engine.ticks import Advance, advance, advance_all
from tests.stored.test_schedules_are_read import DEFINITION

AT = datetime(2027, 1, 1, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOW = int((AT + 5 * HOUR + timedelta(minutes=1)).timestamp() * 1e6)
STORED = ScheduleDefinition.from_bytes(DEFINITION, "any")
HOURLY = replace(
    STORED, timing=Timing(every="1h"), policy=SlotPolicy(misfire="catchup", start_deadline="2h"), run_parameter=None
)
DEFINITIONS = {
    "plain": HOURLY,
    "other arguments": replace(HOURLY, payload=b'{"city":"Rome"}'),
    "jitter": replace(HOURLY, timing=Timing(every="1h", jitter="20m", schedule_id="any")),
    "wants its run": replace(HOURLY, run_parameter="run"),
    "skips": replace(HOURLY, policy=SlotPolicy()),
}
WAITS = StoredState(line=(SlotRun(AT, AT - HOUR, AT),)).to_bytes()


def row(id: str, definition: ScheduleDefinition, **changes: Any) -> ScheduleRow:
    cursor = int(AT.timestamp() * 1e6)
    return ScheduleRow(
        id, 1, "api", definition.to_bytes(), cursor, cursor, None, None, b"{}", cursor, cursor, NOW
    )._replace(**changes)


def rows() -> list[ScheduleRow]:
    """Three alike of each kind, mixed."""
    found = []
    for number in range(3):
        for what, definition in DEFINITIONS.items():
            id_ = f"{what.replace(' ', '-')}:{number}"
            found += [
                row(id_, definition),
                row(f"{id_}:late", definition, cursor=NOW - 9 * 3_600_000_000),
                row(f"{id_}:new", definition, version=2),
                row(f"{id_}:paused", definition, paused_at=NOW - 1_000_000),
                row(f"{id_}:waits", definition, state=WAITS),
            ]
    return found


def without_ids(one: Advance) -> Advance:
    """Executions are new ones in each look."""
    return one._replace(starts=tuple(start._replace(request=replace(start.request, id="")) for start in one.starts))


def test_each_comes_to_what_it_would_come_to_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []

    def counted(row: ScheduleRow, *args: Any, **options: Any) -> Advance:
        looks.append(row.id)
        return advance(row, *args, **options)

    alone = [advance(one, {}, max_payload=1 << 20) for one in rows()]
    monkeypatch.setattr(ticks, "advance", counted)
    together = advance_all(rows(), {}, {}, {}, down_for=0, max_payload=1 << 20)
    assert [without_ids(one) for one in together] == [without_ids(one) for one in alone]
    assert sum(len(one.starts) for one in alone) > 30
    ids = [start.request.id for one in together for start in one.starts]
    assert len(ids) == len({*ids})
    assert len(looks) == 3 * 5 * 1 + 2 * 5 * 3, "three kinds once for all, and two that depend on their ids each"
