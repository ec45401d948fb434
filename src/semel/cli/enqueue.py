"""`semel enqueue`: ask for one execution from the shell."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from semel import App, Call, Handle, InvalidValue, Status
from semel.cli.exits import Exit, guarded
from semel.cli.loading import Target, load_app
from semel.cli.paper import Paper, note
from semel.cli.verb import Debug, Json


class OnDuplicate(StrEnum):
    """What a duplicate gets."""

    RETURN = "return"
    RAISE = "raise"


class Reuse(StrEnum):
    """Which finished executions give their key back."""

    FAILED_ONLY = "failed_only"
    REJECT = "reject"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Wish:
    """Options of one request."""

    options: dict[str, Any]
    wait: bool
    timeout: str | None


def enqueue(
    target: Target,
    task: Annotated[str, typer.Argument(help="The task's name.")],
    given: Annotated[
        str | None,
        typer.Argument(metavar="[JSON]", help="Arguments: an array by position, an object by name."),
    ] = None,
    args: Annotated[str | None, typer.Option(help="Arguments by position: a JSON array.")] = None,
    kwargs: Annotated[str | None, typer.Option(help="Arguments by name: a JSON object.")] = None,
    task_id: Annotated[str | None, typer.Option(help="The key: with it, it happens once.")] = None,
    queue: Annotated[str | None, typer.Option(help="Another queue than the task's.")] = None,
    delay: Annotated[str | None, typer.Option(help="Not before, such as 90s or 1h30m.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher runs first.")] = None,
    on_duplicate: Annotated[OnDuplicate, typer.Option(help="raise: a duplicate exits with 4.")] = OnDuplicate.RETURN,
    reuse: Annotated[Reuse, typer.Option(help="Which finished executions give their key back.")] = Reuse.FAILED_ONLY,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result and show it.")] = False,
    timeout: Annotated[str | None, typer.Option(help="Wait no longer than this (implies --wait).")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Ask for one execution: semel enqueue shop:app charge '["o-1", 9900]' --task-id order-1"""
    options: dict[str, Any] = {
        "task_id": task_id, "queue": queue, "delay": delay, "priority": priority,
        "on_duplicate": on_duplicate.value, "reuse": reuse.value,
    }  # fmt: skip
    wish = Wish(options, wait or timeout is not None, timeout)

    def work() -> Exit:
        app = load_app(target)
        call = _bind(app, task, _arguments(given, args, kwargs))
        return asyncio.run(_enqueue(app, target, call, wish, Paper(as_json, app.settings)))

    guarded(work, debug)


def _arguments(given: str | None, args: str | None, kwargs: str | None) -> tuple[list[Any], dict[str, Any]]:
    by_position = [] if args is None else _json(args, "--args", list)
    by_name = {} if kwargs is None else _json(kwargs, "--kwargs", dict)
    if given is None:
        return by_position, by_name
    if args is not None or kwargs is not None:
        raise InvalidValue("give the arguments as one JSON value or by --args and --kwargs, not both.")
    value = _json(given, "the input", list | dict)
    return (value, {}) if isinstance(value, list) else ([], value)


def _json(text: str, what: str, kind: Any) -> Any:
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
        raise InvalidValue(f"the arguments do not fit {task}{found.shape.signature}: {error}.") from error


async def _enqueue(app: App, target: str, call: Call[Any], wish: Wish, paper: Paper) -> Exit:
    async with app:
        handle: Handle[Any] = await app.enqueue(call, **wish.options)
        answer = {"id": handle.id, "key": handle.key, "name": handle.name, "duplicate": handle.duplicate}
        if not wish.wait:
            if paper.as_json:
                paper.data(answer)
                return Exit.OK
            paper.line(_told(handle))
            paper.next("worker", target)
            paper.next("show", handle.id)
            return Exit.OK
        if not paper.as_json:
            note(_told(handle))
        if not await app.workers():
            note(f"No worker holds a lease. In another shell: semel worker {target}")
        result = await handle.output(timeout=wish.timeout)
        if paper.as_json:
            paper.data({**answer, "status": Status.COMPLETED, "result": result})
        else:
            paper.line(json.dumps(result, ensure_ascii=False))
        return Exit.OK


def _told(handle: Handle[Any]) -> str:
    if handle.duplicate:
        return f"{handle.id}: a duplicate of what has been asked for under {handle.key!r}; nothing new will run."
    return f"{handle.id}: {handle.name} is asked for."
