"""A PostgreSQL of a test's own, which can be crashed and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.server import ADDRESS, Postgres, await_postgres, free_port, postgres_binaries, unprivileged

SETTINGS = {"fsync": "on", "shared_buffers": "32MB", "max_connections": "60"}


class Fragile(Postgres):
    """A server that does not live for ever."""

    def __init__(self, data: Path, settings: dict[str, str]) -> None:
        super().__init__(postgres_binaries(), free_port())
        self._settings = SETTINGS | settings
        self._data = data
        self._owner = unprivileged()
        self._child: subprocess.Popen[bytes] | None = None

    def initialise(self) -> None:
        """Make the cluster."""
        make = [str(self.bin / "initdb"), "-D", str(self._data), "-U", "postgres", "--auth=trust", "--encoding=utf8"]
        subprocess.run(make, capture_output=True, check=True, timeout=60, cwd=self._data, **self._owner)

    def start(self) -> None:
        """And wait until it answers."""
        options = [f"--{name}={value}" for name, value in (self._settings | ADDRESS).items()]
        command = [str(self.bin / "postgres"), "-D", str(self._data), f"--port={self.port}", *options]
        null = subprocess.DEVNULL
        self._child = subprocess.Popen(command, stdout=null, stderr=null, cwd=self._data, **self._owner)
        await_postgres(self, self._child)

    def promote(self) -> None:
        """Let a standby become the primary, and wait until it takes writes."""
        self.sql("select pg_promote(true, 60)")

    def freeze(self) -> None:
        """Stop the server and every one of its processes as they are: connections stay open and nothing answers."""
        self._signal_all(signal.SIGSTOP)
        assert self._child is not None
        for pid in [self._child.pid, *children_of(self._child.pid)]:
            await_stop(pid)

    def thaw(self) -> None:
        """Let a frozen server go on."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, how: signal.Signals) -> None:
        assert self._child is not None
        for pid in [self._child.pid, *children_of(self._child.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)

    def end(self, how: signal.Signals) -> None:
        """SIGQUIT is `stop -m immediate`: no clean-up at all. SIGINT is a fast, clean one."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(how)
            self._child.wait(30)


def await_stop(pid: int) -> None:
    """Wait until a process that was sent SIGSTOP has stopped: until then it may still answer."""
    for _ in range(2000):
        with contextlib.suppress(FileNotFoundError):
            if Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "TtZ":
                time.sleep(0.005)
                continue
        return
    raise AssertionError(f"process {pid} does not stop")


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that still run."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in found.split()]


@contextmanager
def fragile_postgres(**settings: str) -> Iterator[Fragile]:
    """Running at first."""
    with _folder() as data:
        server = Fragile(data, settings)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.end(signal.SIGINT)


@contextmanager
def standby_of(primary: Fragile) -> Iterator[Fragile]:
    """A streaming replica of a server, made by a base backup."""
    with _folder() as data:
        server = Fragile(data, {"hot_standby": "on"})
        copy = [str(server.bin / "pg_basebackup"), "-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres"]
        copy += ["-D", str(data), "-R", "-X", "stream", "-c", "fast"]
        subprocess.run(copy, capture_output=True, check=True, timeout=60, cwd=data, **unprivileged())
        server.start()
        try:
            yield server
        finally:
            server.end(signal.SIGINT)


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for a server's data, which belongs to whoever runs it."""
    with tempfile.TemporaryDirectory(prefix="semel-fragile-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        data = folder / "data"
        data.mkdir(mode=0o700)
        if owner := unprivileged():
            os.chown(data, owner["user"], owner["group"])
        yield data
