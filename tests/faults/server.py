"""A PostgreSQL of a test's own, which can be crashed and started again."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.server import ADDRESS, Postgres, await_postgres, free_port, postgres_binaries, unprivileged

SETTINGS = {"fsync": "on", "shared_buffers": "32MB", "max_connections": "60"}


class Fragile(Postgres):
    """A server that does not live for ever."""

    def __init__(self, data: Path) -> None:
        super().__init__(postgres_binaries(), free_port())
        self._data = data
        self._owner = unprivileged()
        self._child: subprocess.Popen[bytes] | None = None

    def initialise(self) -> None:
        """Make the cluster."""
        make = [str(self.bin / "initdb"), "-D", str(self._data), "-U", "postgres", "--auth=trust", "--encoding=utf8"]
        subprocess.run(make, capture_output=True, check=True, timeout=60, cwd=self._data, **self._owner)

    def start(self) -> None:
        """And wait until it answers."""
        options = [f"--{name}={value}" for name, value in (SETTINGS | ADDRESS).items()]
        command = [str(self.bin / "postgres"), "-D", str(self._data), f"--port={self.port}", *options]
        null = subprocess.DEVNULL
        self._child = subprocess.Popen(command, stdout=null, stderr=null, cwd=self._data, **self._owner)
        await_postgres(self, self._child)

    def end(self, how: signal.Signals) -> None:
        """SIGQUIT is `stop -m immediate`: no clean-up at all. SIGINT is a fast, clean one."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(how)
            self._child.wait(30)


@contextmanager
def fragile_postgres() -> Iterator[Fragile]:
    """Running at first."""
    with tempfile.TemporaryDirectory(prefix="semel-fragile-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        data = folder / "data"
        data.mkdir(mode=0o700)
        server = Fragile(data)
        if server._owner:
            import os

            os.chown(data, server._owner["user"], server._owner["group"])
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.end(signal.SIGINT)
