"""Every command on the pages about backup, failover and upgrades is typed as it stands there, and ends well."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from signal import SIGQUIT

import pytest

import semel
from bench.server import Postgres
from tests.docs.pages import DOCS, ROOT, blocks
from tests.faults.server import fragile_postgres, standby_of

pytestmark = pytest.mark.slow

BACKUP, FAILOVER, UPGRADE = (
    DOCS / "how-to" / f"{name}.md" for name in ("back-up-and-restore", "survive-a-failover", "upgrade")
)
SHOP = """
import semel
app = semel.App()

@app.task
async def charge(order_id: str) -> str:
    return order_id

@app.workflow
async def order(ctx: semel.Context) -> str:
    return await ctx.execute_task(charge, "o-1")
"""


def type_commands(
    page: Path,
    folder: Path,
    binaries: Path,
    instead: Mapping[str, str],
    when: Mapping[str, Callable[[], None]] = {},
    **variables: str,
) -> list[str]:
    """Type the commands of a page one after the other in one shell; with `instead` of what stands there.

    A block that comes `after="…"` something waits for it: what makes it so is in `when`. What was typed.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SEMEL_", "PG"))}
    path = [str(Path(sys.executable).parent), str(binaries), env.get("PATH", "")]
    env |= {"PATH": os.pathsep.join(path), "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(folder)])}
    env |= variables
    typed = []
    for block in blocks(page):
        if block.language != "console":
            continue
        for what, make in when.items():
            if what in block.marks:
                make()
        lines = [line.removeprefix("$ ") for line in block.body.splitlines() if line.startswith("$ ")]
        script = "\n".join(lines)
        for old, new in instead.items():
            script = script.replace(old, new)
        state = folder / "exported"
        whole = f"set -eu\n[ -e {state} ] && . {state}\n{script}\nexport -p > {state}\n"
        done = subprocess.run(
            ["bash", "-c", whole], cwd=folder, env=env, capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == 0, f"{page.name}:{block.line}\n{script}\n{done.stdout}{done.stderr}"
        typed += lines
    assert typed, f"{page.name} has no commands"
    return typed


async def run_one(url: str, key: str) -> str:
    """Run a task under a key; the id of its execution."""
    app = semel.App(url, config=None, auto_migrate=True)

    @app.task
    async def charge(order_id: str) -> str:
        return order_id

    async with app, app.worker():
        handle = await app.enqueue(charge, key, task_id=key)
        assert await handle.result(timeout="60s") == key
        return handle.id


async def find(url: str, key: str) -> str | None:
    async with semel.App(url, config=None) as app:
        found = await app.find(key)
        return None if found is None else found.id


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    return tmp_path


@contextmanager
def database(server: Postgres, name: str) -> Iterator[str]:
    server.sql(f"create database {name}")
    yield server.url(name)


async def test_what_was_backed_up_is_there_after_a_restore(folder: Path) -> None:
    """On a server of its own: a base backup is of a whole one."""
    with fragile_postgres() as server, database(server, "shop") as url:
        before = await run_one(url, "before")
        kept = await run_one(f"sqlite:///{folder}/semel.db", "kept")
        restored = url.replace("/shop", "/shop_restored")
        instead = {
            "postgresql://shop@db.example.org/shop_restored": restored,
            "postgresql://shop@db.example.org/shop": url,
        }
        type_commands(BACKUP, folder, server.bin, instead)
        assert await find(restored, "before") == await find(url, "before") == before
        assert await find(f"sqlite:///{folder}/semel.db", "kept") == kept


async def test_a_failover_as_described_keeps_what_was_acknowledged(folder: Path) -> None:
    with fragile_postgres() as primary, standby_of(primary) as standby:
        both = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres"
        await run_one(both, "early")
        ids: list[str] = []

        def lose_the_primary() -> None:
            # The page has made replication synchronous by now: what is acknowledged is on the standby.
            ids.append(primary.sql("select id from semel_execution where key = 'early'"))
            primary.end(SIGQUIT)

        instead = {"postgresql://shop@db1.example.org,db2.example.org/shop": both}
        urls = {"PRIMARY": primary.url("postgres"), "STANDBY": standby.url("postgres")}
        typed = type_commands(FAILOVER, folder, primary.bin, instead, {"the primary is gone": lose_the_primary}, **urls)
        assert any("pg_promote" in line for line in typed)
        assert await find(both, "early") == ids[0]
        await run_one(both, "late")


async def test_an_upgrade_as_described_keeps_everything(folder: Path) -> None:
    with fragile_postgres() as old, fragile_postgres() as new, database(old, "shop") as url:
        before = await run_one(url, "before")
        server = f"postgresql://postgres@127.0.0.1:{new.port}"
        typed = type_commands(
            UPGRADE, folder, old.bin, {'"$NEW_SERVER"': f'"{server}/postgres"'}, SEMEL_URL=url, NEW_SERVER=server
        )
        assert "semel migrate" in typed
        assert await find(f"{server}/shop", "before") == before
