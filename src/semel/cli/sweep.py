"""`semel sweep`: run a sweeper now, or see what it would do."""

from __future__ import annotations

import traceback
from typing import Annotated, Any

import typer
from rich.text import Text

from semel import App, InvalidValue, SemelError, SweepOutcome, SweepReport
from semel.cli.command import CommandFailed, Exit, database_command
from semel.cli.output import Output, brief, when
from semel.records import to_json
from semel.sweepers import read_report

STYLES = {
    SweepOutcome.STARTED: "green",
    SweepOutcome.UNDER_WAY: "cyan",
    SweepOutcome.COMPLETED: "yellow",
    SweepOutcome.ERROR: "bold red",
    SweepOutcome.RECENT: "dim",
}
DETAIL = 120
"""Characters of what is said about one row."""


@database_command(takes_app=True)
async def sweep(
    app: App,
    out: Output,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the sweeper.", show_default=False)],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what it would do with each row, and start nothing.")
    ] = False,
    timeout: Annotated[
        str, typer.Option(help="Without MODULE:APP: how long to wait for the worker that runs it.")
    ] = "60s",
) -> Exit:
    """Run a sweeper now: semel sweep stuck-tenants shop:app --dry-run

    With MODULE:APP it runs in this process. Without, a worker runs it, and it is on record as a run of its schedule.
    Exits with 1 if a row could not be recovered: its execution completed, or it could not be started.
    """
    if name in app.sweepers.declared:
        try:
            report = await app.sweep(name, dry_run=dry_run)
        except SemelError:
            raise
        except Exception as error:  # of the function, which is not ours
            text = f"{''.join(traceback.format_exception(error))}The function of sweeper {name} raised."
            raise CommandFailed(text, Exit.FAILED) from error
    elif len(app.tasks):
        raise InvalidValue(
            f"this app has no sweeper {name!r}. There are: {', '.join(app.sweepers.declared) or 'none'}."
        )
    elif dry_run:
        raise InvalidValue("--dry-run calls your function: give your app, such as: semel sweep NAME shop:app --dry-run")
    else:
        await app.sweepers.get(name)
        handle = await app.schedules.trigger(name)
        report = read_report(await handle.output(timeout))
    _print(out, report, dry_run)
    return Exit.FAILED if report.completed or report.error else Exit.OK


def _print(out: Output, report: SweepReport, dry_run: bool) -> None:
    if out.as_json:
        out.data({**to_json(report), "stuck": report.stuck, "dry_run": dry_run})
        return
    rows: list[tuple[Any, ...]] = [
        (row.key, row.name, Text(row.outcome.value, STYLES[row.outcome]), brief(row.detail, DETAIL))
        for row in report.rows
    ]
    if rows:
        out.table(("Key", "Runs", "Would be" if dry_run else "Became", "Detail"), rows)
    out.line(f"{report.sweeper}, stuck since before {when(report.before)}: {report}.")
    if dry_run and report.started:
        out.line("Nothing was started: this was a dry run.", "dim")
