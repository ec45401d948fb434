"""Runs of schedules and for events: how transactions start them, where they are executed, and their records."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Final, Protocol

from semel.contract.decision import Admit
from semel.contract.lifecycle import Status
from semel.contract.slot_policy import Stop
from semel.contract.times import instant, optional
from semel.engine.schedules import ScheduleRow, read_state
from semel.engine.start_request import RunOptions
from semel.engine.ticks import Begun, Ended, Start
from semel.engines.journal import control
from semel.engines.journal.admit import Wanted, admit_many
from semel.engines.journal.lanes import LaneKey, Lanes, lane_key
from semel.engines.journal.notifications import Hub
from semel.engines.journal.script import ConnectionRole, Row, Script, ScriptRunner, SqlBatch, SqlQuery, procedure
from semel.errors import EngineUnavailable
from semel.runtime.retries import retry_unavailable

log = logging.getLogger("semel.schedules")
NOT_BEGUN: Final = b'{"type":"semel.StartDeadline","message":"no worker began it before its start_deadline"}'
TERMINATED: Final = b'{"type":"semel.Terminated","message":"its schedule started the next run"}'


class LaneMissing(EngineUnavailable):
    """A lane that a run needs was not made, or is gone."""


class Runs(Protocol):
    """Where runs are executed: beside their schedules and events, in the same transaction, or elsewhere."""

    asks_first: ClassVar[bool]
    """Must `prepare` see the schedules before a transaction looks at them? Else only what is missing is prepared."""

    async def prepare(self, rows: Sequence[ScheduleRow], options: Iterable[RunOptions], start: bool = True) -> None:
        """Get ready for a transaction that looks at these schedules and starts runs with these options.

        What was decided before and not started is started first, unless `start` is False.
        """

    def ends(self, rows: Sequence[ScheduleRow]) -> Script[Ended]:
        """How the runs stand that were active when somebody looked last."""

    async def find_going(self, store: ScriptRunner, rows: Sequence[ScheduleRow]) -> Collection[str]:
        """Which of the runs that were active when somebody looked last have not ended; outside of a transaction."""

    def drop_unbegun(self, executions: Sequence[str]) -> Script[Begun]:
        """Cancel those of these runs that have not begun; of which it is known whether they have."""

    def outputs_of(self, executions: list[str]) -> Script[dict[str, bytes | None]]:
        """What runs gave, as far as it is kept."""

    def find_lanes(self, starts: Sequence[Start]) -> dict[int, int] | None:
        """The lanes that starts go to, by the identity of their options. None: they are started elsewhere."""

    def start(self, starts: Sequence[Start]) -> Script[list[tuple[str, bytes | None]]]:
        """The executions of runs; with a request if they are to be started afterwards.

        One whose id is not that of its start and that has no request was there before.
        """

    def stop(self, execution: str, how: Stop) -> Script[None]:
        """Make room for the next run."""

    async def follow_up(self, starts: Sequence[Start]) -> None:
        """The transaction is committed: see to it that what it started begins."""

    async def cancel(self, executions: Sequence[str]) -> None:
        """The transaction is committed: cancel runs that it could not cancel itself, and tell who runs them."""

    async def start_pending(self) -> None:
        """Start runs that were decided by somebody who died before they were started."""

    def start_over(self) -> None:
        """A lane was missing: forget what is remembered of lanes."""

    async def look_at(self, executions: Collection[str]) -> None:
        """Get ready for a transaction that asks how these executions of runs stand."""

    def statuses(self, executions: Collection[str]) -> Script[Mapping[str, Status | None]]:
        """How executions of runs stand. None, or missing: it is not known any more how it ended."""

    async def find_unrecorded(self, store: ScriptRunner, since: int, limit: int) -> list[tuple[str, str]]:
        """Keys and executions of slots that were started since then and have no run on record."""


@procedure(ConnectionRole.READ, atomic=True)
def unrecorded_executions(namespace: str, since: int, limit: int) -> Script[list[tuple[str, str]]]:
    """Keys and executions beside the schedules that have the form of a run and have none on record."""
    return [(key, id_) for key, id_ in (yield SqlQuery("unrecorded_executions", (namespace, since, limit)))]


@procedure(ConnectionRole.READ, atomic=True)
def live_executions(ids: list[str]) -> Script[set[str]]:
    """Which of these executions beside the schedules have not ended."""
    found = yield SqlBatch("run_states", [(id_,) for id_ in ids])
    return {id_ for id_, status, _ in found if Status(status).live}


class JournalRuns:
    """Runs beside their schedules and events: what is decided and what is started are one transaction."""

    asks_first: ClassVar[bool] = False

    def __init__(self, namespace: str, lanes: Lanes, hub: Hub) -> None:
        self._namespace = namespace
        self._lanes = lanes
        self._hub = hub
        self._made: dict[LaneKey, int] = {}

    async def prepare(self, rows: Sequence[ScheduleRow], options: Iterable[RunOptions], start: bool = True) -> None:
        """See Runs. A lane that is made in a long transaction would block others, so they are made beforehand."""
        for one in {id(one): one for one in options}.values():
            self._made[lane_key(one)] = await self._lanes.of(one)

    def ends(self, rows: Sequence[ScheduleRow]) -> Script[Ended]:
        """See Runs."""
        ids = [(run.execution,) for row in rows for run in read_state(row.state).active]
        if not ids:
            return {}
        found = yield SqlBatch("run_states", ids)
        return {id_: (Status(status), optional(at)) for id_, status, at in found}

    async def find_going(self, store: ScriptRunner, rows: Sequence[ScheduleRow]) -> Collection[str]:
        """See Runs."""
        ids = [run.execution for row in rows for run in read_state(row.state).active]
        return await retry_unavailable(store.run, live_executions, ids) if ids else ()

    def drop_unbegun(self, executions: Sequence[str]) -> Script[Begun]:
        """See Runs. Whoever takes a row first, this or a claim, has it."""
        begun = {}
        for execution in executions:
            dropped = yield SqlQuery("withdraw_unbegun", (execution,))
            begun[execution] = not dropped
            if dropped:
                yield SqlBatch("end", [(execution, Status.CANCELLED.value, NOT_BEGUN, 0)])
                yield from control.close([execution])
        return begun

    def outputs_of(self, executions: list[str]) -> Script[dict[str, bytes | None]]:
        """See Runs."""
        found = yield SqlBatch("outputs_of", [(execution,) for execution in executions])
        return {row[0]: row[1] for row in found}

    def start(self, starts: Sequence[Start]) -> Script[list[tuple[str, bytes | None]]]:
        """See Runs. A slot or an event that has run is not run again."""
        lanes = self.find_lanes(starts)
        wanted = [Wanted(start.request, lanes[id(start.request.options)]) for start in starts]
        executions: list[tuple[str, bytes | None]] = []
        for start, decided in zip(starts, (yield from admit_many.script(self._namespace, wanted)), strict=True):
            if decided is None:
                raise LaneMissing(f"the lane of activity {start.schedule!r} is gone; it is looked at again.")
            decision = decided.decision
            if isinstance(decision, Admit):
                executions.append((start.request.id, None))
                continue
            taken = "activity %s does not run its function for %s: the key %s belongs to execution %s already"
            log.warning(taken, start.schedule, start.slot.isoformat(), start.request.key, decision.prior.id)
            executions.append((decision.prior.id, None))
        return executions

    def find_lanes(self, starts: Sequence[Start]) -> dict[int, int]:
        """See Runs. Most of them share their options."""
        lanes: dict[int, int] = {}
        for start in starts:
            options = start.request.options
            if id(options) not in lanes:
                lane = self._made.get(lane_key(options))
                if lane is None:
                    raise LaneMissing(f"activity {start.schedule!r} has no lane yet; it is looked at again.")
                lanes[id(options)] = lane
        return lanes

    def stop(self, execution: str, how: Stop) -> Script[None]:
        """See Runs. A task cannot be terminated, so it is cancelled."""
        found = yield SqlQuery("flow_kind", (self._namespace, execution))
        if how is Stop.TERMINATE and found and found[0][0] != "task":
            yield from control.terminate.script(self._namespace, execution, TERMINATED)
        else:
            yield from control.cancel.script(self._namespace, execution)

    async def follow_up(self, starts: Sequence[Start]) -> None:
        """See Runs. The database tells other processes."""
        self._hub.work(set(self.find_lanes(starts).values()))

    async def cancel(self, executions: Sequence[str]) -> None:
        """See Runs. They are cancelled in the same transaction, and the database tells other processes."""
        for execution in executions:
            self._hub.cancel(execution)

    async def start_pending(self) -> None:
        """See Runs. What is decided is started in the same transaction."""

    def start_over(self) -> None:
        """See Runs."""
        self._made.clear()
        self._lanes.forget_all()

    async def look_at(self, executions: Collection[str]) -> None:
        """See Runs. They are beside their schedules."""

    def statuses(self, executions: Collection[str]) -> Script[Mapping[str, Status | None]]:
        """See Runs."""
        if not executions:
            return {}
        found = yield SqlBatch("run_states", [(id_,) for id_ in executions])
        return {id_: Status(status) for id_, status, _ in found}

    async def find_unrecorded(self, store: ScriptRunner, since: int, limit: int) -> list[tuple[str, str]]:
        """See Runs."""
        return await retry_unavailable(store.run, unrecorded_executions, self._namespace, since, limit)


def run_row(start: Start, execution: str, request: bytes | None) -> Row:
    """A run that is started, as a row of the statement `add_runs`."""
    begin = None if start.window_start is None else instant(start.window_start)
    return (
        start.request.key,
        start.generation,
        start.schedule,
        instant(start.slot),
        start.why.value,
        execution,
        start.version,
        begin,
        start.slots,
        request,
    )
