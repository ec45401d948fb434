"""The command line: tables for people, JSON for programs, exit codes that mean something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import semel
from semel.cli.cancel import cancel
from semel.cli.check import check
from semel.cli.clean import clean
from semel.cli.demo import demo
from semel.cli.doctor import doctor
from semel.cli.enqueue import enqueue
from semel.cli.entities import entities
from semel.cli.exits import EPILOG
from semel.cli.explain import explain
from semel.cli.listing import list_executions
from semel.cli.migrate import migrate
from semel.cli.queues import queues
from semel.cli.redrive import redrive
from semel.cli.replay import replay
from semel.cli.show import show
from semel.cli.temporal import temporal
from semel.cli.worker import worker
from semel.cli.workers import workers
from semel.cli.workflows import workflows

cli = typer.Typer(
    name="semel",
    help="Semel: durable Python work that happens once.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Begin": {"demo": demo, "migrate": migrate, "worker": worker, "enqueue": enqueue},
    "Look": {
        "list": list_executions, "show": show, "explain": explain, "queues": queues, "workers": workers,
        "doctor": doctor, "check": check,
    },
    "Act": {"cancel": cancel, "redrive": redrive, "clean": clean, "replay": replay},
}  # fmt: skip

for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        cli.command(name, rich_help_panel=panel, epilog=EPILOG)(command)

cli.add_typer(workflows, rich_help_panel="Groups")
cli.add_typer(entities, rich_help_panel="Groups")
cli.add_typer(temporal, rich_help_panel="Groups")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"semel {semel.__version__}")
        raise typer.Exit


@cli.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and leave.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Semel: durable Python work that happens once."""


def main() -> None:
    """The entry point."""
    cli()
