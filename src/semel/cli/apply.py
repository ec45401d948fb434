"""`semel apply`: publish the schedules and the activities for events that an app declares."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from semel import App, InvalidValue
from semel.cli.command import Debug, Exit, Json, Target, guarded, load_app
from semel.cli.output import Output
from semel.contract.runs import Change, ChangeKind

STYLES = {
    ChangeKind.CREATE: "green",
    ChangeKind.CHANGE: "yellow",
    ChangeKind.KEEP: "dim",
    ChangeKind.DELETE: "bold red",
    ChangeKind.ORPHAN: "yellow",
    ChangeKind.FOREIGN: "yellow",
}
WRITES = (ChangeKind.CREATE, ChangeKind.CHANGE, ChangeKind.DELETE)


def apply(
    target: Target,
    prune: Annotated[bool, typer.Option("--prune", help="Delete what is not declared any more.")] = False,
    take_over: Annotated[bool, typer.Option("--take-over", help="Also change what others have created.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Publish the schedules and events that your app declares: semel apply shop:app

    Shows a plan, asks, and applies all of it or nothing. Safe to run again and by several at once. Pauses stay.
    """

    def work() -> Exit:
        app = load_app(target)
        return asyncio.run(_apply(app, Output(as_json, app.settings), prune, take_over, dry_run, yes))

    guarded(work, debug, as_json)


async def _apply(app: App, out: Output, prune: bool, take_over: bool, dry_run: bool, yes: bool) -> Exit:
    async with app:
        plan = await app.apply(prune=prune, take_over=take_over, dry_run=True)
        writes = [change for change in plan if change.kind in WRITES]
        if not out.as_json:
            _show(out, plan, declared=bool(app.schedules.declared or app.events.declared))
        if dry_run or not writes:
            if out.as_json:
                out.data({"applied": False, "changes": plan})
            return Exit.OK
        if not yes:
            _ask(len(writes))
        done = await app.apply(prune=prune, take_over=take_over)
        if out.as_json:
            out.data({"applied": True, "changes": done})
            return Exit.OK
        out.line(f"Applied: {_count(done)}.", "green")
        out.next("schedules list" if any(one.what == "schedule" for one in done) else "events list")
    return Exit.OK


def _show(out: Output, plan: Sequence[Change], declared: bool) -> None:
    if plan:
        out.table(
            ("Id", "What", "Plan", "Detail"),
            [(one.id, one.what, Text(one.kind.value, STYLES[one.kind]), one.detail) for one in plan],
        )
    if not any(change.kind in WRITES for change in plan):
        out.line(
            "Nothing to do."
            if declared
            else "Nothing to do: this app declares nothing with @app.on_schedule or @app.on_event."
        )


def has_terminal() -> bool:
    """Is there somebody to ask?"""
    return sys.stdin.isatty()


def _ask(count: int) -> None:
    if not has_terminal():
        raise InvalidValue(f"{count} changes are to be made, and there is no terminal to ask on: add --yes.")
    typer.confirm(f"Apply {count} changes?", abort=True, err=True)


def _count(done: Sequence[Change]) -> str:
    words = {ChangeKind.CREATE: "created", ChangeKind.CHANGE: "changed", ChangeKind.DELETE: "deleted"}
    counts = {word: sum(change.kind is kind for change in done) for kind, word in words.items()}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "nothing was left to do"
