"""Schedules of an app: declared in code, created and changed by verbs, applied by whoever has the authority."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Unpack, cast, overload
from uuid import uuid4

from semel.backfills import BackfillOptions, Backfills, make_request, missing_schedule, refuse_in_run
from semel.contract.backfill import BackfillInfo, BackfillPlan
from semel.contract.coming_slots import describe_coming_slot
from semel.contract.keys import check_text
from semel.contract.occurrences import Occurrence, preview
from semel.contract.reconciliation import Difference
from semel.contract.runs import Change, ChangeKind, ScheduleInfo, ScheduleRun, SkippedSlots
from semel.define.schedule import ScheduleOptions
from semel.define.task import Call, Task
from semel.define.workflow import Workflow, WorkflowCall
from semel.engine.declarations import Declared, VersionChanged
from semel.engine.schedule_definitions import EXAMPLE_RUN, define_schedule, edit_definition, find_run_parameter
from semel.engine.schedules import EngineSchedules, Owner, ScheduleDefinition
from semel.engine.subscriptions import SubscriptionDefinition
from semel.errors import (
    ConfigError,
    DefinitionError,
    EngineError,
    EngineUnavailable,
    InvalidValue,
)
from semel.handle import Handle
from semel.reconciliation import reconcile_schedules
from semel.transactional.bound import bound_connection
from semel.triggers.ids import check_activity_id, parse_run_id

if TYPE_CHECKING:
    from semel.app import App
    from semel.triggers.models import ActivityDefinition

log = logging.getLogger("semel.schedules")
What = Literal["schedule", "event"]
F = TypeVar("F", bound=Callable[..., Any])
PAGE = 200
TRIES = 5
OWNERS: Final[tuple[Owner, ...]] = ("code", "file")
"""Whose schedules an app declares."""
_GONE = (ChangeKind.DELETE, ChangeKind.ORPHAN)
_NAMED = 5
"""So many schedules are named in a warning."""


class Schedules:
    """The schedules of an app: `app.schedules`."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._declared: dict[str, tuple[Any, tuple[Any, ...], ScheduleOptions]] = {}
        self._activities: dict[str, tuple[ActivityDefinition, Owner]] = {}

    # Declarations.

    def declare(self, id: str | None, function: Any, args: tuple[Any, ...], options: ScheduleOptions) -> None:
        """Remember a schedule that code declares; `apply` publishes it."""
        one = function.task if isinstance(function, Call) else function
        one = one.workflow if isinstance(one, WorkflowCall) else one
        if not isinstance(one, Task | Workflow):
            raise DefinitionError(
                f"{function!r} is neither a task nor a workflow: put @app.on_schedule(…) above @app.task or "
                "@app.workflow."
            )
        id = check_activity_id(one.name if id is None else id)
        self._refuse_twins(id)
        define_schedule(self._app.settings, id, function, args, options)  # what is wrong is told where it stands
        self._declared[id] = function, args, options

    def declare_activity(self, activity: ActivityDefinition, owner: Owner) -> None:
        """Remember an activity that code or a file declares; `apply` publishes it."""
        from semel.activities import define_activity

        self._refuse_twins(activity.activity_id)
        if activity.activity_id in self._app.events.declared:
            raise DefinitionError(f"two activities are called {activity.activity_id!r}: rename one of them.")
        define_activity(self._app.settings, self._app.tasks, activity)  # what is wrong is told where it stands
        self._activities[activity.activity_id] = activity, owner

    def _refuse_twins(self, id: str) -> None:
        if id in self._declared or id in self._activities:
            raise DefinitionError(f"two schedules are called {id!r}: give one of them id='…'.")

    @property
    def activities(self) -> list[str]:
        """The ids of the activities that code and files declare."""
        return [*self._activities]

    @property
    def declared(self) -> list[str]:
        """The ids of the schedules and activities that code and files declare."""
        return [*self._declared, *self._activities]

    async def apply(self, *, prune: bool, take_over: bool, dry_run: bool) -> Sequence[Change]:
        """See `app.apply`."""
        refuse_in_run("apply()")
        declared, engine = self._definitions(), await self._engine()
        changes = await engine.apply(declared, prune=OWNERS if prune else (), take_over=take_over, write=not dry_run)
        return await self._complete_plan(changes, declared) if dry_run else changes

    def _definitions(self) -> Sequence[Declared]:
        """What code and files declare, as it is stored."""
        settings = self._app.settings
        found = [Declared(id, "code", define_schedule(settings, id, *what)) for id, what in self._declared.items()]
        if self._activities:
            from semel.activities import define_activity

            for id, (activity, owner) in self._activities.items():
                parts = define_activity(settings, self._app.tasks, activity)
                found += [Declared(id, owner, part) for part in parts if part is not None]
        return [*found, *self._app.events.definitions()]

    async def _complete_plan(self, changes: Sequence[Change], declared: Sequence[Declared]) -> Sequence[Change]:
        """The plan with what code does not declare any more, and with what seems to have been renamed."""
        known = {(change.what, change.id) for change in changes} | {(one.what, one.id) for one in declared}
        stored: list[tuple[What, str, str]] = [("schedule", one.id, one.owner) for one in await self.list()]
        stored += [("event", one.id, one.owner) for one in await self._app.events.subscriptions()]
        left = [(what, id) for what, id, owner in stored if owner in OWNERS and (what, id) not in known]
        told = "not declared any more: --prune deletes it"
        plan = [*changes, *(Change(ChangeKind.ORPHAN, id, told, what) for what, id in left)]
        gone: dict[tuple[What, str, bytes], str] = {}
        for one in plan:
            if one.kind in _GONE and (definition := await self._stored(one.what, one.id)) is not None:
                gone[one.what, *_what_runs(definition)] = one.id
        new = {(one.what, one.id): _what_runs(one.definition) for one in declared}
        return [
            replace(one, detail=_describe_rename(one, old, deleted=(one.what, old) not in left))
            if one.kind is ChangeKind.CREATE and (old := gone.get((one.what, *new[one.what, one.id]))) is not None
            else one
            for one in plan
        ]

    async def _stored(self, what: What, id: str) -> ScheduleDefinition | SubscriptionDefinition | None:
        """The definition of a schedule or of a subscription."""
        if what == "event":
            return await self._app.events.definition(id)
        return await (await self._engine()).definition(id)

    async def unapplied(self) -> Sequence[Change]:
        """Schedules and activities that code declares and that were never applied, or are not as they are declared."""
        found = []
        for one in self._definitions():
            stored = await self._stored(one.what, one.id)
            if stored is None:
                found.append(Change(ChangeKind.CREATE, one.id, what=one.what))
            elif stored.to_bytes() != one.definition.to_bytes():
                found.append(Change(ChangeKind.CHANGE, one.id, what=one.what))
        return found

    async def warn_unapplied(self) -> None:
        """Say which schedules of this app do not fire as its code declares them. A worker does so when it starts."""
        ids = [*self.declared, *self._app.events.declared]
        if not ids:
            return
        try:
            found = await self.unapplied()
        except (ConfigError, EngineError) as error:
            what = "schedules and events" if self._app.events.declared else "schedules"
            log.warning("the %s of this app (%s) do not fire: %s", what, _name(ids), error.message)
            return
        missing = {one.id for one in found if one.kind is ChangeKind.CREATE}
        differing = {one.id for one in found if one.kind is ChangeKind.CHANGE}
        told = [f"never applied, and will not fire: {_name(missing)}"] * bool(missing)
        told += [f"not as the code declares them: {_name(differing)}"] * bool(differing)
        if told:
            log.warning(
                "%s of this app are %s. Publish them with: semel apply MODULE:APP", _plural(found), "; ".join(told)
            )

    # Verbs.

    async def put(
        self, id: str, function: Any, *args: object, connection: Any = None, **options: Unpack[ScheduleOptions]
    ) -> ScheduleInfo:
        """Create a schedule, or change it in place: what is covered stays covered.

        `function` is a task or a workflow, with its arguments after it, or `digest.call(…)`. With a `connection`, as
        with every verb that changes something, it is so once your transaction is committed.
        """
        refuse_in_run("schedules.put()")
        id = check_activity_id(id)
        definition = define_schedule(self._app.settings, id, function, args, options)
        with self._joined(connection):
            engine = await self._engine()
            await engine.apply([Declared(id, "api", definition)], prune=(), take_over=True, write=True)
            return await self.get(id)

    def call(self, function: Any, **arguments: Any) -> Call[Any] | WorkflowCall[Any]:
        """Arguments by name, for `put`: `app.schedules.call(report, city="Paris")`. The Run is not among them."""
        if not isinstance(function, Task | Workflow):
            raise InvalidValue(f"{function!r} is no task and no workflow: decorate it with @app.task or @app.workflow.")
        parameter = find_run_parameter(function)
        if parameter in arguments:
            raise InvalidValue(f"{parameter} is the Run: each run is given its own.")
        placeholder = {} if parameter is None else {parameter: EXAMPLE_RUN}
        return function.call(**arguments, **placeholder)

    async def edit(
        self, id: str, *, reset: Collection[str] = (), connection: Any = None, **options: Unpack[ScheduleOptions]
    ) -> ScheduleInfo:
        """Change options of a schedule. Its function, its arguments, its owner and all other options stay.

        One of `cron`, `every` and `at` takes the place of what there was of them. Options that are named in `reset` get
        their defaults back.
        """
        refuse_in_run("schedules.edit()")
        id = check_activity_id(id)
        with self._joined(connection):
            engine = await self._engine()
            for _ in range(TRIES):
                info, stored = await self.get(id), await engine.definition(id)
                if stored is None:
                    raise missing_schedule(id)
                definition = edit_definition(id, stored, options, reset)
                declared = Declared(id, cast("Owner", info.owner), definition, instead_of=info.version)
                try:
                    await engine.apply([declared], prune=(), take_over=True, write=True)
                except VersionChanged:
                    continue
                return await self.get(id)
            raise EngineUnavailable(f"schedule {id!r} was changed again and again by others: try again.")

    async def get(self, id: str) -> ScheduleInfo:
        """A schedule. NotFound if there is none."""
        found = await (await self._engine()).get(check_activity_id(id))
        if found is None:
            raise missing_schedule(id)
        return found

    async def list(self) -> Sequence[ScheduleInfo]:
        """All schedules, by their ids."""
        engine = await self._engine()
        found = await engine.page("", PAGE)
        every = found
        while len(found) == PAGE:
            found = await engine.page(every[-1].id, PAGE)
            every = every + found
        return every

    async def pause(self, id: str, note: str | None = None, *, connection: Any = None) -> None:
        """Let no slot fire until it is resumed. What runs goes on."""
        refuse_in_run("schedules.pause()")
        note = None if note is None else check_text(note, "note")
        with self._joined(connection):
            if not await (await self._engine()).pause(check_activity_id(id), note):
                raise missing_schedule(id)

    async def resume(self, id: str, note: str | None = None, *, connection: Any = None) -> None:
        """Let slots fire again. Of those inside the pause, `misfire` decides."""
        refuse_in_run("schedules.resume()")
        note = None if note is None else check_text(note, "note")
        with self._joined(connection):
            if not await (await self._engine()).resume(check_activity_id(id), note):
                raise missing_schedule(id)

    async def delete(self, id: str, *, connection: Any = None) -> None:
        """Remove a schedule. What it has started goes on, and its records stay for their time."""
        refuse_in_run("schedules.delete()")
        with self._joined(connection):
            if not await (await self._engine()).delete(check_activity_id(id)):
                raise missing_schedule(id)

    async def trigger(self, id: str, request_key: str | None = None, *, connection: Any = None) -> Handle[Any]:
        """Run it now, also while it is paused. A request that is sent again under its key is the same run."""
        refuse_in_run("schedules.trigger()")
        id = check_activity_id(id)
        with self._joined(connection):
            found = await (await self._engine()).trigger(id, uuid4().hex if request_key is None else request_key)
            if found is None:
                raise missing_schedule(id)
            key, execution, duplicate = found
            uncommitted = bound_connection(self._app) is not None
            return Handle(self._app, execution, (await self.get(id)).name, key, duplicate, uncommitted)

    async def runs(self, id: str, *, before: datetime | None = None, limit: int = 50) -> Sequence[ScheduleRun]:
        """Its runs, newest first; for the next page pass the last `scheduled_for` as `before`."""
        return await (await self._engine()).runs(check_activity_id(id), before, _check_limit(limit))

    async def skipped(self, id: str, *, before: datetime | None = None, limit: int = 50) -> Sequence[SkippedSlots]:
        """Its slots that did not run, as ranges with a reason, newest first."""
        return await (await self._engine()).skipped(check_activity_id(id), before, _check_limit(limit))

    async def next(self, id: str, count: int = 10) -> Sequence[Occurrence]:
        """What will fire, and wall-clock times that will not, with the reason."""
        definition = await (await self._engine()).definition(check_activity_id(id))
        if definition is None:
            raise missing_schedule(id)
        if definition.timing.after == "finish":
            raise InvalidValue(f"schedule {id!r} counts from the end of each run: its slots are not known beforehand.")
        info = await self.get(id)
        return [*islice(preview(definition.timing, info.cursor), _check_limit(count))]

    async def explain_run(self, key: str, now: datetime) -> str:
        """What became of a slot, or when it is due, in words, by the key of its run; empty if nothing is to be said."""
        parsed = parse_run_id(key)
        if parsed is None:
            return ""
        try:
            engine = await self._engine()
        except ConfigError:  # a cluster without records has no schedules
            return ""
        id, slot = parsed
        found = await engine.find_slot(id, key, slot)
        if found is None:
            info, definition = await engine.get(id), await engine.definition(id)
            if slot is None or info is None or definition is None:
                return ""
            return describe_coming_slot(info, definition.timing, slot, now)
        if isinstance(found, SkippedSlots):
            return f"Schedule {found.schedule!r} did not run this slot. {found}."
        begin = "" if found.window_start is None else f", after {found.window_start:%Y-%m-%d %H:%M:%S} UTC"
        again = f", generation {found.generation}" if found.generation else ""
        return f"Run of schedule {found.schedule!r}, version {found.version} ({found.why}{again}){begin}."

    async def reconcile(self, *, fix: bool = False, prune: bool = False) -> Sequence[Difference]:
        """Compare what code and files declare, what is on record and what runs, once.

        Nothing is changed unless `fix` is given: then what can be repaired is, and each change is logged. Schedules
        that are not declared any more are deleted only with `prune` as well.
        """
        refuse_in_run("schedules.reconcile()")
        engine = await self._engine()
        return await reconcile_schedules(engine, self._definitions(), await self.list(), OWNERS, fix=fix, prune=prune)

    # Backfills.

    @cached_property
    def backfills(self) -> Backfills:
        """The backfills of this app's schedules."""
        return Backfills(self._engine)

    @overload
    async def backfill(
        self, id: str, start: datetime, end: datetime, *, dry_run: Literal[True], **options: Unpack[BackfillOptions]
    ) -> BackfillPlan: ...

    @overload
    async def backfill(
        self,
        id: str,
        start: datetime,
        end: datetime,
        *,
        dry_run: Literal[False] = False,
        **options: Unpack[BackfillOptions],
    ) -> BackfillInfo: ...

    async def backfill(
        self, id: str, start: datetime, end: datetime, *, dry_run: bool = False, **options: Unpack[BackfillOptions]
    ) -> BackfillInfo | BackfillPlan:
        """Run slots of the past, from `start` to before `end`: workers carry it on, also while the schedule is paused.

        `rerun` says which slots: "missing" (those that never ran), "failed" (also those whose run did not complete) or
        "all"; `force` adds those of which nothing is known any more. They run oldest first, `max_active` at once. A
        request that is sent again under its `request_key` is the same backfill. With `dry_run` nothing is run: the plan
        lists every slot.
        """
        refuse_in_run("schedules.backfill()")
        request = make_request(check_activity_id(id), start, end, options)
        engine = (await self._engine()).backfills
        found = await (engine.plan(request) if dry_run else engine.create(request))
        if found is None:
            raise missing_schedule(id)
        return found

    def _joined(self, connection: Any) -> AbstractContextManager[None]:
        """The verbs of the engine inside of this are part of the caller's transaction, if there is a connection."""
        return nullcontext() if connection is None else self._app.bind(connection)

    async def _engine(self) -> EngineSchedules:
        return await (await self._app._verbs(bound_connection(self._app))).schedules()


class Scheduling:
    """The part of an app that is about schedules."""

    @cached_property
    def schedules(self) -> Schedules:
        """The schedules of this app."""
        return Schedules(cast("App", self))

    def on_schedule(
        self, *expressions: str, id: str | None = None, **options: Unpack[ScheduleOptions]
    ) -> Callable[[F], F]:
        """Run a task or a workflow by a schedule: `@app.on_schedule("0 9 * * *", timezone="Europe/Paris")`.

        It stands above `@app.task` or `@app.workflow`. The function has no parameters but those with defaults and, if
        it wants it, one of type `semel.Run`. Nothing fires before `apply()` has published the schedule.
        """
        if any(callable(one) for one in expressions):
            raise TypeError('on_schedule needs to be told when: write @app.on_schedule("0 9 * * *").')
        if expressions and "cron" in options:
            raise TypeError("give cron expressions by position or as cron=…, not both.")
        if expressions:
            options = {**options, "cron": expressions}

        def declare(function: F) -> F:
            self.schedules.declare(id, function, (), options)
            return function

        return declare

    def activity(self, definition: ActivityDefinition) -> None:
        """Declare an activity: tasks and workflows by their names, and what makes them run. `apply()` publishes it."""
        self.schedules.declare_activity(definition, "code")

    def load_activities(self, path: str | os.PathLike[str]) -> list[str]:
        """Declare the activities of a TOML or JSON file, or of a folder of such files; their ids."""
        from semel.triggers.files import load_definitions

        found = load_definitions(path)
        for definition in found:
            self.schedules.declare_activity(definition, "file")
        return [definition.activity_id for definition in found]

    async def apply(self, *, prune: bool = False, take_over: bool = False, dry_run: bool = False) -> Sequence[Change]:
        """Publish the schedules and events that code and files declare; what was done, or with `dry_run` what would be.

        Pauses stay as they are. `prune` deletes what code or files declared before and do not any more, and a dry run
        names it in any case; `take_over` also changes what others have created under the same ids.
        """
        return await self.schedules.apply(prune=prune, take_over=take_over, dry_run=dry_run)


def _check_limit(limit: int) -> int:
    if not 1 <= limit <= 1000:
        raise InvalidValue(f"limit={limit!r}: give a whole number from 1 to 1000.")
    return limit


def _name(ids: Collection[str]) -> str:
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return ", ".join(sorted(ids)[:_NAMED]) + more


def _plural(found: Sequence[Change]) -> str:
    kinds = {one.what for one in found}
    return "schedules" if kinds == {"schedule"} else "events" if kinds == {"event"} else "schedules and events"


def _what_runs(definition: ScheduleDefinition | SubscriptionDefinition) -> tuple[str, bytes]:
    """What a schedule or a subscription runs; an activity with several tasks runs what its arguments say."""
    from semel.activities import RUN_ACTIVITY

    name = definition.options.name
    return name, definition.payload if name == RUN_ACTIVITY else b""


def _describe_rename(one: Change, old: str, *, deleted: bool) -> str:
    fires = "" if deleted else f", and {old} goes on firing beside it until --prune deletes it"
    what = "a new schedule, with a cursor of its own" if one.what == "schedule" else "a new activity"
    return (
        f"runs the same function as {old}, which is not declared any more. If that is a rename: it is {what}, "
        f"and its runs have other keys (activity-{one.id}:…){fires}"
    )
