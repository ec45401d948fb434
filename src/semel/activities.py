"""Activities as schedules and subscriptions: one task or workflow, or several in one run of `RunActivityWorkflow`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from semel.contract.runs import Run, Why
from semel.contract.timing import Timing
from semel.define.registry import Registry
from semel.define.task import Task
from semel.define.workflow import Workflow
from semel.engine.schedule_definitions import check_arguments, find_run_parameter, hand_in_run, make_definition
from semel.engine.schedules import ScheduleDefinition
from semel.engine.subscription_definitions import (
    define_subscription,
    find_event_parameter,
    find_events_parameter,
    hand_in_events,
)
from semel.engine.subscriptions import SubscriptionDefinition
from semel.errors import DefinitionError, InvalidValue
from semel.flow.context import Context
from semel.triggers.envelope import EventEnvelope
from semel.triggers.ids import TriggerKind, derive_run_id, task_instance_id
from semel.triggers.models import ActivityDefinition, EventTriggerConfig

if TYPE_CHECKING:
    from semel.settings import Settings

RUN_ACTIVITY: Final = "RunActivityWorkflow"
"""The workflow that runs the tasks of an activity that has several."""


def define_activity(
    settings: Settings, registry: Registry, activity: ActivityDefinition
) -> tuple[ScheduleDefinition | None, SubscriptionDefinition | None]:
    """What an activity runs by time, and what for events. InvalidValue, NotFound: what is wrong with it."""
    events = [one for one in activity.triggers if isinstance(one, EventTriggerConfig)]
    timing = _join_triggers(activity)
    always_event = bool(events) and timing is None
    function, arguments, queue, priority = _what_runs(settings, registry, activity, always_event)
    schedule, subscription = None, None
    if timing is not None:
        options = activity.schedule_options()
        schedule = make_definition(
            settings,
            function,
            arguments,
            timing,
            options.policy(),
            queue=queue,
            priority=priority,
            pause_after_failures=options.pause_after_failures,
            finish_by=options.finish_by,
        )
    if events:
        subscription = define_subscription(
            settings, function, events, arguments=arguments, queue=queue, priority=priority, reuse="reject"
        )
        if len(activity.tasks) > 1:  # the newest event is the last of all: it is stored once
            gathers = subscription.flow is not None and subscription.flow.gather is not None
            unused = {"event_parameter": None} if gathers else {"events_parameter": None}
            subscription = structs.replace(subscription, **unused)
    return schedule, subscription


def _join_triggers(activity: ActivityDefinition) -> Timing | None:
    """When it fires: at the slots of all of its triggers by time; those that meet are one. None: it has none."""
    triggers = [one for one in activity.triggers if not isinstance(one, EventTriggerConfig)]
    timings = [one.timing(activity.activity_id) for one in triggers]
    return replace(timings[0], others=tuple(timings[1:])) if timings else None


def _what_runs(
    settings: Settings, registry: Registry, activity: ActivityDefinition, always_event: bool
) -> tuple[Task[..., Any] | Workflow[..., Any], dict[str, Any], str | None, int | None]:
    """The function of an activity with its arguments, its queue and its priority.

    `always_event`: each of its runs is for an event.
    """
    if len(activity.tasks) == 1:
        (task,) = activity.tasks
        return _find(registry, task.task_type), dict(task.arguments), task.queue, task.priority
    for task in activity.tasks:
        function = _find(registry, task.task_type)
        handed_in = hand_in_run(function)
        if always_event:
            handed_in |= hand_in_events(function)
        check_arguments(settings, function, task.arguments, handed_in)
    tasks = [task.model_dump(mode="json") for task in activity.tasks]
    return provide_run_activity(registry), {"tasks": tasks}, None, None


def _find(registry: Registry, name: str) -> Task[..., Any] | Workflow[..., Any]:
    found = registry[name]
    if not isinstance(found, Task | Workflow):
        raise InvalidValue(f"{name!r} is an entity: an activity runs tasks and workflows.")
    return found


def provide_run_activity(registry: Registry) -> Workflow[..., Any]:
    """The built-in workflow of an app; a worker has it if its app declares an activity with several tasks."""
    known = registry.get(RUN_ACTIVITY)
    if isinstance(known, Workflow):
        return known
    if known is not None:
        raise DefinitionError(
            f"{RUN_ACTIVITY!r} is the name of a built-in workflow: give the {known.kind} another one."
        )

    async def run_activity(
        ctx: Context,
        tasks: list[dict[str, Any]],
        run: Run,
        event: EventEnvelope | None = None,
        events: list[EventEnvelope] | None = None,
    ) -> list[Any]:
        return await _run_tasks(ctx, registry, tasks, run, event, events)

    workflow: Workflow[..., Any] = Workflow(
        run_activity,
        name=RUN_ACTIVITY,
        queue="default",
        priority=0,
        timeout=None,
        retention=None,
        dedup_window=None,
        version=1,
    )
    registry.add(workflow)
    return workflow


async def _run_tasks(
    ctx: Context,
    registry: Registry,
    tasks: Sequence[dict[str, Any]],
    run: Run,
    event: EventEnvelope | None,
    events: list[EventEnvelope] | None,
) -> list[Any]:
    """Spawn every task of a run, in order; their results, or the error of the first one that failed once all ended."""
    kind: TriggerKind = "event" if run.event_id is not None else "manual" if run.why is Why.MANUAL else "schedule"
    # Which generation a run for an event is, is known when it is admitted, and not yet when its input is made.
    generation = run.generation if run.event_id is None else ctx.generation
    run_id = derive_run_id(ctx.namespace, kind, run.key, generation)
    spawned = []
    for index, task in enumerate(tasks):
        function = _find(registry, task["task_type"])
        arguments = dict(task["arguments"])
        if (parameter := find_run_parameter(function)) is not None:
            arguments[parameter] = run
        event = event if events is None else events[-1]
        if event is not None and (parameter := find_event_parameter(function)) is not None:
            arguments[parameter] = event
        if events is not None and (parameter := find_events_parameter(function)) is not None:
            arguments[parameter] = events
        id_ = task_instance_id(run_id, function.name, index)
        if isinstance(function, Workflow):
            spawned.append(ctx.execute_workflow(function.call(**arguments), workflow_id=id_, queue=task["queue"]))
        else:
            call = function.call(**arguments)
            spawned.append(ctx.execute_task(call, task_id=id_, queue=task["queue"], priority=task["priority"]))
    results = await asyncio.gather(*spawned, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
