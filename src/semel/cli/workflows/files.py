"""`semel workflows export` and `import`: histories as files, for tests, and for those who help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from semel import App, InvalidValue
from semel.cli.exits import Exit, guarded
from semel.cli.loading import load_app
from semel.cli.paper import Paper, note
from semel.cli.replay import read, report
from semel.cli.verb import Debug, Json, database_verb
from semel.cli.workflows.finding import WhichOne, flow_of
from semel.cli.workflows.timeline import NOTHING, timeline
from semel.flow.history import read_history
from semel.settings import Settings


@database_verb()
async def export(
    app: App,
    paper: Paper,
    which: WhichOne,
    output: Annotated[Path | None, typer.Option(help="Write it here instead of on stdout.")] = None,
) -> None:
    """Write the history of a workflow or an entity as JSON, to be replayed against other code.

    It holds the input or the state, and every result: look at it before you give it away.
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
    if paper.as_json:
        paper.data({"id": handle.id, "key": handle.key, "output": str(output)})
    else:
        note(f"The history of {handle.key} is in {output}.")
        paper.next("replay", "module:app", "--file", str(output))


def import_(
    file: Annotated[Path, typer.Argument(help="What semel workflows export wrote.", show_default=False)],
    replay: Annotated[
        str | None, typer.Option(metavar="MODULE:APP", help="Replay it against this code as well.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Read an exported history and show it; needs no database."""

    def work() -> Exit:
        app = None if replay is None else load_app(replay)
        paper = Paper(as_json, Settings() if app is None else app.settings)
        text = read(file)
        head, events = read_history(text)
        if app is not None:
            return report(paper, [app.replay_history(text)])
        if as_json:
            paper.data({**head, "events": events})
            return Exit.OK
        for label, value in head.items():
            paper.line(f"{label:<12}{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")
        paper.line()
        timeline(paper, events, NOTHING["entity" if "entity" in head else "workflow"])
        paper.next("replay", "module:app", "--file", str(file))
        return Exit.OK

    guarded(work, debug)
