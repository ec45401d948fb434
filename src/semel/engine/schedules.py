"""Schedules as engines keep them: the definition and the state as bytes and back, and what engines can do with them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Raw, Struct

from semel.codec import decoder_of
from semel.contract.reconciliation import Difference
from semel.contract.runs import Change, ScheduleInfo, ScheduleRun, SkippedSlots
from semel.contract.slot_policy import Misfire, Overlap, SlotPolicy
from semel.contract.slots import Pause, SlotRun
from semel.contract.timing import Timing
from semel.engine.start_request import RunOptions
from semel.errors import NotDecodable, phrase

if TYPE_CHECKING:
    from semel.engine.backfills import EngineBackfills
    from semel.engine.declarations import Declared

FORMAT: Final = 1
"""Of a stored definition. A reader refuses a newer one instead of losing what it does not know."""
Owner = Literal["code", "file", "api"]


class ScheduleDefinition(Struct, frozen=True):
    """What a schedule runs, when, and what it does with slots that cannot run on time."""

    timing: Timing
    policy: SlotPolicy
    options: RunOptions
    payload: bytes
    """The arguments of its function, as canonical JSON."""
    run_parameter: str | None = None
    """The parameter of its function that gets the Run."""
    concurrency_key: str | None = None
    pause_after_failures: int | None = None
    """After so many failures in a row it pauses itself."""
    finish_by: timedelta | None = None
    """A run that has not ended so long after its slot is told by doctor."""

    def to_bytes(self) -> bytes:
        """JSON that is the same for the same definition."""
        timing, policy = self.timing, self.policy
        return msgspec.json.encode(
            _Stored(
                format=FORMAT,
                options=self.options,
                payload=Raw(self.payload),
                run_parameter=self.run_parameter,
                concurrency_key=self.concurrency_key,
                pause_after_failures=self.pause_after_failures,
                finish_by=self.finish_by,
                **_stored_timing(timing),
                misfire=policy.misfire,
                overlap=policy.overlap,
                grace=policy.grace if isinstance(policy.grace, timedelta) else None,
                max_catchup=policy.max_catchup,
                max_buffer=policy.max_buffer,
                start_deadline=policy.longest_wait,
                others=tuple(_StoredTiming(**_stored_timing(one)) for one in timing.others),
            )
        )

    @staticmethod
    def from_bytes(data: bytes, id: str) -> ScheduleDefinition:
        """The definition of a schedule. NotDecodable: a newer release has written it."""
        try:
            has_jitter = data.count(b'"jitter"') > data.count(_NO_JITTER)
            return _definition(bytes(data), id if has_jitter else "")
        except msgspec.MsgspecError as error:
            raise NotDecodable(
                f"the definition of schedule {id!r} cannot be read ({phrase(error)}): it was made by a newer release. "
                "A worker of that release runs it."
            ) from error


_NO_JITTER: Final = b'"jitter":"P0D"'
"""How a definition without jitter is stored: only with jitter does what is read depend on the id of the schedule."""


class _StoredTiming(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The JSON of one of the other timings of a definition, with the same fields as the first one has there."""

    cron: tuple[str, ...] = ()
    seconds: bool = False
    every: timedelta | None = None
    after: Literal["start", "finish"] = "start"
    at: tuple[datetime, ...] = ()
    timezone: str = "UTC"
    nonexistent: Literal["shift", "skip"] = "shift"
    repeated: Literal["first", "last", "both"] = "first"
    exclude: tuple[str, ...] = ()
    start_at: datetime | None = None
    end_at: datetime | None = None
    jitter: timedelta = timedelta()


class _Stored(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The JSON of a definition; a field that is added needs a default."""

    format: int
    options: RunOptions
    payload: Raw
    run_parameter: str | None = None
    concurrency_key: str | None = None
    pause_after_failures: int | None = None
    finish_by: timedelta | None = None
    cron: tuple[str, ...] = ()
    seconds: bool = False
    every: timedelta | None = None
    after: Literal["start", "finish"] = "start"
    at: tuple[datetime, ...] = ()
    timezone: str = "UTC"
    nonexistent: Literal["shift", "skip"] = "shift"
    repeated: Literal["first", "last", "both"] = "first"
    exclude: tuple[str, ...] = ()
    start_at: datetime | None = None
    end_at: datetime | None = None
    jitter: timedelta = timedelta()
    misfire: Misfire = Misfire.SKIP
    overlap: Overlap = Overlap.SKIP
    grace: timedelta | None = None
    max_catchup: int = SlotPolicy().max_catchup
    max_buffer: int = SlotPolicy().max_buffer
    start_deadline: timedelta | None = None
    others: tuple[_StoredTiming, ...] = ()


def _stored_timing(timing: Timing) -> dict[str, Any]:
    """The fields of a timing by itself."""
    fields = {name: getattr(timing, name) for name in _StoredTiming.__struct_fields__}
    return {**fields, "exclude": tuple(map(str, fields["exclude"]))}


_read: Final = decoder_of(_Stored).decode


@lru_cache(maxsize=10_000)
def _definition(data: bytes, id: str) -> ScheduleDefinition:
    """Schedules with the same definition share one object, and so do equal parts; only jitter depends on their ids."""
    found = _read(data)
    return ScheduleDefinition(
        timing=_timing(found, id, tuple(_timing(one, id) for one in found.others)),
        policy=_shared_policy(
            found.misfire, found.overlap, found.grace, found.max_catchup, found.max_buffer, found.start_deadline
        ),
        options=_shared_options(found.options),
        payload=bytes(found.payload),
        run_parameter=found.run_parameter,
        concurrency_key=found.concurrency_key,
        pause_after_failures=found.pause_after_failures,
        finish_by=found.finish_by,
    )


def _timing(found: _Stored | _StoredTiming, id: str, others: tuple[Timing, ...] = ()) -> Timing:
    """Schedules with the same timing share one object: what it has computed serves all of them."""
    fields = {name: getattr(found, name) for name in _StoredTiming.__struct_fields__}
    return _shared_timing(**fields, schedule_id=id if found.jitter else "", others=others)


_shared_timing = lru_cache(maxsize=10_000)(Timing)
_shared_policy = lru_cache(maxsize=1_000)(SlotPolicy)


@lru_cache(maxsize=1_000)
def _shared_options(options: RunOptions) -> RunOptions:
    return options


class ActiveRun(Struct, frozen=True, omit_defaults=True):
    """A run that had not ended when somebody looked last."""

    execution: str
    slot: datetime
    start_by: datetime | None = None
    """It is dropped unless it has begun by then."""
    window_start: datetime | None = None
    slots: int = 1


class SkippedRange(Struct, frozen=True):
    """The last slots of a schedule that did not run, as long as no run came after them."""

    reason: str
    first: datetime
    count: int
    last: datetime | None = None


class StoredState(Struct, frozen=True, omit_defaults=True):
    """What is known of a schedule besides its cursor and its pause; a field that is added needs a default."""

    active: tuple[ActiveRun, ...] = ()
    line: tuple[SlotRun, ...] = ()
    catching_up: bool = False
    window_from: datetime | None = None
    pauses: tuple[Pause, ...] = ()
    last_end: datetime | None = None
    completed: str | None = None
    """The newest run that completed, as far as was noticed."""
    failures: int = 0
    """Runs that failed, one after the other."""
    skipped: SkippedRange | None = None
    window_slots: int = 0
    stopping: tuple[str, ...] = ()
    """Active runs that were to be stopped for a newer slot. Whoever decided it may have died before it was done."""

    def to_bytes(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)


read_state: Final = decoder_of(StoredState).decode


class ScheduleRow(NamedTuple):
    """A schedule as the tables hold it; times in microseconds."""

    id: str
    version: int
    owner: Owner
    definition: bytes
    cursor: int
    due_at: int | None
    paused_at: int | None
    note: str | None
    state: bytes
    created_at: int
    changed_at: int
    now: int
    """When it was read."""


class EngineSchedules(Protocol):
    """What an engine can do with schedules."""

    @property
    def backfills(self) -> EngineBackfills:
        """Slots of the past that somebody asks for."""

    async def apply(
        self, declared: Sequence[Declared], *, prune: Collection[Owner], take_over: bool, write: bool
    ) -> list[Change]:
        """Create and change schedules and subscriptions, all or none; with `write` False only say what would be done.

        `prune`: those of these owners that are not declared are deleted. `take_over`: those of other owners are changed
        too. VersionChanged: one of them is not `instead_of` any more.
        """

    async def get(self, id: str) -> ScheduleInfo | None:
        """A schedule."""

    async def page(self, after: str, limit: int) -> list[ScheduleInfo]:
        """Schedules, by their ids."""

    async def definition(self, id: str) -> ScheduleDefinition | None:
        """What a schedule runs, and when."""

    async def pause(self, id: str, note: str | None) -> bool:
        """Let no slot fire until it is resumed. False: there is no such schedule."""

    async def resume(self, id: str, note: str | None) -> bool:
        """Let slots fire again. False: there is no such schedule."""

    async def delete(self, id: str) -> bool:
        """Remove a schedule; what it has started goes on. False: there is no such schedule."""

    async def trigger(self, id: str, request_key: str) -> tuple[str, str, bool] | None:
        """Run it now: its key, its execution, and whether that was there already. None: there is no such schedule."""

    async def runs(self, id: str, before: datetime | None, limit: int) -> list[ScheduleRun]:
        """Its runs, newest first."""

    async def find_slot(self, id: str, key: str, slot: datetime | None) -> ScheduleRun | SkippedSlots | None:
        """What became of the slot of a run's key, or of a run that was triggered by hand."""

    async def skipped(self, id: str, before: datetime | None, limit: int) -> list[SkippedSlots]:
        """Its slots that did not run, as ranges, newest first."""

    async def count_late(self) -> tuple[int, float]:
        """How many have been due for over a minute and nobody looked at them; the longest for how many seconds.

        Counted up to 1,000.
        """

    async def reconcile(self, *, fix: bool) -> list[Difference]:
        """What is on record and does not agree with what runs; with `fix` it is repaired, and each change logged."""
