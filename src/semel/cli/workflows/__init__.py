"""`semel workflows`: look at workflows and entities and act on them, by key or by execution id."""

from __future__ import annotations

from collections.abc import Callable

import typer

from semel.cli.exits import EPILOG
from semel.cli.workflows.acting import cancel, reset, signal, terminate
from semel.cli.workflows.files import export, import_
from semel.cli.workflows.graph import graph
from semel.cli.workflows.listing import list_workflows
from semel.cli.workflows.timeline import show

workflows = typer.Typer(
    name="workflows",
    help="Look at workflows and entities and act on them, by key or by execution id.",
    epilog=EPILOG,
    no_args_is_help=True,
)

COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Look": {"list": list_workflows, "show": show, "graph": graph},
    "Act": {"signal": signal, "cancel": cancel, "terminate": terminate, "reset": reset},
    "Keep": {"export": export, "import": import_},
}

for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        workflows.command(name, rich_help_panel=panel, epilog=EPILOG)(command)
