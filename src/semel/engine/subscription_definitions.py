"""What people write of an activity that wants events, checked and brought into the form that engines keep."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from semel.codec import encode
from semel.define.task import Task
from semel.define.workflow import Workflow
from semel.engine.requests import options_of
from semel.engine.schedule_definitions import check_arguments, find_run_parameter, hand_in_run
from semel.engine.subscriptions import EventPattern, FlowOptions, SubscriptionDefinition
from semel.errors import DefinitionError, InvalidValue
from semel.settings import Settings
from semel.triggers.envelope import EventEnvelope
from semel.triggers.models import EventTriggerConfig

EXAMPLE_EVENT = EventEnvelope(event_id="example", source="example", type="example")
"""Stands for the event while arguments are checked."""


def define_subscription(
    settings: Settings,
    function: Task[..., Any] | Workflow[..., Any],
    triggers: Sequence[EventTriggerConfig],
    *,
    arguments: Mapping[str, Any],
    queue: str | None,
    priority: int | None,
    reuse: str,
) -> SubscriptionDefinition:
    """A subscription of a function. InvalidValue, TypeError: what is wrong with it."""
    if isinstance(function, Workflow):
        function.refuse_if_old()
    if reuse not in ("reject", "failed_only"):
        raise InvalidValue(f"reuse={reuse!r}: use 'reject', or 'failed_only' to run again after a failure.")
    flow = _join_flows(triggers)
    event_parameter, events_parameter = find_event_parameter(function), find_events_parameter(function)
    handed_in = {**hand_in_run(function), **hand_in_events(function)}
    bound = check_arguments(settings, function, arguments, handed_in)
    return SubscriptionDefinition(
        patterns=tuple(EventPattern(one.types, one.source, one.where) for one in triggers),
        options=options_of(settings, function, "return", reuse, priority, None, None, queue),
        payload=encode(bound, "arguments", limit=settings.max_payload),
        event_parameter=event_parameter,
        run_parameter=find_run_parameter(function),
        concurrency_key=_concurrency_key(function, bound),
        events_parameter=events_parameter,
        flow=flow,
    )


def _join_flows(triggers: Sequence[EventTriggerConfig]) -> FlowOptions | None:
    """How an activity gathers or limits events: all of its triggers do it alike."""
    flows = [_flow_of(one) for one in triggers]
    for one in flows:
        if one != flows[0]:
            names = {*(one.given if one else ()), *(flows[0].given if flows[0] else ())}
            raise InvalidValue(
                f"its event triggers have different values of {', '.join(sorted(names))}: these count for the whole "
                "activity. Give all of them the same, or make an activity of each."
            )
    return flows[0] if flows else None


def _flow_of(trigger: EventTriggerConfig) -> FlowOptions | None:
    names = trigger.flow_options
    if not names:
        return None
    keys = {name: key for name in names if (key := getattr(trigger, name).key) is not None}
    policies = {name: getattr(trigger, name).policy() for name in names if name != "cancel_on"}
    on = trigger.cancel_on
    return FlowOptions(**policies, cancel_on=None if on is None else EventPattern(on.types, None, on.where), keys=keys)


def _concurrency_key(function: Task[..., Any] | Workflow[..., Any], bound: dict[str, Any]) -> str | None:
    if not function.keyed:
        return None
    try:
        return function.concurrency_key_of(bound)
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidValue(
            f"{function.kind} {function.name!r}: its concurrency_key cannot be made without the event ({error!r}). Let "
            "it depend on other arguments, or start another task from this one."
        ) from error


def find_event_parameter(own: Task[..., Any] | Workflow[..., Any]) -> str | None:
    """The parameter that is annotated with EventEnvelope, or with it and None, if there is one."""
    hints = typing.get_type_hints(own.fn)
    found = [name for name in own.shape.signature.parameters if _is_event(hints.get(name))]
    if len(found) > 1:
        raise DefinitionError(
            f"{own.kind} {own.name!r} has two parameters of type EventEnvelope: {found[0]!r} and {found[1]!r}."
        )
    return found[0] if found else None


def find_events_parameter(own: Task[..., Any] | Workflow[..., Any]) -> str | None:
    """The parameter that is annotated with list[EventEnvelope], or with it and None, if there is one."""
    hints = typing.get_type_hints(own.fn)
    found = [name for name in own.shape.signature.parameters if _is_optional(hints.get(name), list[EventEnvelope])]
    if len(found) > 1:
        raise DefinitionError(
            f"{own.kind} {own.name!r} has two parameters of type list[EventEnvelope]: {found[0]!r} and {found[1]!r}."
        )
    return found[0] if found else None


def hand_in_events(own: Task[..., Any] | Workflow[..., Any]) -> dict[str, Any]:
    """What stands for the event and the events of a run while arguments are checked."""
    one, many = find_event_parameter(own), find_events_parameter(own)
    return {
        **({} if one is None else {one: EXAMPLE_EVENT}),
        **({} if many is None else {many: [EXAMPLE_EVENT]}),
    }


def _is_event(hint: Any) -> bool:
    return _is_optional(hint, EventEnvelope)


def _is_optional(hint: Any, wanted: Any) -> bool:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return set(typing.get_args(hint)) == {wanted, type(None)}
    return bool(hint == wanted)
