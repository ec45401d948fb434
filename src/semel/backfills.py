"""Backfills of an app's schedules: slots of the past that somebody asks for, as objects that outlive their process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Literal, TypedDict
from uuid import uuid4

from semel.contract.backfill import (
    BackfillInfo,
    BackfillStatus,
    check_max_active,
    check_rerun,
)
from semel.contract.durations import Duration, parse_duration
from semel.contract.keys import check_key, check_text
from semel.contract.timing import to_utc
from semel.define.context import current_or_none
from semel.engine.backfills import BackfillRequest, EngineBackfills
from semel.engine.schedules import EngineSchedules
from semel.errors import Forbidden, InvalidValue, NotFound
from semel.triggers.ids import check_activity_id

ID_LENGTH = 200
POLL = 0.25
"""Seconds between two looks of who waits for a backfill."""


class BackfillOptions(TypedDict, total=False):
    """Options of a backfill. See `Schedules.backfill`."""

    rerun: Literal["missing", "failed", "all"]
    force: bool
    max_active: int
    request_key: str | None


class Backfills:
    """The backfills of an app: `app.schedules.backfills`."""

    def __init__(self, engine: Callable[[], Awaitable[EngineSchedules]]) -> None:
        self._schedules = engine

    async def get(self, id: str) -> BackfillInfo:
        """A backfill. NotFound if there is none."""
        found = await (await self._engine()).get(id)
        if found is None:
            raise _missing(id)
        return found

    async def list(self, schedule: str | None = None, *, limit: int = 50) -> Sequence[BackfillInfo]:
        """Backfills, newest first: those of one schedule, or all."""
        if not 1 <= limit <= 1000:
            raise InvalidValue(f"limit={limit!r}: give a whole number from 1 to 1000.")
        return await (await self._engine()).list(None if schedule is None else check_activity_id(schedule), limit)

    async def pause(self, id: str, note: str | None = None) -> BackfillInfo:
        """Start no more runs until it is resumed; those under way go on. One that has ended stays as it is."""
        return await self._change("pause", id, BackfillStatus.PAUSED, (BackfillStatus.RUNNING,), note)

    async def resume(self, id: str, note: str | None = None) -> BackfillInfo:
        """Go on where it was paused. One that is not paused stays as it is."""
        return await self._change("resume", id, BackfillStatus.RUNNING, (BackfillStatus.PAUSED,), note)

    async def cancel(self, id: str, note: str | None = None) -> BackfillInfo:
        """Start no more runs; those under way go on. One that has ended stays as it is."""
        open_ = (BackfillStatus.RUNNING, BackfillStatus.PAUSED)
        return await self._change("cancel", id, BackfillStatus.CANCELLED, open_, note)

    async def wait(self, id: str, timeout: Duration | None = None) -> BackfillInfo:
        """Wait until a backfill has completed or was cancelled. TimeoutError: it has not in this time."""
        within = None if timeout is None else parse_duration(timeout, "timeout").total_seconds()
        async with asyncio.timeout(within):
            while True:
                found = await self.get(id)
                if not found.status.open and not found.running:
                    return found
                await asyncio.sleep(POLL)

    async def _change(
        self, verb: str, id: str, status: BackfillStatus, among: Sequence[BackfillStatus], note: str | None
    ) -> BackfillInfo:
        refuse_in_run(f"backfills.{verb}()")
        note = None if note is None else check_text(note, "note")
        found = await (await self._engine()).change(id, status, among, note)
        if found is None:
            raise _missing(id)
        return found

    async def _engine(self) -> EngineBackfills:
        return (await self._schedules()).backfills


def make_request(id: str, start: datetime, end: datetime, options: BackfillOptions) -> BackfillRequest:
    """A backfill from what people write. InvalidValue, InvalidKey, TypeError: what is wrong with it."""
    unknown = options.keys() - BackfillOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"a backfill has no option {min(unknown)!r}: use rerun, force, max_active or request_key.")
    key = options.get("request_key")
    return BackfillRequest(
        id=uuid4().hex[:12] if key is None else check_key(key, "request key", ID_LENGTH),
        schedule=id,
        start=to_utc(start, "start"),
        end=to_utc(end, "end"),
        rerun=check_rerun(options.get("rerun", "missing")),
        force=bool(options.get("force", False)),
        max_active=check_max_active(options.get("max_active", 1)),
    )


def _missing(id: str) -> NotFound:
    return NotFound(f"there is no backfill {id!r}. See: semel backfills list")


def missing_schedule(id: str) -> NotFound:
    """The error about a schedule that is not there."""
    return NotFound(f"there is no schedule {id!r}. See: semel schedules list")


def refuse_in_run(verb: str) -> None:
    """Tasks and workflows run what is scheduled, and do not change schedules: an API or an operator does."""
    running = current_or_none()
    if running is not None:
        raise Forbidden(
            f"{verb} in {running.kind} {running.name!r}: tasks and workflows do not change schedules. Do it where your "
            "program answers requests, or with: semel schedules",
            what=verb,
        )
