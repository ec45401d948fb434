"""`semel replay`, `semel workflows export` and `import`: recorded histories, and code that must fit them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from semel import App, InvalidValue, Replayed, Status
from semel.cli.command import Debug, Exit, Json, Target, database_command, guarded, load_app, require_database
from semel.cli.output import Output, console, note
from semel.cli.workflow_timeline import NOTHING, print_timeline
from semel.cli.workflows import WhichOne, flow_of
from semel.flow.history import read_history
from semel.settings import Settings


def replay(
    target: Target,
    since: Annotated[str | None, typer.Option(help="Only executions started within this time, such as 2d.")] = None,
    status: Annotated[Status | None, typer.Option("--status", help="Only executions in this state.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Only executions of this function or class.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Replay at most this many, newest first.")] = 1000,
    file: Annotated[
        list[Path] | None, typer.Option(help="An exported history, instead of the database; may be repeated.")
    ] = None,
    ignore_missing: Annotated[
        bool,
        typer.Option("--ignore-missing", help="Ignore functions that this app does not have: other apps have them."),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Replay recorded histories with this code: semel replay shop:app --since 2d

    Covers workflows, and entities with their state and the message that is being handled. Nothing is written, and no
    step or task runs. Exits with 7 if one would be parked, or waits for a function that this code does not have.
    """

    def work() -> Exit:
        app = load_app(target)
        out = Output(as_json, app.settings)
        if file:
            return report(out, [app.replay_history(read(one)) for one in file])
        require_database(app.settings.url)
        return report(out, asyncio.run(_recorded(app, since, status, name, limit, not ignore_missing)))

    guarded(work, debug, as_json)


def read(file: Path) -> str:
    """Read a text file. InvalidValue: it cannot be read, and why."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidValue(f"cannot read {str(file)!r}: {why}.") from error


async def _recorded(
    app: App, since: str | None, status: Status | None, name: str | None, limit: int, missing: bool
) -> Sequence[Replayed]:
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    err = console(sys.stderr)
    async with app:
        with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
            bar = progress.add_task("replaying", total=None)
            return await app.replay(
                since=since,
                status=status,
                name=name,
                limit=limit,
                missing=missing,
                progress=lambda done, of: progress.update(bar, completed=done, total=of),
            )


def report(out: Output, found: Sequence[Replayed]) -> Exit:
    """Print which histories would be parked, and why; return the exit code."""
    bad = [one for one in found if not one.ok]
    if out.as_json:
        out.data({"replayed": sum(not one.missing for one in found), "parked": bad})
        return Exit.DIFFERS if bad else Exit.OK
    for one in bad:
        out.line(f"{one.key} ({one.name}, {one.id}) would {_fate(one)}:", "bold red")
        if one.expected:
            out.line(f"  journal  {one.expected}")
            out.line(f"  code     {one.found or '-'}{f'  at {one.where}' if one.where else ''}")
        else:
            out.line(f"  {one.error}")
    if not found:
        out.line("There is no history to replay.")
    elif bad:
        parked = [one for one in bad if not one.missing]
        if parked:
            out.line(f"{len(parked)} of {_counted(one for one in found if not one.missing)} would be parked.", "red")
        if names := sorted({one.name for one in bad if one.missing}):
            out.line(f"This code has no function for: {', '.join(names)}.", "red")
        if any(one.expected for one in bad):
            out.line("  Put the change behind ctx.patched('…'), or keep the old code as another version.", "dim")
    else:
        out.line(f"{_counted(found)} replayed: this code can continue all of them.", "green")
    return Exit.DIFFERS if bad else Exit.OK


def _fate(one: Replayed) -> str:
    return "never run" if one.missing else "be parked"


def _counted(found: Iterable[Replayed]) -> str:
    count = len(list(found))
    return f"{count} {'history' if count == 1 else 'histories'}"


@database_command()
async def export(
    app: App,
    out: Output,
    which: WhichOne,
    output: Annotated[Path | None, typer.Option(help="A file to write to instead of stdout.")] = None,
) -> None:
    """Write the history of a workflow or an entity as JSON, to replay it with other code.

    It contains the input or the state, and every result: read it before you share it.
    """
    handle, _ = await flow_of(app, which)
    text = await handle.export()
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidValue(f"cannot write {str(output)!r}: {error.strerror}.") from error
    if out.as_json:
        out.data({"id": handle.id, "key": handle.key, "output": str(output)})
    else:
        note(f"The history of {handle.key} is in {output}.")
        out.next("replay", "module:app", "--file", str(output))


def import_(
    file: Annotated[Path, typer.Argument(help="A file that semel workflows export wrote.", show_default=False)],
    replay: Annotated[str | None, typer.Option(metavar="MODULE:APP", help="Replay it with this code as well.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show an exported history; needs no database."""

    def work() -> Exit:
        app = None if replay is None else load_app(replay)
        out = Output(as_json, Settings() if app is None else app.settings)
        text = read(file)
        head, events = read_history(text)
        if app is not None:
            return report(out, [app.replay_history(text)])
        if as_json:
            out.data({**head, "events": events})
            return Exit.OK
        for label, value in head.items():
            out.line(f"{label:<12}{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")
        out.line()
        print_timeline(out, events, NOTHING["entity" if "entity" in head else "workflow"])
        out.next("replay", "module:app", "--file", str(file))
        return Exit.OK

    guarded(work, debug, as_json)
