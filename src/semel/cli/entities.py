"""`semel entities failed` and `redrive`: messages of entities that failed, and sending them again."""

from __future__ import annotations

from typing import Annotated

import typer

from semel import App
from semel.cli.command import Exit, database_command
from semel.cli.output import Output, when

Key = Annotated[str, typer.Argument(metavar="KEY", help="Class/id of the entity.", show_default=False)]


AnyKey = Annotated[
    str | None,
    typer.Argument(metavar="KEY", help="Class/id of the entity. Default: all entities.", show_default=False),
]


@database_command()
async def failed(app: App, out: Output, key: AnyKey = None) -> None:
    """List messages that failed and were not sent again, newest first."""
    found = await app.failed_messages(key)
    if out.as_json:
        out.data(found)
        return
    rows = [
        (one.entity, str(one.number), one.handler, one.dedup_key or "", when(one.failed_at), str(one.error))
        for one in found
    ]
    out.table(("Entity", "#", "Handler", "Key", "Failed", "Error"), rows)
    if found:
        out.next("entities", "redrive", found[0].entity)


@database_command()
async def redrive(
    app: App,
    out: Output,
    key: Key,
    number: Annotated[
        int | None, typer.Argument(help="The number of a message, from `entities failed`. Default: all.")
    ] = None,
) -> Exit:
    """Send failed messages again, oldest first, each under its own key."""
    sent = await app.redrive_messages(key, number)
    if out.as_json:
        out.data({"redriven": sent})
    else:
        out.line(f"Sent {len(sent)} again." if sent else f"No message of {key} has failed.")
        out.next("entities", "failed", key)
    return Exit.OK
