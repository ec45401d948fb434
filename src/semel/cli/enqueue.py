"""`semel enqueue`: enqueue one execution from the shell."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from semel import App, Call, Handle, InvalidValue, Status
from semel.cli.command import Debug, Exit, Json, Target, guarded, load_app
from semel.cli.output import Output, note


class OnDuplicate(StrEnum):
    """What happens to a duplicate."""

    RETURN = "return"
    RAISE = "raise"


class Reuse(StrEnum):
    """Which finished executions release their key."""

    FAILED_ONLY = "failed_only"
    REJECT = "reject"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class EnqueueOptions:
    """The options of one request."""

    options: dict[str, Any]
    wait: bool
    timeout: str | None


def enqueue(
    target: Target,
    task: Annotated[str, typer.Argument(help="The name of the task.")],
    given: Annotated[
        str | None,
        typer.Argument(metavar="JSON", help="Arguments: an array by position, an object by name."),
    ] = None,
    args: Annotated[str | None, typer.Option(help="Arguments by position: a JSON array.")] = None,
    kwargs: Annotated[str | None, typer.Option(help="Arguments by name: a JSON object.")] = None,
    task_id: Annotated[str | None, typer.Option(help="The key: executions with the same key run once.")] = None,
    queue: Annotated[str | None, typer.Option(help="A queue to use instead of the task's own.")] = None,
    delay: Annotated[
        str | None, typer.Option(help="Do not run before this time has passed, such as 90s or 1h30m.")
    ] = None,
    priority: Annotated[int | None, typer.Option(help="Tasks with a higher priority run first.")] = None,
    on_duplicate: Annotated[
        OnDuplicate, typer.Option(help="raise: exit with 4 if it is a duplicate.")
    ] = OnDuplicate.RETURN,
    reuse: Annotated[Reuse, typer.Option(help="Which finished executions release their key.")] = Reuse.FAILED_ONLY,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result and print it.")] = False,
    timeout: Annotated[str | None, typer.Option(help="Wait at most this long (implies --wait).")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Enqueue one execution: semel enqueue shop:app charge '["o-1", 9900]' --task-id order-1"""
    options: dict[str, Any] = {
        "task_id": task_id,
        "queue": queue,
        "delay": delay,
        "priority": priority,
        "on_duplicate": on_duplicate.value,
        "reuse": reuse.value,
    }
    asked = EnqueueOptions(options, wait or timeout is not None, timeout)

    def work() -> Exit:
        app = load_app(target)
        call = _bind(app, task, _arguments(given, args, kwargs))
        return asyncio.run(_enqueue(app, target, call, asked, Output(as_json, app.settings)))

    guarded(work, debug, as_json)


def _arguments(given: str | None, args: str | None, kwargs: str | None) -> tuple[list[Any], dict[str, Any]]:
    by_position = [] if args is None else read_json(args, "--args", list)
    by_name = {} if kwargs is None else read_json(kwargs, "--kwargs", dict)
    if given is None:
        return by_position, by_name
    if args is not None or kwargs is not None:
        raise InvalidValue("give the arguments as one JSON value, or with --args and --kwargs, not both.")
    value = read_json(given, "the input", list | dict)
    return (value, {}) if isinstance(value, list) else ([], value)


def read_json(text: str, what: str, kind: Any) -> Any:
    """Read JSON of a kind from the command line. InvalidValue: it is something else."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidValue(
            f"{what} {text!r} is not JSON: {error}. Quote it for the shell, such as '[\"o-1\", 9900]'."
        ) from None
    if not isinstance(value, kind):
        wanted = {list: "an array [...]", dict: "an object {...}"}.get(kind, "an array [...] or an object {...}")
        raise InvalidValue(f"{what} {text!r}: give {wanted}.")
    return value


def _bind(app: App, task: str, arguments: tuple[list[Any], dict[str, Any]]) -> Call[Any]:
    found = app.tasks.task(task)
    args, kwargs = arguments
    try:
        return found.call(*args, **kwargs)
    except TypeError as error:
        raise InvalidValue(f"the arguments do not fit {task}{found.shape.signature}: {error}") from error


async def _enqueue(app: App, target: str, call: Call[Any], asked: EnqueueOptions, out: Output) -> Exit:
    async with app:
        handle: Handle[Any] = await app.enqueue(call, **asked.options)
        answer = {"id": handle.id, "key": handle.key, "name": handle.name, "duplicate": handle.duplicate}
        if not asked.wait:
            if out.as_json:
                out.data(answer)
                return Exit.OK
            out.line(_describe(handle))
            out.next("worker", target)
            out.next("show", handle.id)
            return Exit.OK
        if not out.as_json:
            note(_describe(handle))
        if not await app.workers():
            note(f"No worker is running. Start one in another shell: semel worker {target}")
        result = await handle.output(timeout=asked.timeout)
        if out.as_json:
            out.data({**answer, "status": Status.COMPLETED, "result": result})
        else:
            out.line(json.dumps(result, ensure_ascii=False))
        return Exit.OK


def _describe(handle: Handle[Any]) -> str:
    if handle.duplicate:
        return f"{handle.id}: a duplicate: an execution with the key {handle.key!r} exists, and nothing new will run."
    return f"{handle.id}: {handle.name} is enqueued."
