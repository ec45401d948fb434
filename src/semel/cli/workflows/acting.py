"""`semel workflows signal`, `cancel`, `terminate`, `reset`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from semel import App, Execution, InvalidValue, Status
from semel.cli.exits import Exit
from semel.cli.paper import Paper
from semel.cli.verb import database_verb
from semel.cli.workflows.finding import Which, WhichOne, flow_of, workflow_of
from semel.cli.workflows.listing import is_parked


@database_verb()
async def signal(
    app: App,
    paper: Paper,
    which: Which,
    name: Annotated[str, typer.Argument(help="The name that ctx.wait_signal waits for.")],
    payload: Annotated[str | None, typer.Argument(metavar="[JSON]", help="What to send with it.")] = None,
    dedup_key: Annotated[str | None, typer.Option(help="Sent again with the same one, it counts once.")] = None,
) -> None:
    """Send a signal: semel workflows signal order-1 approved true"""
    handle, _ = await workflow_of(app, which)
    await handle.signal(name, _json(payload), dedup_key=dedup_key)
    if paper.as_json:
        paper.data({"id": handle.id, "key": handle.key, "signal": name})
    else:
        paper.line(f"{name!r} is on its way to {handle.key}.")
        paper.next("workflows", "show", handle.key or handle.id)


def _json(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidValue(
            f"the payload {text!r} is not JSON: {error}. Quote it for the shell, such as '\"yes\"'."
        ) from None


@database_verb()
async def cancel(app: App, paper: Paper, which: WhichOne) -> Exit:
    """Ask a workflow or an entity to stop; its code may clean up first."""
    handle, before = await flow_of(app, which)
    return _ended(paper, before, before.status if before.status.terminal else await handle.cancel())


@database_verb()
async def terminate(
    app: App,
    paper: Paper,
    which: WhichOne,
    why: Annotated[str, typer.Option(help="Kept with it, for those who wonder.")] = "terminated",
) -> Exit:
    """End a workflow or an entity at once; its code hears nothing of it."""
    handle, before = await flow_of(app, which)
    return _ended(paper, before, before.status if before.status.terminal else await handle.terminate(why))


def _ended(paper: Paper, before: Execution, status: Status) -> Exit:
    id, key = before.id, before.key
    had_ended = before.status.terminal or (status.terminal and status is not Status.CANCELLED)
    if paper.as_json:
        cancelled = not had_ended or status is Status.CANCELLED
        paper.data({"id": id, "key": key, "status": status, "cancelled": cancelled})
    elif had_ended:
        paper.line(f"{key} had ended before: {status}.")
    elif status is Status.CANCELLED:
        paper.line(f"{key} is cancelled.")
    else:
        paper.line(f"{key} is asked to stop.")
        if is_parked(before):
            paper.line("It is parked: it hears of that once there is code that can go on. To end it now:")
            paper.next("workflows", "terminate", key or id)
        else:
            paper.next("workflows", "show", key or id)
    return Exit.CONFLICT if had_ended else Exit.OK


@database_verb()
async def reset(
    app: App,
    paper: Paper,
    which: Which,
    to: Annotated[
        str, typer.Option(help="Before the answer to this command (its number, or its name), or row:N to keep N rows.")
    ],
) -> None:
    """Go on from before a step, as a new execution: semel workflows reset order-1 --to ship

    What is recorded before it is not run again, and effect keys stay. If it has not ended, it does, and goes on as the
    new one.
    """
    handle, _ = await workflow_of(app, which)
    new = await handle.reset(to)
    if paper.as_json:
        paper.data({"id": handle.id, "key": handle.key, "as": new.id})
    else:
        paper.line(f"{handle.key} ({handle.id}) goes on from before {to} as {new.id}.")
        paper.next("workflows", "show", new.key or new.id)
