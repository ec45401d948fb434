"""`semel temporal`: a Temporal server on this machine."""

from __future__ import annotations

import typer

from semel.cli.exits import EPILOG
from semel.cli.temporal.dev import dev

temporal = typer.Typer(name="temporal", help="A Temporal server on this machine.", epilog=EPILOG, no_args_is_help=True)


@temporal.callback()
def _group() -> None:
    """A Temporal server on this machine."""  # without a callback, a group of one command is that command


temporal.command("dev", epilog=EPILOG)(dev)
