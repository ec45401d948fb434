"""Schedules and events of a cluster: in the records database, by a journal's scripts; their runs are on the cluster.

What a look at schedules decides, or an event asks for, is committed with the requests for its runs. They are started
afterwards, each under the same request id, by whoever comes first: a worker that dies in between leaves them to the
next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Final

from semel.contract.lifecycle import Status
from semel.contract.records import Execution
from semel.contract.slot_policy import Overlap, Stop
from semel.contract.times import from_micros, instant, micros
from semel.engine.failure_log import RepeatedFailures
from semel.engine.schedules import ScheduleDefinition, ScheduleRow, read_state
from semel.engine.start_request import RunOptions, StartRequest
from semel.engine.ticks import Begun, Ended, Start, last_completed, overdue_runs
from semel.engines.journal.events import StoredEvents
from semel.engines.journal.schedule_health import CLOCKS_DIFFER
from semel.engines.journal.schedule_scripts import get, recorded_keys
from semel.engines.journal.schedules import StoredSchedules
from semel.engines.journal.script import ConnectionRole, Row, Script, ScriptRunner, SqlBatch, SqlQuery, Store, procedure
from semel.engines.temporal import control
from semel.engines.temporal.cluster import Cluster
from semel.engines.temporal.executions import Holder, Seen
from semel.engines.temporal.memo import DROPPED
from semel.engines.temporal.names import workflow_id
from semel.errors import EngineUnavailable, SemelError
from semel.settings import Settings

log = logging.getLogger("semel.schedules")
AT_ONCE: Final = 100
"""Runs that are started before the next ones are read."""
ASKED_AT_ONCE: Final = 20
"""Executions that the cluster is asked about at once."""
LISTED_AT_ONCE: Final = 500
"""Executions whose runs are looked up together."""
STOPPED: Final = "its schedule started the next run"


@procedure(ConnectionRole.READ, atomic=True)
def unstarted_runs(namespace: str, limit: int) -> Script[list[Row]]:
    """Runs that are on record and not yet started."""
    return (yield SqlQuery("unstarted_runs", (namespace, limit)))


@procedure(ConnectionRole.CONTROL, atomic=True)
def note_started(namespace: str, key: str, generation: int, execution: str) -> Script[None]:
    """Write down that a run has been started."""
    yield SqlQuery("run_started", (namespace, key, generation, execution))


@procedure(ConnectionRole.READ, atomic=True)
def first_executions(namespace: str, keys: list[str]) -> Script[dict[str, str | None]]:
    """The executions of runs, by their keys; None: it was not started yet. Those that run a slot again are others."""
    rows = yield SqlBatch("runs_by_generation", [(key, 0) for key in keys], (namespace,))
    return {key: execution if started else None for key, _, execution, started in rows}


def make_schedules(
    cluster: Cluster, store: Store, settings: Settings, on_change: Callable[[], None]
) -> StoredSchedules:
    """The schedules of a cluster's namespace."""
    return StoredSchedules(store, cluster.namespace, ClusterRuns(cluster, store), settings, on_change)


def make_events(
    cluster: Cluster,
    store: Store,
    settings: Settings,
    find: Callable[[str], Awaitable[Execution | None]],
    on_change: Callable[[], None],
) -> StoredEvents:
    """The events of a cluster's namespace."""
    where = ClusterRuns(cluster, store)
    return StoredEvents(store, cluster.namespace, where, settings, find, on_change, starts_later=True)


class ClusterRuns:
    """Runs on the cluster. While they are active they are known by their ids in Temporal. See Runs.

    A slot that is run again has the same id there, so they are looked at by the execution that is on record.
    """

    asks_first: ClassVar[bool] = True

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store
        self._ended: dict[str, tuple[Status, datetime | None]] = {}
        self._outputs: dict[str, bytes | None] = {}
        self._statuses: dict[str, Status | None] = {}
        self._executions: dict[str, str | None] = {}
        self._stops: list[tuple[str, Stop]] = []
        self._begun: dict[str, bool] = {}
        self._drops: list[str] = []
        self._failures = RepeatedFailures()

    async def prepare(self, rows: Sequence[ScheduleRow], options: Iterable[RunOptions], start: bool = True) -> None:
        """Start what is to be started, and ask the cluster how the active runs of these schedules stand."""
        if start and rows:
            await self.start_pending()
        self._ended.clear()
        self._outputs.clear()
        self._stops.clear()
        self._begun.clear()
        self._drops.clear()
        states = [read_state(row.state) for row in rows]
        ids = [run.execution for state in states for run in state.active]
        await self._read_executions([*ids, *(state.completed for state in states if state.completed is not None)])
        for row, state in zip(rows, states, strict=True):
            for run in state.active:
                self._ended[run.execution] = await self._look(run.execution)
            for run in overdue_runs(row):
                certain = row.now - instant(run.start_by or run.slot) > micros(CLOCKS_DIFFER)
                if (begun := await self._has_begun(run.execution, certain)) is not None:
                    self._begun[run.execution] = begun
            overlap = ScheduleDefinition.from_bytes(row.definition, row.id).policy.overlap
            how = Stop.TERMINATE if overlap is Overlap.TERMINATE_OTHER else Stop.CANCEL
            self._stops += [(one, how) for one in state.stopping if one in self._ended and self._ended[one][0].live]
            completed = last_completed(row, self._ended)
            if completed is not None:
                self._outputs[completed] = await self._output(completed)

    async def find_going(self, store: ScriptRunner, rows: Sequence[ScheduleRow]) -> Collection[str]:
        """See Runs. While the cluster does not answer, they are as somebody saw them last."""
        ids = [run.execution for row in rows for run in read_state(row.state).active]
        if not ids:
            return ()
        executions = await store.run(first_executions, self._cluster.namespace, ids)
        going = [id_ for id_ in ids if executions.get(id_, "") is None]
        started = [id_ for id_ in ids if id_ not in going]
        try:
            for at in range(0, len(started), ASKED_AT_ONCE):
                some = started[at : at + ASKED_AT_ONCE]
                seen = await asyncio.gather(*(self._find(id_, executions) for id_ in some))
                going += [id_ for id_, one in zip(some, seen, strict=True) if one is not None and one.live]
        except EngineUnavailable:
            return ids
        return going

    async def _read_executions(self, ids: Sequence[str]) -> None:
        """Read which executions the runs of schedules have that are known by these ids."""
        self._executions = await self._store.run(first_executions, self._cluster.namespace, list(ids)) if ids else {}

    async def _find(self, id: str, executions: Mapping[str, str | None] | None = None) -> Seen | None:
        """A run of a schedule by its id in Temporal."""
        known, reader = self._executions if executions is None else executions, self._cluster.reader
        execution = known.get(id)
        return await (reader.describe(id) if execution is None else reader.find(execution))

    async def _look(self, id: str) -> tuple[Status, datetime | None]:
        seen = await self._find(id)
        if seen is None:  # past the retention of the namespace
            return Status.CANCELLED, None
        execution = await self._cluster.execution_of(seen)
        return execution.status, execution.finished_at

    async def _has_begun(self, id: str, certain: bool) -> bool | None:
        """Whether a run that is past its start deadline has begun; None: that is not known yet.

        What begins after its deadline drops itself, by the clock of the cluster. So once it is `certain` that the
        deadline has passed on that clock too, what has not begun never will.
        """
        seen = await self._cluster.reader.describe(id)
        if seen is None:
            return False if certain else None  # nobody could start it, or it is long forgotten
        if DROPPED in seen.memo:
            return False
        if not seen.live:
            return True
        holder = await self._cluster.reader.holder(seen)
        if holder is Holder.WORKER:
            return True
        return False if certain and holder is Holder.NOBODY else None

    def drop_unbegun(self, executions: Sequence[str]) -> Script[Begun]:
        """As the cluster said. They are cancelled once this is committed, and drop themselves if that is not done."""
        yield from ()
        begun = {id_: self._begun[id_] for id_ in executions if id_ in self._begun}
        self._drops += [id_ for id_, has_begun in begun.items() if not has_begun]
        return begun

    async def _output(self, id: str) -> bytes | None:
        seen = await self._find(id)
        outcome = None if seen is None else await self._cluster.outcome(seen.id, 0)
        return None if outcome is None else outcome.output

    def ends(self, rows: Sequence[ScheduleRow]) -> Script[Ended]:
        """As the cluster said; what it was not asked about was started meanwhile, by another worker."""
        yield from ()
        active = (run.execution for row in rows for run in read_state(row.state).active)
        return {id_: self._ended.get(id_, (Status.RUNNING, None)) for id_ in active}

    def outputs_of(self, executions: list[str]) -> Script[dict[str, bytes | None]]:
        """See Runs."""
        yield from ()
        return self._outputs

    def find_lanes(self, starts: Sequence[Start]) -> None:
        """There are none."""

    def start(self, starts: Sequence[Start]) -> Script[list[tuple[str, bytes | None]]]:
        """To be started once this is committed."""
        yield from ()
        return [
            (workflow_id(start.request.options.kind, start.request.key or ""), start.request.to_bytes())
            for start in starts
        ]

    def stop(self, execution: str, how: Stop) -> Script[None]:
        """To be stopped once this is committed."""
        yield from ()
        self._stops.append((execution, how))

    async def follow_up(self, starts: Sequence[Start]) -> None:
        """See Runs."""
        while self._stops:
            await self._stop(*self._stops.pop())
        while self._drops:
            await self._stop(self._drops.pop(), Stop.CANCEL)
        await self._start_runs(recovered=False)

    async def cancel(self, executions: Sequence[str]) -> None:
        """See Runs. What is recorded and not started is known by its id in Temporal."""
        for id_ in executions:
            reader = self._cluster.reader
            seen = await reader.find(id_) or await reader.describe(id_)
            if seen is not None and seen.live:
                await self._cluster.cancel(seen.id)

    async def start_pending(self) -> None:
        """See Runs. Whoever decided it may have died before other runs were stopped for it, too."""
        await self._start_runs(recovered=True)

    async def _stop(self, id: str, how: Stop) -> None:
        seen = await self._find(id)
        if seen is None or not seen.live:
            return
        if how is Stop.TERMINATE and seen.card.kind != "task":
            await control.terminate(self._cluster.client, self._cluster.reader, seen.id, STOPPED)
        else:
            await self._cluster.cancel(seen.id)

    async def _start_runs(self, *, recovered: bool) -> None:
        """Start every run that is on record and not yet started; one that is refused does not hold up the others."""
        failed: set[str] = set()
        while True:
            rows = await self._store.run(unstarted_runs, self._cluster.namespace, AT_ONCE + len(failed))
            left = [row for row in rows if row[0] not in failed]
            for key, generation, schedule, request in left:
                if recovered:
                    await self._stop_for(schedule, key)
                try:
                    admission = await self._cluster.start(StartRequest.from_bytes(bytes(request)))
                except EngineUnavailable:
                    raise
                except SemelError as error:
                    failed.add(key)
                    self._failures.log(log, key, error, f"run {key} could not be started; it is tried again")
                    continue
                await self._store.run(note_started, self._cluster.namespace, key, generation, admission.id)
            if len(left) < AT_ONCE:
                return

    async def _stop_for(self, schedule: str, key: str) -> None:
        """Terminate the runs in whose place a run is started, if that is what its schedule does."""
        row = await self._store.run(get, self._cluster.namespace, schedule)
        if row is None:
            return
        definition = ScheduleDefinition.from_bytes(row.definition, row.id)
        if definition.policy.overlap is Overlap.TERMINATE_OTHER:
            own = workflow_id(definition.options.kind, key)
            active = [run.execution for run in read_state(row.state).active]
            others = active[: active.index(own)] if own in active else []
            await self._read_executions(others)
            for other in others:
                await self._stop(other, Stop.TERMINATE)

    def start_over(self) -> None:
        """There are no lanes."""

    async def look_at(self, executions: Collection[str]) -> None:
        """Ask the cluster, and where it has forgotten them the records, how some executions stand."""
        self._statuses.clear()
        waiting = list(executions)
        while waiting:
            asked, waiting = waiting[:ASKED_AT_ONCE], waiting[ASKED_AT_ONCE:]
            self._statuses.update(zip(asked, await asyncio.gather(*map(self._status, asked)), strict=True))

    async def _status(self, execution: str) -> Status | None:
        seen = await self._cluster.reader.find(execution)
        found = await self._cluster.records.get(execution) if seen is None else await self._cluster.execution_of(seen)
        return None if found is None else found.status

    def statuses(self, executions: Collection[str]) -> Script[Mapping[str, Status | None]]:
        """As the cluster said; what it was not asked about was started meanwhile, by another worker."""
        yield from ()
        return {id_: self._statuses.get(id_, Status.RUNNING) for id_ in executions}

    async def find_unrecorded(self, store: ScriptRunner, since: int, limit: int) -> list[tuple[str, str]]:
        """See Runs. The cluster's list may lag behind by a moment."""
        begin = from_micros(since).isoformat()
        waiting: dict[str, str] = {}
        found: list[tuple[str, str]] = []
        async for seen in self._cluster.reader.query(f"WorkflowId STARTS_WITH 'activity-' AND StartTime > '{begin}'"):
            waiting.setdefault(seen.info.execution.workflow_id, seen.id)
            if len(waiting) >= LISTED_AT_ONCE:
                found += await self._leave_recorded(store, waiting)
                waiting.clear()
                if len(found) >= limit:
                    return found[:limit]
        return (found + await self._leave_recorded(store, waiting))[:limit]

    async def _leave_recorded(self, store: ScriptRunner, listed: Mapping[str, str]) -> list[tuple[str, str]]:
        known = await store.run(recorded_keys, self._cluster.namespace, list(listed)) if listed else set()
        return [(key, execution) for key, execution in listed.items() if key not in known]
