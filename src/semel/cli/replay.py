"""`semel replay`: would the workflows and entities that there are go on with this code?"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from semel import App, InvalidValue, Replayed, Status
from semel.cli.exits import Exit, guarded
from semel.cli.loading import Target, load_app
from semel.cli.paper import Paper, console
from semel.cli.verb import Debug, Json, must_exist


def replay(
    target: Target,
    since: Annotated[str | None, typer.Option(help="Only those that were begun within, such as 2d.")] = None,
    status: Annotated[Status | None, typer.Option("--status", help="Only those that stand so.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Only those of this function or class.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = 1000,
    file: Annotated[
        list[Path] | None, typer.Option(help="Exported histories instead of the database; may be given again.")
    ] = None,
    ignore_missing: Annotated[
        bool, typer.Option("--ignore-missing", help="Leave out what this app has no function for: others have it.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Try recorded histories against this code: semel replay shop:app --since 2d

    Of workflows, and of entities: their state, and a message that is under way. Nothing is written, and no step or task
    runs. Exits with 7 if one would be parked, or waits for a function that this code does not have.
    """

    def work() -> Exit:
        app = load_app(target)
        paper = Paper(as_json, app.settings)
        if file:
            return report(paper, [app.replay_history(read(one)) for one in file])
        must_exist(app.settings.url)
        return report(paper, asyncio.run(_recorded(app, since, status, name, limit, not ignore_missing)))

    guarded(work, debug)


def read(file: Path) -> str:
    """The text of a file, or one clear line."""
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
                since=since, status=status, name=name, limit=limit, missing=missing,
                progress=lambda done, of: progress.update(bar, completed=done, total=of),
            )  # fmt: skip


def report(paper: Paper, found: Sequence[Replayed]) -> Exit:
    """Tell which would be parked, and why; the code to exit with."""
    bad = [one for one in found if not one.ok]
    if paper.as_json:
        paper.data({"replayed": sum(not one.missing for one in found), "parked": bad})
        return Exit.DIFFERS if bad else Exit.OK
    for one in bad:
        paper.line(f"{one.key} ({one.name}, {one.id}) would {_fate(one)}:", "bold red")
        if one.expected:
            paper.line(f"  journal  {one.expected}")
            paper.line(f"  code     {one.found or '-'}{f'  at {one.where}' if one.where else ''}")
        else:
            paper.line(f"  {one.error}")
    if not found:
        paper.line("There is no history to replay.")
    elif bad:
        parked = [one for one in bad if not one.missing]
        if parked:
            paper.line(f"{len(parked)} of {_counted(one for one in found if not one.missing)} would be parked.", "red")
        if names := sorted({one.name for one in bad if one.missing}):
            paper.line(f"This code has no function for: {', '.join(names)}.", "red")
        if any(one.expected for one in bad):
            paper.line("  Put the change behind ctx.patched('…'), or keep the old code as another version.", "dim")
    else:
        paper.line(f"{_counted(found)} replayed: this code goes on with all of it.", "green")
    return Exit.DIFFERS if bad else Exit.OK


def _fate(one: Replayed) -> str:
    return "never run" if one.missing else "be parked"


def _counted(found: Iterable[Replayed]) -> str:
    count = len(list(found))
    return f"{count} {'history' if count == 1 else 'histories'}"
