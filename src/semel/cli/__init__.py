"""The command line: tables for people, JSON for programs, exit codes that scripts can rely on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import semel
from semel.cli import backfills, entities, events, outbox, schedules, schema, workflows
from semel.cli.apply import apply
from semel.cli.check import check
from semel.cli.command import EPILOG, JsonErrors
from semel.cli.demo import demo
from semel.cli.enqueue import enqueue
from semel.cli.executions import cancel, explain, list_executions, redrive, show
from semel.cli.histories import export, import_, replay
from semel.cli.operations import clean, doctor, migrate, queues, workers
from semel.cli.reconcile import reconcile
from semel.cli.relay import relay
from semel.cli.sweep import sweep
from semel.cli.temporal_dev import dev
from semel.cli.worker import worker
from semel.cli.workflow_timeline import graph, show_workflow

Commands = dict[str, dict[str, Callable[..., None]]]
"""Commands by name, under the heading that the help shows them under."""

COMMANDS: Commands = {
    "Begin": {
        "demo": demo,
        "migrate": migrate,
        "worker": worker,
        "relay": relay,
        "enqueue": enqueue,
        "apply": apply,
        "publish": events.publish,
    },
    "Look": {
        "list": list_executions,
        "show": show,
        "explain": explain,
        "queues": queues,
        "workers": workers,
        "doctor": doctor,
        "check": check,
        "reconcile": reconcile,
    },
    "Act": {"cancel": cancel, "redrive": redrive, "clean": clean, "replay": replay, "sweep": sweep},
}
WORKFLOW_COMMANDS: Commands = {
    "Look": {"list": workflows.list_workflows, "show": show_workflow, "graph": graph},
    "Act": {
        "signal": workflows.signal,
        "cancel": workflows.cancel,
        "terminate": workflows.terminate,
        "reset": workflows.reset,
    },
    "Keep": {"export": export, "import": import_},
}
SCHEDULE_COMMANDS: Commands = {
    "Look": {"list": schedules.list_schedules, "show": schedules.show, "next": schedules.next_slots},
    "Act": {
        "create": schedules.create,
        "edit": schedules.edit,
        "pause": schedules.pause,
        "resume": schedules.resume,
        "trigger": schedules.trigger,
        "backfill": backfills.backfill,
        "delete": schedules.delete,
    },
}
BACKFILL_COMMANDS: Commands = {
    "Look": {"list": backfills.list_backfills, "show": backfills.show_backfill},
    "Act": {"pause": backfills.pause, "resume": backfills.resume, "cancel": backfills.cancel},
}
EVENT_COMMANDS: Commands = {
    "Look": {"list": events.list_events, "show": events.show, "subscriptions": events.list_subscriptions},
    "Act": {"replay": events.replay, "backfill": events.backfill, "pause": events.pause, "resume": events.resume},
}
OUTBOX_COMMANDS: Commands = {
    "Begin": {"init": outbox.init},
    "Look": {"list": outbox.list_rows, "show": outbox.show},
    "Act": {"redrive": outbox.redrive, "purge": outbox.purge},
}
ENTITY_COMMANDS: Commands = {"Look": {"failed": entities.failed}, "Act": {"redrive": entities.redrive}}

cli = typer.Typer(
    name="semel",
    cls=JsonErrors,
    help="Semel: durable Python work that happens once.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _add_commands(to: typer.Typer, commands: Commands) -> None:
    for heading, named in commands.items():
        for name, command in named.items():
            to.command(name, rich_help_panel=heading, epilog=EPILOG)(command)


def _add_group(name: str, help: str, commands: Commands) -> None:
    group = typer.Typer(name=name, help=help, epilog=EPILOG, no_args_is_help=True)
    group.callback()(lambda: None)  # without a callback, a group of one command would be that command
    _add_commands(group, commands)
    cli.add_typer(group, rich_help_panel="Groups", help=help)


_add_commands(cli, COMMANDS)
_add_group("workflows", "Look at workflows and entities and act on them, by key or by execution id.", WORKFLOW_COMMANDS)
_add_group("schedules", "Look at schedules, create and change them, pause, resume and trigger them.", SCHEDULE_COMMANDS)
_add_group("backfills", "Look at backfills of schedules, pause, resume and cancel them.", BACKFILL_COMMANDS)
_add_group("events", "Look at events and what became of them, run them again.", EVENT_COMMANDS)
_add_group("entities", "List failed messages of entities, and send them again.", ENTITY_COMMANDS)
_add_group("outbox", "Make an outbox, look at its rows, try failed ones again.", OUTBOX_COMMANDS)
_add_group("schema", "JSON Schemas of activities, triggers and events.", {"Begin": {"export": schema.export}})
_add_group("temporal", "Run a Temporal server on this machine.", {"Begin": {"dev": dev}})


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"semel {semel.__version__}")
        raise typer.Exit


@cli.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Semel: durable Python work that happens once."""


def main() -> None:
    """The entry point."""
    cli()
