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
from semel.engine.subscriptions import EventPattern, SubscriptionDefinition
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
    for one in triggers:
        if one.flow_options:
            raise InvalidValue(
                f"{', '.join(one.flow_options)} of an event trigger: this release runs a function for each event, and "
                "does not gather or limit events yet. Leave it out, or limit the task (rate_limit, concurrency_key)."
            )
    event_parameter = find_event_parameter(function)
    handed_in = {**hand_in_run(function), **({} if event_parameter is None else {event_parameter: EXAMPLE_EVENT})}
    bound = check_arguments(settings, function, arguments, handed_in)
    return SubscriptionDefinition(
        patterns=tuple(EventPattern(one.types, one.source, one.where) for one in triggers),
        options=options_of(settings, function, "return", reuse, priority, None, None, queue),
        payload=encode(bound, "arguments", limit=settings.max_payload),
        event_parameter=event_parameter,
        run_parameter=find_run_parameter(function),
        concurrency_key=_concurrency_key(function, bound),
    )


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


def _is_event(hint: Any) -> bool:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return set(typing.get_args(hint)) == {EventEnvelope, type(None)}
    return hint is EventEnvelope
