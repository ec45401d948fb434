"""Through PgBouncer: a pool in session mode works as the docs set it up, any other is refused at the door."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg
import pytest
from typer.testing import CliRunner

import semel
from bench.server import free_port, unprivileged
from semel.cli import cli
from semel.engines.postgres.address import LIMITS
from semel.engines.postgres.connection import PLANS
from tests.tidy.house import ROOT
from tests.world import World

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
PAGE = ROOT / "docs" / "how-to" / "postgresql.md"
needs_pgbouncer = pytest.mark.skipif(PROGRAM is None, reason="no pgbouncer here: apt-get install pgbouncer")


def documented() -> dict[str, str]:
    """The settings that the page tells people to make."""
    (block,) = re.findall(r"```ini\n(.+?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for line in block.splitlines() if not line.startswith(";")]
    return dict(line.split(" = ", 1) for line in lines)


def test_the_page_names_every_setting_of_a_session() -> None:
    named = set(documented()["ignore_startup_parameters"].split(","))
    assert named == {*PLANS, *LIMITS, "synchronous_commit"}


@contextmanager
def pool(url: str, folder: Path, **settings: str) -> Iterator[str]:
    """A PgBouncer in front of a server, set up as documented; the URL of the same database through it."""
    assert PROGRAM is not None
    host, database = url.partition("@")[2].split("/")
    name, _, port = host.partition(":")
    folder.mkdir()
    folder.chmod(0o755)
    listens = free_port()
    users, config = folder / "users.txt", folder / "pgbouncer.ini"
    users.write_text('"postgres" ""\n', encoding="utf-8")
    own = {
        "listen_addr": "127.0.0.1",
        "listen_port": str(listens),
        "unix_socket_dir": "",
        "auth_type": "any",
        **documented(),
        **settings,
    }
    text = "".join(f"{key} = {value}\n" for key, value in own.items())
    target = f"{database} = host={name} port={port} dbname={database} user=postgres"
    config.write_text(f"[databases]\n{target}\n[pgbouncer]\n{text}", encoding="utf-8")
    null = subprocess.DEVNULL
    child = subprocess.Popen([PROGRAM, str(config)], stdout=null, stderr=null, cwd=folder, **unprivileged())
    try:
        await_port(listens, child)
        yield f"postgresql://postgres@127.0.0.1:{listens}/{database}"
    finally:
        child.terminate()
        child.wait(30)


def await_port(port: int, child: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert child.poll() is None, f"pgbouncer ended with {child.returncode}"
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError("pgbouncer does not listen")


def shop(url: str) -> tuple[semel.App, semel.Task[..., int]]:
    app = semel.App(url, config=None)

    @app.task
    async def charge(cents: int) -> int:
        return cents

    return app, charge


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place that another user may read: PgBouncer does not run as root."""
    with tempfile.TemporaryDirectory(prefix="semel-pool-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@needs_pgbouncer
async def test_a_session_pool_as_documented_works(postgres_world: World, folder: Path) -> None:
    with pool(postgres_world.url, folder / "pool") as url:
        app, charge = shop(url)
        async with app:
            async with app.worker():
                handles = await app.enqueue_many([(charge.call(n), f"k-{n}") for n in range(20)])
                assert [await handle.result(timeout="60s") for handle in handles] == list(range(20))
            found = {one.what: one for one in await app.doctor()}
            assert not found["pool"].ok
            assert "plan_cache_mode = 'force_generic_plan'" in found["pool"].detail
            admin = await asyncpg.connect(postgres_world.url)
            name = await admin.fetchval("select current_database()")
            for setting, value in PLANS.items():
                await admin.execute(f"alter database {name} set {setting} = '{value}'")
            await admin.close()
    with pool(postgres_world.url, folder / "second") as url:
        app, _ = shop(url)
        async with app:
            assert {one.what: one.ok for one in await app.doctor()}["pool"]


async def test_without_a_pool_doctor_says_nothing_of_one(postgres_world: World) -> None:
    app, _ = shop(postgres_world.url)
    async with app:
        assert "pool" not in {one.what for one in await app.doctor()}


@needs_pgbouncer
@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_a_pool_that_shares_sessions_is_refused_at_the_door(
    postgres_world: World, folder: Path, mode: str
) -> None:
    with pool(postgres_world.url, folder / "pool", pool_mode=mode) as url:
        for _ in range(3):  # a new process each time: what the pool has open already must not matter
            app, charge = shop(url)
            async with app:
                for call in (app.enqueue(charge, 1), app.find("k"), app.doctor(), app.migrate()):
                    with pytest.raises(semel.EngineError, match="pool_mode = session") as caught:
                        await call
                    assert not isinstance(caught.value, semel.EngineUnavailable)
                with pytest.raises(semel.EngineError, match="pool_mode = session"):
                    async with app.worker():
                        pass
    assert await postgres_world.count("semel_execution") == 0


@needs_pgbouncer
async def test_a_busy_transaction_pool_is_refused(postgres_world: World, folder: Path) -> None:
    """Other clients have used several of its sessions before."""
    with pool(postgres_world.url, folder / "pool", pool_mode="transaction") as url:
        others = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(5)]
        for other in others:
            await other.execute("begin")
        for other in others:
            await other.execute("commit")
        app, charge = shop(url)
        async with app:
            with pytest.raises(semel.EngineError, match="pool_mode = session"):
                await app.enqueue(charge, 1)
        for other in others:
            await other.close()


@needs_pgbouncer
async def test_the_error_of_a_pool_that_refuses_settings_names_them(postgres_world: World, folder: Path) -> None:
    with pool(postgres_world.url, folder / "pool", ignore_startup_parameters="") as url:
        app, charge = shop(url)
        async with app:
            with pytest.raises(semel.EngineError, match=r"set ignore_startup_parameters = .*enable_sort.*jit"):
                await app.enqueue(charge, 1)


@needs_pgbouncer
def test_the_doctor_of_the_command_line_names_the_pool(postgres_world: World, folder: Path) -> None:
    with pool(postgres_world.url, folder / "pool", pool_mode="transaction") as url:
        done = CliRunner().invoke(cli, ["doctor"], env={"SEMEL_URL": url, "COLUMNS": "400"})
        assert done.exit_code == 5, done.output
        assert "pool_mode = session" in done.output
