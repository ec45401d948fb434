"""`semel entities`: messages of an entity that failed, and sending them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from semel import App
from semel.cli.exits import EPILOG, Exit
from semel.cli.paper import Paper, when
from semel.cli.verb import database_verb

entities = typer.Typer(
    name="entities",
    help="Look at messages of entities that failed, and send them again.",
    epilog=EPILOG,
    no_args_is_help=True,
)
Key = Annotated[str, typer.Argument(metavar="KEY", help="Class/id of the entity.", show_default=False)]


AnyKey = Annotated[
    str | None,
    typer.Argument(metavar="[KEY]", help="Class/id of the entity. Default: all of them.", show_default=False),
]


@database_verb()
async def failed(app: App, paper: Paper, key: AnyKey = None) -> None:
    """List messages that failed and were not sent again, of one entity or of all, newest first."""
    found = await app.failed_messages(key)
    if paper.as_json:
        paper.data(found)
        return
    rows = [
        (one.entity, str(one.number), one.handler, one.dedup_key or "", when(one.failed_at), str(one.error))
        for one in found
    ]
    paper.table(("Entity", "#", "Handler", "Key", "Failed", "Error"), rows)
    if found:
        paper.next("entities", "redrive", found[0].entity)


@database_verb()
async def redrive(
    app: App,
    paper: Paper,
    key: Key,
    number: Annotated[
        int | None, typer.Argument(help="Which one, as `entities failed` lists it. Default: all.")
    ] = None,
) -> Exit:
    """Send messages that failed again, oldest first, each under its own key."""
    sent = await app.redrive_messages(key, number)
    if paper.as_json:
        paper.data({"redriven": sent})
    else:
        paper.line(f"{len(sent)} sent again." if sent else f"No message of {key} has failed.")
        paper.next("entities", "failed", key)
    return Exit.OK


COMMANDS: dict[str, dict[str, Callable[..., None]]] = {"Look": {"failed": failed}, "Act": {"redrive": redrive}}

for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        entities.command(name, rich_help_panel=panel, epilog=EPILOG)(command)
