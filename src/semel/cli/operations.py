"""`semel migrate`, `doctor`, `queues`, `workers` and `clean`."""

from __future__ import annotations

import dataclasses
import sys
from datetime import timedelta
from pathlib import Path

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from semel import App
from semel.cli.command import Exit, database_command, missing_file
from semel.cli.output import Output, ago, console, when
from semel.contract.durations import format_duration


@database_command(creates=True)
async def migrate(app: App, out: Output) -> None:
    """Create or update the tables. Safe to run at any time, concurrently, and again after a crash."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    err = console(sys.stderr)
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task("checking the tables", total=None)
        applied = await app.migrate(lambda label: progress.update(task, description=f"applying {label}"))
    if out.as_json:
        out.data({"applied": list(applied)})
        return
    for label in applied:
        out.line(f"applied {label}", "green")
    out.line("The tables are up to date." if applied else "Nothing to do: the tables are up to date.")
    if applied:
        out.next("doctor")
        out.next("worker", "module:app")


@database_command(creates=True, takes_app=True)
async def doctor(app: App, out: Output) -> Exit:
    """Check everything that could be wrong: semel doctor shop:app. Exits with 1 if something is."""
    missing = missing_file(app.settings.url)
    if missing is not None:
        _report_no_database(out, missing)
        return Exit.UNAVAILABLE
    findings = await app.doctor()
    bad = [finding for finding in findings if not finding.ok]
    if out.as_json:
        out.data({"ok": not bad, "findings": findings})
    else:
        mark = {True: Text("ok", "green"), False: Text("NOT OK", "bold red")}
        out.table(("", "What", "Found"), [(mark[f.ok], f.what, f.detail) for f in findings])
        out.line(f"{len(bad)} not ok." if bad else "Everything is ok.", "bold red" if bad else "green")
    return Exit.FAILED if bad else Exit.OK


def _report_no_database(out: Output, path: Path) -> None:
    """Say that nothing has been created yet, without creating it."""
    detail = f"there is no database yet: your app creates {str(path)!r} on first use, and so does semel migrate"
    if out.as_json:
        out.data({"ok": False, "findings": [{"ok": False, "what": "database", "detail": detail}]})
        return
    out.line(f"{detail[0].upper()}{detail[1:]}.")
    out.next("migrate")


@database_command()
async def queues(app: App, out: Output) -> None:
    """Show queues, how much work they hold, and their settings."""
    found = await app.queues()
    if out.as_json:
        out.data(found)
        return
    if not found:
        out.line("There are no queues yet: a queue appears with its first task.")
        return
    rows = []
    for queue in found:
        limits = dataclasses.asdict(queue.settings) | {"rate_limit": queue.settings.rate_limit}
        limits_text = [f"{name} {_format(value)}" for name, value in limits.items() if value is not None]
        rows.append((queue.name, str(queue.ready), str(queue.running), str(queue.delayed), ", ".join(limits_text)))
    out.table(("Queue", "Ready", "Running", "Delayed", "Settings"), rows)
    out.next("list", "--queue", found[0].name)


def _format(value: object) -> str:
    return format_duration(value) if isinstance(value, timedelta) else str(value)


@database_command()
async def workers(app: App, out: Output) -> None:
    """Show the running workers, which hold a lease."""
    found = await app.workers()
    if out.as_json:
        out.data(found)
        return
    if not found:
        out.line("No worker is running.")
        out.next("worker", "module:app")
        return
    rows = [(w.name, w.queues, ago(w.started_at), when(w.expires_at)) for w in found]
    out.table(("Worker", "Queues", "Started", "Lease until"), rows)


@database_command()
async def clean(app: App, out: Output) -> None:
    """Delete what is past its retention, as workers do every hour."""
    looked = await app.clean()
    if out.as_json:
        out.data({"executions": looked})
    else:
        out.line(f"Checked {looked} executions that are past their retention or their window.")
