"""The database of an outbox is frozen or locked: calls, relays and commands begin and end in time, and go on after it.

Every verb and command against PostgreSQL and SQLite: tests/faults/test_calls_end.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path

import asyncpg
import psycopg
import pytest

import semel
from semel.transactional.outbox.relay import STOP_WITHIN
from tests.cli import shell
from tests.faults.server import await_stop, fragile_postgres
from tests.outbox.mariadb import INSTALL, MISSING, SERVER, mariadb
from tests.outbox.places import PLACES, Place
from tests.world import SOON, eventually

pytestmark = pytest.mark.slow
BOUND = 2.0
SLACK = 12.0
"""Seconds that a busy machine adds to the bound of a call."""
Freeze = Callable[[], AbstractContextManager[None]]


@contextmanager
def frozen_process(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    await_stop(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Place, Freeze]]:
    """A place on a server of its own, and what freezes that server (or keeps its file locked)."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            place = PLACES["sqlite"](f"sqlite:///{tmp_path}/shop.db")
            freeze: Freeze = lambda: locked(tmp_path / "shop.db")  # noqa: E731
        elif request.param == "postgres":
            server = stack.enter_context(fragile_postgres())
            place = PLACES["postgres"](server.url("postgres"))

            @contextmanager
            def freeze() -> Iterator[None]:
                server.freeze()
                try:
                    yield
                finally:
                    server.thaw()

        else:
            if SERVER is None or INSTALL is None:
                pytest.skip(MISSING)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="semel-frozen-")))
            folder.chmod(0o755)
            url = stack.enter_context(mariadb(folder))
            place = PLACES["mariadb"](f"{url}test")
            pid = int((folder / "pid").read_text())
            asyncio.run(PLACES["mariadb"](f"{url}mysql").sql("create database if not exists test"))
            freeze = lambda: frozen_process(pid)  # noqa: E731
        asyncio.run(place.prepare())
        yield place, freeze


@contextmanager
def locked(file: Path) -> Iterator[None]:
    with closing(sqlite3.connect(file, isolation_level=None, timeout=60)) as other:
        other.execute("begin immediate")
        yield
        other.execute("rollback")


def shop(place: Place, folder: Path, bound: float = BOUND) -> semel.App:
    config = folder / "semel.toml"
    config.write_text(f'call_timeout = "{bound:g}s"\n', encoding="utf-8")
    return semel.App(f"sqlite:///{folder}/engine.db", config=config, outbox=place.url)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds + SLACK


async def test_calls_end_and_a_relay_goes_on_afterwards(stage: tuple[Place, Freeze], tmp_path: Path) -> None:
    place, freeze = stage
    app = shop(place, tmp_path)
    mailed = asyncio.Event()

    @app.outbox_handler("mail")
    async def mail(event: semel.OutboxEvent) -> None:
        mailed.set()

    async with app:
        async with app.relay(poll="100ms") as (running,):
            with freeze():
                for call in (app.outbox.redrive_failed, app.outbox.init, lambda: app.outbox.purge("failed")):
                    with within(BOUND):
                        try:
                            await call()
                        except semel.EngineUnavailable:
                            continue
                    assert call == app.outbox.init, "only tables that are there already need no lock of SQLite"
                await eventually(lambda: running._away)
            async with place.transaction() as connection:
                await app.outbox.add("mail", connection=connection)
            await asyncio.wait_for(mailed.wait(), SOON)
            await eventually(lambda: place.sql("select 1 from outbox_events where status = 'processed'"))
        with freeze():
            with within(BOUND):
                relaying = app.relay(poll="100ms")
                (late,) = await relaying.__aenter__()
            with within(STOP_WITHIN):
                await relaying.__aexit__(None, None, None)
            assert not late.healthy


async def test_a_relay_stops_in_time(stage: tuple[Place, Freeze], tmp_path: Path) -> None:
    """Also if it has not noticed yet: its calls may wait for longer than a relay takes to stop."""
    place, freeze = stage
    app = shop(place, tmp_path, bound=60)
    async with app:
        relaying = app.relay(place.url, place.url, poll="50ms")
        relays = await relaying.__aenter__()
        with freeze():
            with within(STOP_WITHIN):
                await relaying.__aexit__(None, None, None)
            assert [one.healthy for one in relays] == [False, False]


async def test_a_relay_process_is_told_to_stop(stage: tuple[Place, Freeze], tmp_path: Path) -> None:
    place, freeze = stage
    app = shop(place, tmp_path)
    await app.migrate()  # a relay makes no engine
    await app.close()
    arguments = ["relay", "--url", f"sqlite:///{tmp_path}/engine.db", "--database", place.url]
    running = shell.process(*arguments, "--poll", "100ms", cwd=tmp_path)
    try:
        await asyncio.to_thread(shell.await_line, running, "ready")
        with freeze():
            if place.url.startswith("sqlite"):
                await asyncio.to_thread(shell.await_line, running, "waits for its database")
            shell.ask_to_stop(running)
            with within(STOP_WITHIN):
                assert await asyncio.to_thread(running.wait, STOP_WITHIN + SLACK) == 0
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()


async def test_doctor_ends_and_says_so(stage: tuple[Place, Freeze], tmp_path: Path) -> None:
    place, freeze = stage
    async with shop(place, tmp_path) as app:
        await app.migrate()
        with freeze(), within(BOUND * 2):
            found = {one.what: one.ok for one in await app.doctor()}
        assert found["outbox"] is place.url.startswith("sqlite")  # who only reads is not kept from a locked file


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_once_ends(driver: str) -> None:
    with fragile_postgres() as server:
        url = server.url("postgres")
        await PLACES["postgres"](url).prepare()
        connection = await (asyncpg.connect(url) if driver == "asyncpg" else psycopg.AsyncConnection.connect(url))
        try:
            await connection.execute("begin")
            assert await semel.once(connection, "debit:1")
            server.freeze()
            try:
                with within(BOUND), pytest.raises(semel.EngineUnavailable, match=r"once: no answer within 2 s"):
                    await semel.once(connection, "debit:2", timeout="2s")
            finally:
                server.thaw()
        finally:
            await (connection.close(timeout=60) if driver == "asyncpg" else connection.close())
