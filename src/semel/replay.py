"""Which histories an app can replay: of its workflows, and of its entities that live."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from semel.contract.durations import Duration, parse_duration
from semel.contract.lifecycle import Status
from semel.contract.records import Execution
from semel.engine.protocol import Replayed, Waiting
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
        raise InvalidValue(f"limit={limit!r}: give a whole number, 1 or more.")
    oldest = None if since is None else datetime.now(UTC) - parse_duration(since, "since")
    found = [e for kind in KINDS for e in await _of_kind(app, kind, status, name, oldest, limit)]
    return sorted(found, key=lambda e: e.created_at, reverse=True)[:limit]


async def without_code(app: App, name: str | None) -> list[Replayed]:
    """What has not ended and has no function in this app any more: one of each function, as it would be told of."""
    found = []
    for one in await app.engine.waiting():
        code = app.tasks.get(one.name)
        if (name is None or name == one.name) and (code is None or code.kind != one.kind):
            found.append(Replayed(one.id, one.name, one.key or one.id, _missing(one), missing=True))
    return found


def _missing(one: Waiting) -> str:
    count = "it waits" if one.count == 1 else f"{one.count} wait"
    return (
        f"this code has no {one.kind} {one.name!r}, and {count} on queue {one.queue!r}: nobody would run "
        f"{'it' if one.count == 1 else 'them'}. Keep the function, under name={one.name!r}, until all of them have "
        "ended, or cancel them. Work of another service in this namespace: see --ignore-missing."
    )


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
