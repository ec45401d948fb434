"""The options of a start: what `enqueue`, `start_workflow` and their siblings take by keyword, each written once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, Required, TypedDict, TypeVar, cast

from semel.contract.durations import Duration
from semel.contract.retry import Retry

Given = TypeVar("Given")
OnDuplicate = Literal["return", "raise"]
ReuseName = Literal["failed_only", "reject", "always"]
KeyScope = Literal["namespace", "function", "queue"]
OnClose = Literal["abandon", "cancel", "terminate"]


class QueueOptions(TypedDict, total=False):
    """Where a start waits, and for how long."""

    priority: int | None
    """Higher runs first; without it the task's own."""
    delay: Duration | None
    """Not before so long from now."""
    queue: str | None
    """Another queue than the function's own."""


class StartOptions(QueueOptions, total=False):
    """What every start from outside of a workflow can say."""

    on_duplicate: OnDuplicate
    """Whether a duplicate gets a handle to the execution that is there, or an error. Without it: "return"."""
    reuse: ReuseName
    """Which finished executions give their key back. Without it: "failed_only"."""
    run_at: datetime | None
    """Not before this time, which has a time zone; instead of `delay`."""
    connection: Any
    """A connection of yours with an open transaction: the start is there when you commit, and never was otherwise."""


class TaskOptions(StartOptions, total=False):
    """The options of `app.enqueue`."""

    task_id: str | None
    """The key. With it the task runs once."""


class WorkflowOptions(StartOptions):
    """The options of `app.start_workflow`."""

    workflow_id: str
    """The key. The workflow runs once under it."""


class ChildTaskOptions(QueueOptions, total=False):
    """The options of `ctx.execute_task` and `ctx.enqueue`."""

    task_id: str | None
    """The key. With it the task runs once, whoever else asks for it."""


class ChildWorkflowOptions(TypedDict, total=False):
    """The options of `ctx.start_workflow` and `ctx.execute_workflow`."""

    workflow_id: Required[str]
    """The key. The workflow runs once under it."""
    on_parent_close: OnClose
    """What becomes of the child when its parent ends first."""
    queue: str | None
    """Another queue than the workflow's own."""


class StepOptions(TypedDict, total=False):
    """The options of `ctx.step`."""

    name: str | None
    """What it is called in the journal; without it the function's name."""
    retry: Retry | int | None
    """A policy or a number of attempts; without it one attempt."""


RESERVED: Final = frozenset({*TaskOptions.__annotations__, "workflow_id"})
"""A task has no parameter of these names: it could be taken for an option."""
RESERVED_IN_WORKFLOWS: Final = RESERVED | {"on_parent_close", "search_attributes"}


def split_options(given: Given, kind: type[Given]) -> tuple[Given, dict[str, Any]]:
    """The options among what was given by keyword, and the rest: arguments of the function by their names.

    Type checkers know arguments by position, and by name through `charge.call(…)`; at run time both work here, too.
    """
    by_name, known = cast("Mapping[str, Any]", given), kind.__annotations__
    if by_name.keys() <= known.keys():
        return given, {}
    options = {name: value for name, value in by_name.items() if name in known}
    return cast(Given, options), {name: value for name, value in by_name.items() if name not in known}


def refuse_unknown(verb: str, options: Mapping[str, object], kind: type) -> None:
    """TypeError for what is no option of a verb that takes no arguments by name."""
    unknown = [name for name in options if name not in kind.__annotations__]
    if unknown:
        raise TypeError(f"{verb}() has no option {unknown[0]!r}. There are: {', '.join(kind.__annotations__)}.")


def refuse_missing(verb: str, options: Mapping[str, object]) -> None:
    """TypeError: a workflow is started under an id."""
    if "workflow_id" not in options:
        raise TypeError(f"{verb}() needs a workflow_id='…': a workflow runs once under its id.")
