"""Sweepers of an app: functions that find stuck business rows, whose executions are started again under their keys."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast

import msgspec

from semel.codec import converter_of
from semel.contract.decision import Admit, Join, Refuse
from semel.contract.durations import format_duration
from semel.contract.fingerprint import differences
from semel.contract.keys import check_key, check_name
from semel.contract.lifecycle import RELEASED, Status
from semel.contract.records import Execution
from semel.contract.runs import Run, ScheduleInfo
from semel.contract.sweeps import MOST_NAMED, SweeperState, SweepOutcome, SweepReport, SweptRow, count_outcomes
from semel.define.sweeper import LOOKED_AT, TASK_PREFIX, Stuck, Sweep, Sweeper, SweeperOptions
from semel.define.task import AsyncTask, Call, Task
from semel.define.workflow import Workflow, WorkflowCall
from semel.engine.conflicts import describe_differences
from semel.engine.events import WorkerEvent, WorkerEventType
from semel.engine.protocol import Admission, EngineVerbs, Finding
from semel.engine.requests import foreign_request, request, workflow_request
from semel.engine.start_request import StartRequest
from semel.errors import (
    ConfigError,
    DefinitionError,
    EngineError,
    ExecutionTimedOut,
    InvalidValue,
    NotFound,
    OutcomeError,
    ResultExpired,
    ResultPending,
    SemelError,
    phrase,
)
from semel.handle import Handle, refusal
from semel.runtime.stuck_rows import close_rows, open_rows

if TYPE_CHECKING:
    from semel.app import App

log = logging.getLogger("semel.sweepers")
F = TypeVar("F", bound=Callable[..., Any])
BATCH: Final = 100
"""So many rows share a commit, where the engine has commits."""
TRIES: Final = 3
"""After so many rows in a row that the engine does not answer, the run is given up and tried again later."""
LAST_RUNS: Final = 5
"""So many of the newest runs are looked at for the last ones that have ended."""
LONGEST: Final = 300
"""Characters of what is said about one row."""
read_report: Final = converter_of(SweepReport)
"""The report of a run, from the plain data that its result is."""
_LEVELS: Final = {
    SweepOutcome.STARTED: logging.WARNING,
    SweepOutcome.UNDER_WAY: logging.INFO,
    SweepOutcome.COMPLETED: logging.WARNING,
    SweepOutcome.ERROR: logging.ERROR,
    SweepOutcome.RECENT: logging.DEBUG,
}


class Sweepers:
    """The sweepers of an app: `app.sweepers`."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._declared: dict[str, Sweeper] = {}

    def declare(self, name: str, function: Callable[..., Any], options: SweeperOptions) -> None:
        """Remember a sweeper that code declares, with its task and its schedule; `apply` publishes it."""
        name = check_name(name, "sweeper")
        if name in self._declared:
            raise DefinitionError(f"two sweepers are called {name!r}: rename one of them.")
        sweeper = Sweeper(name, function, options)
        task = self._make_task(sweeper)
        self._app.schedules.declare(name, task, (), cast(Any, sweeper.schedule))
        self._app.tasks.add(task)
        self._declared[name] = sweeper

    def _make_task(self, sweeper: Sweeper) -> Task[..., Any]:
        async def sweep(run: Run) -> SweepReport:
            return await self._perform(sweeper, run.scheduled_for, dry_run=False)

        sweep.__module__, sweep.__qualname__ = sweeper.function.__module__, sweeper.function.__qualname__
        return AsyncTask(
            sweep,
            name=sweeper.task_name,
            queue=sweeper.schedule.get("queue", "default"),
            retry=TRIES,
            timeout=sweeper.timeout,
            priority=0,
            retention=sweeper.retention,
            dedup_window=None,
            rate_limit=None,
            concurrency_key=None,
            key_scope="namespace",
        )

    @property
    def declared(self) -> list[str]:
        """The names of the sweepers that code declares."""
        return [*self._declared]

    async def run(self, name: str, *, dry_run: bool) -> SweepReport:
        """See `app.sweep`."""
        sweeper = self._declared.get(name)
        if sweeper is None:
            there = ", ".join(self._declared) or "none"
            raise NotFound(f"this app has no sweeper {name!r}. There are: {there}.")
        now = datetime.fromtimestamp(self._app._opener.now(), UTC)
        limit = asyncio.timeout(sweeper.timeout.total_seconds())
        try:
            async with limit:
                return await self._perform(sweeper, now, dry_run=dry_run)
        except TimeoutError as error:
            if not limit.expired():  # it is one of the function's own
                raise
            raise ExecutionTimedOut(
                f"sweeper {name!r} did not end within its timeout of {format_duration(sweeper.timeout)}. What it had "
                "started stays started. Give it a smaller limit or a longer timeout.",
                execution_id="",
            ) from error

    async def _perform(self, sweeper: Sweeper, now: datetime, *, dry_run: bool) -> SweepReport:
        sweep = Sweep(sweeper.name, now - sweeper.older_than, sweeper.limit, dry_run)
        run = _Run(self._app, sweeper, sweep)
        rows = open_rows(sweeper.function, sweep)
        try:
            error = await run.go_through(rows.take)
        finally:
            await close_rows(rows, sweeper.name)
            run.tell()
        if error is not None:
            error.add_note(f"Sweeper {sweeper.name!r} was at row {run.seen + 1}; what came before it was dealt with.")
            raise error
        return run.report()

    # The runs of sweepers whose schedules were applied.

    async def list(self) -> Sequence[SweeperState]:
        """Sweepers whose schedules were applied, with what their last runs reported, by their names."""
        schedules = [one for one in await self._app.schedules.list() if is_sweeper(one)]
        return [await self._state(one) for one in schedules]

    async def own(self) -> Sequence[SweeperState]:
        """The same for those that this app's code declares, without a look at all other schedules."""
        found = []
        for name in self._declared:
            with suppress(NotFound):
                found.append(await self.get(name))
        return found

    async def get(self, name: str) -> SweeperState:
        """A sweeper whose schedule was applied. NotFound if there is none."""
        info = await self._app.schedules.get(name)
        if not is_sweeper(info):
            raise NotFound(f"schedule {name!r} runs {info.kind} {info.name}, and is no sweeper.")
        return await self._state(info)

    async def _state(self, info: ScheduleInfo) -> SweeperState:
        ended: list[tuple[datetime, Status, SweepReport | None, str]] = []
        for run in await self._app.schedules.runs(info.id, limit=LAST_RUNS):
            found = await _read_report(Handle(self._app, run.execution, info.name, run.key, duplicate=False))
            if found is not None:
                ended.append((run.scheduled_for, *found))
            if len(ended) == 2:
                break
        if not ended:
            return SweeperState(info.id, info.queue, info.next_slot)
        at, status, report, error = ended[0]
        before = ended[1][2] if len(ended) > 1 else None
        return SweeperState(info.id, info.queue, info.next_slot, at, status, report, error, before)

    async def examine(self) -> Sequence[Finding]:
        """One finding for each sweeper, for `semel doctor`."""
        try:
            return [describe_state(one) for one in await self.list()]
        except (ConfigError, EngineError):
            return []  # what is wrong with the engine is a finding of its own


def is_sweeper(info: ScheduleInfo) -> bool:
    """Does this schedule run a sweeper?"""
    return info.name.startswith(TASK_PREFIX)


def describe_state(state: SweeperState) -> Finding:
    """What doctor says of a sweeper: red if its last run failed, or if rows are stuck that it cannot recover."""
    what = f"sweeper {state.name}"
    if state.last_run is None:
        return Finding(True, what, "it has not run yet")
    when = f"{state.last_run:%Y-%m-%d %H:%M:%S} UTC"
    report = state.report
    if report is None:
        if state.status is Status.COMPLETED:
            return Finding(True, what, f"last run {when}; its report is past its retention")
        return Finding(
            False, what, f"last run {when} {state.status}: {state.error}. See: semel schedules show {state.name}"
        )
    told = f"last run {when}: {report}"
    named = ", ".join(str(row) for row in report.rows)
    if report.completed or report.error:
        return Finding(False, what, f"{told}: {named}. See: semel explain KEY")
    if state.lasting:
        return Finding(False, what, f"{told}. Rows were stuck in the run before it as well")
    return Finding(not report.more, what, told)


async def _read_report(handle: Handle[Any]) -> tuple[Status, SweepReport | None, str] | None:
    """How a run has ended, what it reported, and why it failed; None: it has not ended."""
    try:
        data = await handle.output(timeout=0)
        return Status.COMPLETED, read_report(data), ""
    except ResultPending:
        return None
    except ResultExpired:
        return Status.COMPLETED, None, ""
    except msgspec.ValidationError as error:
        return Status.COMPLETED, None, phrase(error)
    except OutcomeError as error:
        try:
            status = await handle.status()
        except NotFound:
            return None
        return status, None, error.message
    except NotFound:
        return None


class _Run:
    """One run of a sweeper."""

    def __init__(self, app: App, sweeper: Sweeper, sweep: Sweep) -> None:
        self._app = app
        self._sweeper = sweeper
        self._sweep = sweep
        self._counts: Counter[SweepOutcome] = Counter()
        self._rows: list[SweptRow] = []
        self._more = False
        self.seen = 0

    async def go_through(self, take: Callable[[int], Any]) -> Exception | None:
        """Deal with all rows, up to the limit; what the function raised after the last one of them."""
        verbs = cast("EngineVerbs", await self._app._ready_verbs(None))  # without a connection: the engine
        most = self._sweeper.limit * LOOKED_AT
        while True:
            wanted = min(BATCH, self._sweeper.limit - self._counts[SweepOutcome.STARTED], most - self.seen)
            rows, error = await take(wanted)
            self.seen += len(rows)
            await self._deal_with(verbs, rows)
            if error is not None or len(rows) < wanted:
                return cast("Exception | None", error)
            if self._counts[SweepOutcome.STARTED] >= self._sweeper.limit or self.seen >= most:
                self._more = True
                return None

    async def _deal_with(self, verbs: EngineVerbs, rows: Sequence[Any]) -> None:
        starts = []
        for row in rows:
            try:
                if self._is_recent(row):
                    self._note(SweptRow(row.key, _name_of(row.function), SweepOutcome.RECENT))
                else:
                    starts.append(self._request(row))
            except Exception as error:  # objects of people's own may raise anything
                self._note(_unusable(row, error))
        if self._sweep.dry_run:
            for start in starts:
                self._note(await self._foretell(start))
            return
        for start, answer in zip(starts, await _start_each(verbs, starts), strict=True):
            self._note(await self._judge(verbs, start, answer))

    def _is_recent(self, row: Any) -> bool:
        if not isinstance(row, Stuck):
            raise InvalidValue(f"{row!r:.100} is no semel.Stuck: yield semel.Stuck(key, function, *arguments).")
        if row.since is None:
            return False
        if not isinstance(row.since, datetime) or row.since.tzinfo is None:
            raise InvalidValue(f"since={row.since!r} has no time zone: give one, such as tzinfo=UTC.")
        return row.since >= self._sweep.before

    def _request(self, row: Stuck) -> StartRequest:
        settings, function = self._app.settings, row.function
        options: dict[str, Any] = {"reuse": self._sweeper.reuse}
        if isinstance(function, str):
            able, by_name = self._app.engine.capabilities, {"task_queue": row.task_queue}
            return foreign_request(settings, able, function, row.args, by_name, workflow_id=row.key, **options)
        if isinstance(function, Workflow | WorkflowCall):
            self._app._refuse_foreign(function)
            return workflow_request(settings, function, row.args, {}, workflow_id=row.key, **options)
        if not isinstance(function, Task | Call):
            raise InvalidValue(f"{function!r:.100} is neither a task nor a workflow: decorate it, or give a name.")
        self._app._refuse_foreign(function)
        return request(settings, function, row.args, {}, task_id=check_key(row.key), **options)

    async def _judge(self, verbs: EngineVerbs, start: StartRequest, answer: Admission | Exception) -> SweptRow:
        key, name = start.key or "", start.options.name
        if isinstance(answer, Exception):
            return SweptRow(key, name, SweepOutcome.ERROR, _brief(answer))
        match answer.decision:
            case Admit():
                return SweptRow(key, name, SweepOutcome.STARTED, "", answer.id)
            case Join():
                return SweptRow(key, name, SweepOutcome.UNDER_WAY, "", answer.id)
            case Refuse():
                error = await refusal(self._app, verbs, start, answer)
                return SweptRow(key, name, SweepOutcome.ERROR, _brief(error), answer.id)
            case _:
                return SweptRow(key, name, SweepOutcome.COMPLETED, "", answer.id)

    async def _foretell(self, start: StartRequest) -> SweptRow:
        """What a run would do with a row, as things stand."""
        key, name = start.key or "", start.options.name
        found = await self._app.engine.find(start.options.kind, key)
        if found is None:
            return SweptRow(key, name, SweepOutcome.STARTED, "it was never started")
        outcome, detail = self._compare(start, found)
        if outcome is not SweepOutcome.STARTED and found.name != name:
            outcome, detail = SweepOutcome.ERROR, f"its key stands for {found.name}"
        elif outcome is not SweepOutcome.STARTED and (other := await self._differs(start, found)):
            outcome, detail = SweepOutcome.ERROR, f"its key stands for other input ({other})"
        return SweptRow(key, name, outcome, detail, found.id)

    def _compare(self, start: StartRequest, found: Execution) -> tuple[SweepOutcome, str]:
        told = f"{found.status} since {found.finished_at or found.created_at:%Y-%m-%d %H:%M:%S} UTC"
        if found.status.live:
            return SweepOutcome.UNDER_WAY, told
        now = datetime.fromtimestamp(self._app._opener.now(), UTC)
        over = found.window_ends_at is not None and found.window_ends_at <= now
        if found.status in RELEASED or over or self._sweeper.reuse == "always":
            return SweepOutcome.STARTED, told
        return SweepOutcome.COMPLETED, told

    async def _differs(self, start: StartRequest, found: Execution) -> str:
        """The fields in which the input of an execution differs from what would be started; empty: none do."""
        stored = await self._app.engine.input_of(found.id)
        if stored is None:
            return ""
        offered = start.payload
        if start.shape is not None:
            stored, offered = start.shape.show_defaults(stored), start.shape.show_defaults(offered)
        return describe_differences(differences(stored, offered))

    def _note(self, row: SweptRow) -> None:
        self._counts[row.outcome] += 1
        if self._sweep.dry_run:
            self._rows.append(row)
            return
        if row.outcome in (SweepOutcome.COMPLETED, SweepOutcome.ERROR) and len(self._rows) < MOST_NAMED:
            self._rows.append(row)
        detail = f": {row.detail}" if row.detail else ""
        log.log(
            _LEVELS[row.outcome],
            "sweeper %s: %s %r %s%s",
            self._sweep.name,
            row.name,
            row.key,
            _WORDS[row.outcome].format(row.execution),
            detail,
        )

    def report(self) -> SweepReport:
        """What it came to."""
        counts = count_outcomes(self._counts)
        return SweepReport(self._sweep.name, self._sweep.before, **counts, more=self._more, rows=tuple(self._rows))

    def tell(self) -> None:
        """One line of the log, and one event for each outcome, so that they can be counted."""
        if self._sweep.dry_run:
            return
        report = self.report()
        log.log(logging.WARNING if report.stuck else logging.INFO, "sweeper %s: %s", report.sweeper, report)
        for outcome, count in self._counts.items():
            self._app._events.emit(
                WorkerEvent(
                    type=WorkerEventType.SWEPT,
                    kind="sweeper",
                    name=report.sweeper,
                    reason=outcome.value,
                    count=count,
                )
            )


_WORDS: Final = {
    SweepOutcome.STARTED: "was stuck, and is started (execution {})",
    SweepOutcome.UNDER_WAY: "is stuck and under way already (execution {})",
    SweepOutcome.COMPLETED: "is stuck although its execution {} completed: it is not started again",
    SweepOutcome.ERROR: "is stuck and could not be started",
    SweepOutcome.RECENT: "is too recent to count as stuck",
}


async def _start_each(verbs: EngineVerbs, starts: Sequence[StartRequest]) -> Sequence[Admission | Exception]:
    """Start many in as few commits as possible; if that fails, one by one, so that a bad one harms no other.

    A request that was performed before the failure is recognised by its id. EngineError: the engine does not answer.
    """
    if not starts:
        return []
    try:
        return await verbs.start_many(starts)
    except Exception:
        answers: list[Admission | Exception] = []
        silent = 0
        for start in starts:
            try:
                answers.append(await verbs.start(start))
                silent = 0
            except Exception as error:
                silent += isinstance(error, EngineError)
                if silent == min(TRIES, len(starts)):
                    raise
                answers.append(error)
        return answers


def _unusable(row: Any, error: Exception) -> SweptRow:
    """A row that no start can be made of."""
    key = row.key if isinstance(row, Stuck) and isinstance(row.key, str) else "?"
    return SweptRow(key, _name_of(getattr(row, "function", None)), SweepOutcome.ERROR, _brief(error))


def _name_of(function: Any) -> str:
    if isinstance(function, Call | WorkflowCall):
        function = function.task if isinstance(function, Call) else function.workflow
    return function if isinstance(function, str) else getattr(function, "name", "?")


def _brief(error: Exception) -> str:
    text = error.message if isinstance(error, SemelError) else f"{type(error).__name__}: {phrase(error)}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


class Sweeping:
    """The part of an app that is about sweepers."""

    @cached_property
    def sweepers(self) -> Sweepers:
        """The sweepers of this app."""
        return Sweepers(cast("App", self))

    def sweeper(self, name: str, **options: Unpack[SweeperOptions]) -> Callable[[F], F]:
        """Start again what is stuck: `@app.sweeper("stuck-tenants", every="15m", older_than="5m")`.

        It stands above a plain function, sync or async, that takes a `semel.Sweep` and yields a `semel.Stuck` for each
        stuck row. Each is started under its stable key, unless that is under way or has completed; nothing is awaited.
        It runs by a schedule of this name, once `apply()` has published it.
        """
        if not isinstance(name, str):
            raise TypeError('a sweeper needs a name: write @app.sweeper("stuck-tenants").')

        def declare(function: F) -> F:
            self.sweepers.declare(name, function, options)
            return function

        return declare

    async def sweep(self, name: str, *, dry_run: bool = False) -> SweepReport:
        """Run a sweeper of this app here and now; with `dry_run` only say what it would do with each row."""
        return await self.sweepers.run(name, dry_run=dry_run)
