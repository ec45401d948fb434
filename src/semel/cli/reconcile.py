"""`semel reconcile`: compare declared schedules, records and what runs, once."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.text import Text

from semel import App
from semel.cli.command import Debug, Exit, Json, Target, guarded, load_app
from semel.cli.output import Output


def reconcile(
    target: Target,
    fix: Annotated[bool, typer.Option("--fix", help="Repair what can be repaired, and log it.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="With --fix: delete schedules that are not declared any more.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare declared schedules, records and what runs, once: semel reconcile shop:app

    Changes nothing without --fix. Exits with 6 if something differs and was not repaired.
    """

    def work() -> Exit:
        app = load_app(target)
        return asyncio.run(_reconcile(app, Output(as_json, app.settings), target, fix, prune))

    guarded(work, debug, as_json)


async def _reconcile(app: App, out: Output, target: str, fix: bool, prune: bool) -> Exit:
    async with app:
        found = await app.schedules.reconcile(fix=fix, prune=prune)
    left = [one for one in found if not one.fixed]
    if out.as_json:
        out.data({"fix": fix, "differences": found, "left": len(left)})
        return Exit.FINDINGS if left else Exit.OK
    if not found:
        out.line("Declarations, records and runs agree.", "green")
        return Exit.OK
    rows = [
        (one.schedule, Text(one.kind.value, "yellow"), Text("fixed", "green") if one.fixed else "", one.detail)
        for one in found
    ]
    out.table(("Schedule", "Difference", "", "Detail"), rows)
    if any(one.fixable for one in left) and not fix:
        out.next("reconcile", target, "--fix")
    return Exit.FINDINGS if left else Exit.OK
