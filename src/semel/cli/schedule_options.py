"""The options of a schedule on the command line, for `semel schedules create` and `edit` alike."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from inspect import Parameter
from typing import Annotated, Any, TypeVar

import typer

from semel import InvalidValue

C = TypeVar("C", bound=Callable[..., Any])
_TIMES = ("at", "start_at", "end_at")


def _text(help: str) -> Any:
    return Annotated[str | None, typer.Option(help=help, show_default=False)]


def _texts(help: str) -> Any:
    return Annotated[list[str] | None, typer.Option(help=f"{help} Can be repeated.", show_default=False)]


def _number(help: str) -> Any:
    return Annotated[int | None, typer.Option(help=help, show_default=False)]


_OPTIONS: dict[str, Any] = {
    "cron": _texts("A cron expression, such as '0 9 * * *'."),
    "seconds": Annotated[
        bool | None,
        typer.Option("--seconds/--no-seconds", help="Expressions have six fields, seconds first.", show_default=False),
    ],
    "every": _text("An interval, such as 5m."),
    "after": _text("Where an interval counts from: start, or finish of the run before."),
    "at": _texts("A single time, such as 2026-03-01T09:00:00+01:00."),
    "timezone": _text("The IANA zone of cron expressions, such as Europe/Paris. Default: UTC."),
    "nonexistent": _text("Times that a change of the clocks leaves out: shift or skip."),
    "repeated": _text("Times that come twice: first, last or both."),
    "exclude": _texts("A date or a cron expression whose times are left out."),
    "start_at": _text("No slot before this time."),
    "end_at": _text("No slot at or after this time."),
    "jitter": _text("Each slot fires up to so much later."),
    "misfire": _text("Slots that are late: skip, catchup or compress. Default: skip."),
    "max_catchup": _number("How many missed slots are caught up. Default: 10."),
    "grace": _text("Until when a late slot counts as on time."),
    "overlap": _text(
        "Slots that meet an active run: skip, buffer_one, buffer_all, allow_all, cancel_other or terminate_other."
    ),
    "max_buffer": _number("How many slots wait for the active run. Default: 100."),
    "start_deadline": _text("A slot that has waited for longer is dropped."),
    "pause_after_failures": _number("Pause after so many failed runs in a row."),
    "finish_by": _text("Doctor reports a run that has not ended so long after its slot."),
    "queue": _text("A queue to use instead of the function's own."),
    "priority": _number("A priority to use instead of the function's own."),
}


def takes_schedule_options(command: C) -> C:
    """Put the options of a schedule in the place of a command's `**options`."""
    signature = inspect.signature(command, eval_str=True)
    own = [one for one in signature.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _OPTIONS.items()
    ]
    before = [one for one in own if one.kind is not Parameter.KEYWORD_ONLY]
    after = [one for one in own if one.kind is Parameter.KEYWORD_ONLY]
    # What typer reads to know the options of a command.
    command.__dict__["__signature__"] = inspect.Signature([*before, *options, *after])
    return command


def read_schedule_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, as the library takes them. InvalidValue: a time that cannot be read."""
    given = {name: value for name, value in options.items() if value is not None and value != []}
    for name in _TIMES:
        if name in given:
            value = given[name]
            option = f"--{name.replace('_', '-')}"
            given[name] = (
                [read_time(one, option) for one in value] if isinstance(value, list) else read_time(value, option)
            )
    return given


def read_time(text: str, option: str) -> datetime:
    """A time of the command line. InvalidValue: it cannot be read, or has no offset from UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValue(f"{option} {text!r} is not a time: write it like 2026-03-01T09:00:00+01:00.") from None
    if found.tzinfo is None:
        whole = text if "T" in text or " " in text else f"{text}T00:00:00"
        raise InvalidValue(f"{option} {text!r} has no offset from UTC: write it like {whole}Z or {whole}+01:00.")
    return found
