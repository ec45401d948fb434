"""The command line: tables for people, JSON for programs, exit codes that scripts can rely on."""

from __future__ import annotations

import sys
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

GROUPS: dict[str, tuple[str, Commands]] = {
    "workflows": ("Look at workflows and entities and act on them, by key or by execution id.", WORKFLOW_COMMANDS),
    "schedules": ("Look at schedules, create and change them, pause, resume and trigger them.", SCHEDULE_COMMANDS),
    "backfills": ("Look at backfills of schedules, pause, resume and cancel them.", BACKFILL_COMMANDS),
    "events": ("Look at events and what became of them, run them again.", EVENT_COMMANDS),
    "entities": ("List failed messages of entities, and send them again.", ENTITY_COMMANDS),
    "outbox": ("Make an outbox, look at its rows, try failed ones again.", OUTBOX_COMMANDS),
    "schema": ("JSON Schemas of activities, triggers and events.", {"Begin": {"export": schema.export}}),
    "temporal": ("Run a Temporal server on this machine.", {"Begin": {"dev": dev}}),
}


def make_cli(only: str | None = None) -> typer.Typer:
    """All commands, or `only` the command or group of this name."""
    made = typer.Typer(
        name="semel",
        cls=JsonErrors,
        help="Semel: durable Python work that happens once.",
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_root)
    _add_commands(made, COMMANDS, only)
    for name, (help, commands) in GROUPS.items():
        if only in (None, name):
            group = typer.Typer(name=name, help=help, epilog=EPILOG, no_args_is_help=True)
            group.callback()(lambda: None)  # without a callback, a group of one command would be that command
            _add_commands(group, commands)
            made.add_typer(group, rich_help_panel="Groups", help=help)
    return made


def _add_commands(to: typer.Typer, commands: Commands, only: str | None = None) -> None:
    for heading, named in commands.items():
        for name, command in named.items():
            if only in (None, name):
                to.command(name, rich_help_panel=heading, epilog=EPILOG)(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"semel {semel.__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Semel: durable Python work that happens once."""


cli = make_cli()


def main() -> None:
    """The entry point. Where it is clear which command is meant, only that is built: all take a tenth of a second."""
    asked = sys.argv[1] if len(sys.argv) > 1 else None
    known = asked in GROUPS or any(asked in named for named in COMMANDS.values())
    (make_cli(asked) if known else cli)()
