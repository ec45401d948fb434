"""A real MariaDB, where Debian's mariadb-server (or another one) is installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

SERVER = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
INSTALL = shutil.which("mariadb-install-db")
MISSING = "MariaDB is not installed (Debian: apt-get install mariadb-server)"
START_WITHIN = 60.0


@contextlib.contextmanager
def mariadb(folder: Path) -> Iterator[str]:
    """A server of its own on loopback; its URL, to which the name of a database is added."""
    assert SERVER is not None
    assert INSTALL is not None
    user = "mysql" if os.geteuid() == 0 else None
    data = folder / "data"
    data.mkdir()
    if user is not None:
        shutil.chown(data, user)
        shutil.chown(folder, user)
    common = [f"--datadir={data}", *([f"--user={user}"] if user else [])]
    quiet = {"check": True, "timeout": 120, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([INSTALL, "--no-defaults", "--auth-root-authentication-method=normal", *common], **quiet)  # type: ignore[call-overload]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = [
        f"--port={port}",
        f"--socket={folder}/s",
        f"--pid-file={folder}/pid",
        "--bind-address=127.0.0.1",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-buffer-pool-size=16M",
        "--skip-name-resolve",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([SERVER, "--no-defaults", *common, *options], stdout=log, stderr=log)
    try:
        _wait(port, process)
        yield f"mysql://root@127.0.0.1:{port}/"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    import pymysql

    end = time.monotonic() + START_WITHIN
    while True:
        assert process.poll() is None, "MariaDB has ended"
        try:
            pymysql.connect(host="127.0.0.1", port=port, user="root").close()
            return
        except pymysql.err.OperationalError:
            assert time.monotonic() < end, "MariaDB does not answer"
            time.sleep(0.05)
