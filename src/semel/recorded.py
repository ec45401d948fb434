"""Which histories an app can replay: of its workflows, and of its entities that live."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from semel.contract.durations import Duration, parse_duration
from semel.contract.lifecycle import Status
from semel.contract.records import Execution
from semel.errors import InvalidValue

if TYPE_CHECKING:
    from semel.app import App

PAGE = 1000
KINDS = ("workflow", "entity")


async def own_flows(
    app: App, status: Status | str | None, name: str | None, since: Duration | None, limit: int
) -> list[Execution]:
    """Those that this app has the code of, newest first."""
    if limit < 1:
        raise InvalidValue(f"limit={limit!r}: give a whole number from 1 up.")
    oldest = None if since is None else datetime.now(UTC) - parse_duration(since, "since")
    found = [e for kind in KINDS for e in await _of_kind(app, kind, status, name, oldest, limit)]
    return sorted(found, key=lambda e: e.created_at, reverse=True)[:limit]


async def _of_kind(
    app: App, kind: str, status: Status | str | None, name: str | None, oldest: datetime | None, limit: int
) -> list[Execution]:
    found: list[Execution] = []
    before = None
    while len(found) < limit:
        page = await app.list(kind=kind, status=status, name=name, before=before, limit=PAGE)
        young = [e for e in page if oldest is None or e.created_at >= oldest]
        found += [e for e in young if _is_own(app, e)]
        if len(young) < PAGE:
            break
        before = page[-1].id
    return found


def _is_own(app: App, execution: Execution) -> bool:
    """An entity that has ended has nothing to go on with: the next one begins anew."""
    code = app.tasks.get(execution.name)
    ended = execution.kind == "entity" and execution.status.terminal
    return code is not None and code.kind == execution.kind and not ended
