"""`semel outbox`: make its tables, look at its rows, try failed ones again, delete old ones."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.text import Text

from semel import App, InvalidValue, OutboxEvent, OutboxStatus
from semel.cli.command import database_command
from semel.cli.output import Output, ago, brief, when
from semel.cli.schedule_options import read_time

STYLES = {OutboxStatus.PENDING: "cyan", OutboxStatus.PROCESSED: "green", OutboxStatus.FAILED: "bold red"}
SHOWN = 4000
ERROR_SHOWN = 80

Id = Annotated[int, typer.Argument(metavar="ID", help="The id of the row.", show_default=False)]


@database_command(outbox=True)
async def init(
    app: App,
    out: Output,
    print_: Annotated[bool, typer.Option("--print", help="Print the SQL, and change nothing.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="With --print: the SQL that removes the tables.")] = False,
) -> None:
    """Make the tables of an outbox in the database of your business rows. Safe to run again."""
    if drop and not print_:
        raise InvalidValue("--drop only prints: review the SQL, and run it yourself.")
    if print_:
        sql = app.outbox.sql(drop=drop)
        if out.as_json:
            out.data({"sql": sql})
        else:
            typer.echo(sql.rstrip())
        return
    await app.outbox.init()
    if out.as_json:
        out.data({"ok": True})
    else:
        out.line("The outbox is there. Have somebody serve it: semel relay MODULE:APP --database URL", "green")


@database_command(outbox=True)
async def list_rows(
    app: App,
    out: Output,
    status: Annotated[OutboxStatus | None, typer.Option(help="Only rows in this status.", show_default=False)] = None,
    before: Annotated[
        int | None, typer.Option(help="The next page: the last id of this one.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many to show.")] = 20,
) -> None:
    """List rows of the outbox, newest first."""
    found = await app.outbox.list(status=status, before=before, limit=limit)
    if out.as_json:
        out.data(found)
        return
    if not found:
        out.line("There are no such rows.")
        return
    rows = [
        (
            str(row.id),
            row.event_type,
            row.key or "",
            Text(row.status.value, STYLES[row.status]),
            f"{row.retry_count}/{row.max_retries}",
            ago(row.created_at),
            brief(row.last_error or "", ERROR_SHOWN),
        )
        for row in found
    ]
    out.table(("Id", "Type", "Key", "Status", "Retries", "Written", "Last error"), rows)


@database_command(outbox=True)
async def show(app: App, out: Output, id: Id) -> None:
    """Show a row of the outbox with all that it holds."""
    row = await app.outbox.get(id)
    if out.as_json:
        out.data(row)
        return
    _describe(out, row)


def _describe(out: Output, row: OutboxEvent) -> None:
    out.line(f"Row {row.id} ({row.event_type}) is {row.status}", "bold")
    facts = {
        "key": row.key,
        "aggregate": row.aggregate_id,
        "order": None if row.order_key is None else f"{row.order_key}, on failure {row.on_failure}",
        "execution": row.execution_id,
        "written": when(row.created_at),
        "processed": when(row.processed_at),
        "retries": f"{row.retry_count} of {row.max_retries}",
        "next attempt": when(row.next_attempt_at) if row.status is OutboxStatus.PENDING else None,
        "taken by": row.leased_by,
        "last error": row.last_error,
        "payload": brief(json.dumps(row.payload, ensure_ascii=False), SHOWN),
    }
    for name, value in facts.items():
        if value:
            out.line(f"  {name}: {value}")
    if row.status is OutboxStatus.FAILED:
        out.line(f"  next: semel outbox redrive {row.id}", "dim")


@database_command(outbox=True)
async def redrive(
    app: App,
    out: Output,
    id: Annotated[int | None, typer.Argument(metavar="ID", help="The id of the row.", show_default=False)] = None,
    failed: Annotated[bool, typer.Option("--failed", help="All rows that have failed, up to --limit.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Of those, at most so many, oldest first.")] = 1000,
    processed_since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="All rows that were processed at this time or later: the engine was restored from a backup.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Try a row again that has failed for good, or all such rows; after a restore also those that were processed."""
    if [id is not None, failed, processed_since is not None].count(True) != 1:
        raise InvalidValue(
            "give the id of a row, or --failed for all that have failed, or --processed-since with the time of the "
            "backup that the engine was restored from."
        )
    if processed_since is not None:
        count = await app.outbox.redrive_processed(read_time(processed_since, "--processed-since"))
    elif id is None:
        count = await app.outbox.redrive_failed(limit=limit)
    else:
        await app.outbox.redrive(id)
        count = 1
    if out.as_json:
        out.data({"redriven": count})
    else:
        out.line(f"{count} rows are tried again." if id is None else f"Row {id} is tried again.")


@database_command(outbox=True)
async def purge(
    app: App,
    out: Output,
    status: Annotated[OutboxStatus, typer.Option(help="Which rows: processed or failed.")] = OutboxStatus.PROCESSED,
    older_than: Annotated[str, typer.Option(help="Only rows that were written so long ago.")] = "7d",
) -> None:
    """Delete rows that were processed, or have failed for good. Relays delete processed ones by themselves."""
    count = await app.outbox.purge(status, older_than=older_than)
    if out.as_json:
        out.data({"deleted": count})
    else:
        out.line(f"{count} rows are deleted.")
