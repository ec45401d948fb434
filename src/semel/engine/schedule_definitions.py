"""What people write of a schedule, checked and brought into the form that engines keep."""

from __future__ import annotations

import typing
from collections.abc import Collection, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from semel.codec import encode
from semel.contract.durations import Duration, parse_duration
from semel.contract.keys import check_name
from semel.contract.runs import Run, RunWindow
from semel.contract.slot_policy import Overlap, SlotPolicy
from semel.contract.timing import Timing
from semel.define.schedule import ScheduleOptions
from semel.define.task import Call, Task, check_priority
from semel.define.workflow import Workflow, WorkflowCall
from semel.engine.requests import options_of
from semel.engine.schedules import ScheduleDefinition
from semel.errors import DefinitionError, InvalidValue
from semel.settings import Settings

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXAMPLE_RUN = Run("example", "activity-example:1970-01-01T00:00:00+00:00", _EPOCH, RunWindow(None, _EPOCH))
"""Stands for the Run while arguments are checked."""
_POLICY = frozenset(field.name for field in fields(SlotPolicy))
_TIMING = frozenset(field.name for field in fields(Timing) if field.init) - {"schedule_id", "anchor", "others"}
_OWN = frozenset({"pause_after_failures", "finish_by", "queue", "priority"})
_KINDS = frozenset({"cron", "every", "at"})
_OF_KINDS = frozenset({"seconds", "after", "nonexistent", "repeated"})
"""Options that go with one kind of timing only: another kind begins without them."""


def define_schedule(
    settings: Settings, id: str, function: Any, args: tuple[Any, ...], options: ScheduleOptions
) -> ScheduleDefinition:
    """A schedule from what people write. InvalidValue, TypeError: what is wrong with it."""
    given: dict[str, Any] = dict(options)
    _refuse_unknown(given)
    own, bound = _bind(function, args)
    return make_definition(
        settings,
        own,
        bound,
        _make_timing(id, given),
        _make_policy(given),
        queue=given.get("queue"),
        priority=given.get("priority"),
        pause_after_failures=_check_failures(given.get("pause_after_failures")),
        finish_by=_read_finish_by(given.get("finish_by")),
    )


def make_definition(
    settings: Settings,
    function: Task[..., Any] | Workflow[..., Any],
    arguments: Mapping[str, Any],
    timing: Timing,
    policy: SlotPolicy,
    *,
    queue: str | None,
    priority: int | None,
    pause_after_failures: int | None,
    finish_by: timedelta | None,
) -> ScheduleDefinition:
    """A schedule of a function with these arguments. NotEncodable, TypeError: they do not fit."""
    bound = check_arguments(settings, function, arguments, hand_in_run(function))
    return ScheduleDefinition(
        timing=timing,
        policy=policy,
        options=options_of(settings, function, "return", "reject", priority, None, None, queue),
        payload=encode(bound, "arguments", limit=settings.max_payload),
        run_parameter=find_run_parameter(function),
        concurrency_key=function.concurrency_key_of(bound) if function.keyed else None,
        pause_after_failures=pause_after_failures,
        finish_by=finish_by,
    )


def check_arguments(
    settings: Settings,
    function: Task[..., Any] | Workflow[..., Any],
    arguments: Mapping[str, Any],
    handed_in: Mapping[str, Any],
) -> dict[str, Any]:
    """The arguments of a function but what is handed in when it runs; what a worker could not read is refused here.

    `handed_in`: an example for each of those parameters.
    """
    if taken := sorted(handed_in.keys() & arguments.keys()):
        kind = type(handed_in[taken[0]]).__name__
        raise TypeError(f"{function.kind} {function.name!r}: {taken[0]!r} is the {kind}, which each run is given.")
    bound = function.shape.bind((), {**arguments, **handed_in})
    function.shape.encode_input(bound, settings.max_payload)
    return {name: value for name, value in bound.items() if name not in handed_in}


def hand_in_run(function: Task[..., Any] | Workflow[..., Any]) -> dict[str, Any]:
    """The parameter of a function that gets its Run, with an example."""
    parameter = find_run_parameter(function)
    return {} if parameter is None else {parameter: EXAMPLE_RUN}


def edit_definition(
    id: str, stored: ScheduleDefinition, options: ScheduleOptions, reset: Collection[str]
) -> ScheduleDefinition:
    """A definition with other options. InvalidValue, TypeError: what is wrong with them."""
    given: dict[str, Any] = dict(options)
    if isinstance(reset, str):
        raise TypeError(f"reset={reset!r} is a str: give a list, such as [{reset!r}].")
    _refuse_unknown({*given, *reset})
    if fixed := (_KINDS | {"queue", "priority"}).intersection(reset):
        raise InvalidValue(f"{min(fixed)} has no default to go back to: give another value for it.")
    if stored.timing.others and (when := _TIMING & {*given, *reset}):
        raise InvalidValue(
            f"schedule {id!r} has several triggers, so {min(when)} could be that of any of them: change its definition "
            "and apply it."
        )
    if both := given.keys() & set(reset):
        raise InvalidValue(f"{min(both)} is given and reset: do one of them.")
    kept: dict[str, Any] = {
        **{name: getattr(stored.timing, name) for name in _TIMING},
        **{name: getattr(stored.policy, name) for name in _POLICY},
        "pause_after_failures": stored.pause_after_failures,
        "finish_by": stored.finish_by,
    }
    replaced = _KINDS if _KINDS & given.keys() else frozenset[str]()
    if any(name in given and not kept[name] for name in _KINDS):
        replaced |= _OF_KINDS
    merged = {**{name: value for name, value in kept.items() if name not in {*replaced, *reset}}, **given}
    queue, priority = given.get("queue", stored.options.queue), given.get("priority", stored.options.priority)
    return replace(
        stored,
        timing=stored.timing if stored.timing.others else _make_timing(id, merged),
        policy=_make_policy(merged),
        options=replace(stored.options, queue=check_name(queue, "queue"), priority=check_priority(priority)),
        pause_after_failures=_check_failures(merged.get("pause_after_failures")),
        finish_by=_read_finish_by(merged.get("finish_by")),
    )


def _read_finish_by(finish_by: Duration | None) -> timedelta | None:
    if finish_by is None:
        return None
    found = parse_duration(finish_by, "finish_by")
    if not found:
        raise InvalidValue("finish_by=0: no run ends at the instant of its slot. Give a positive duration.")
    return found


def _refuse_unknown(given: Collection[str]) -> None:
    known = _POLICY | _TIMING | _OWN
    if unknown := set(given) - known:
        raise TypeError(f"a schedule has no option {min(unknown)!r}. There are: {', '.join(sorted(known))}.")


def _make_timing(id: str, given: Mapping[str, Any]) -> Timing:
    """The timing that options ask for."""
    options = _listed({name: given[name] for name in _TIMING & given.keys()})
    if options.get("jitter"):
        options["schedule_id"] = id
    timing = Timing(**options)
    if timing.after != "finish" and timing.next_slot(_EPOCH) is None:
        raise InvalidValue(f"schedule {id!r} never fires.")
    return timing


def _make_policy(given: Mapping[str, Any]) -> SlotPolicy:
    policy = SlotPolicy(**{name: given[name] for name in _POLICY & given.keys()})
    if given.get("after") == "finish" and policy.overlap is not Overlap.SKIP:
        raise InvalidValue(
            f"overlap={str(policy.overlap)!r} does not go with after='finish': its runs never overlap. Leave it out."
        )
    return policy


def _bind(function: Any, args: tuple[Any, ...]) -> tuple[Task[..., Any] | Workflow[..., Any], dict[str, Any]]:
    """The task or workflow, and its arguments by name, but for its Run."""
    if isinstance(function, Call | WorkflowCall):
        if args:
            raise TypeError("a call already carries its arguments: schedules.put(id, digest.call(…), cron=…).")
        own = function.task if isinstance(function, Call) else function.workflow
        parameter = find_run_parameter(own)
        return own, {name: value for name, value in function.bound.items() if name != parameter}
    if not isinstance(function, Task | Workflow):
        raise InvalidValue(f"{function!r} is no task and no workflow: decorate it with @app.task or @app.workflow.")
    if isinstance(function, Workflow):
        function.refuse_if_old()
    parameter = find_run_parameter(function)
    if parameter is None:
        return function, function.shape.bind(args, {})
    names = [name for name in function.shape.signature.parameters if name != parameter]
    by_name = dict(zip(names, args, strict=False))
    bound = function.shape.bind(args[len(names) :], {**by_name, parameter: EXAMPLE_RUN})
    return function, {name: value for name, value in bound.items() if name != parameter}


def find_run_parameter(own: Task[..., Any] | Workflow[..., Any]) -> str | None:
    """The parameter that is annotated with Run, if there is one."""
    hints = typing.get_type_hints(own.fn)
    found = [name for name in own.shape.signature.parameters if hints.get(name) is Run]
    if len(found) > 1:
        raise DefinitionError(f"{own.kind} {own.name!r} has two parameters of type Run: {found[0]!r} and {found[1]!r}.")
    return found[0] if found else None


def _listed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as tuples, as a timing keeps them."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}


def _check_failures(most: object) -> int | None:
    if most is None:
        return None
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InvalidValue(f"pause_after_failures={most!r}: give a whole number, 1 or more.")
    return most
