"""A server that answers no more, has no connection left, or holds a lock: workers stop in time and leak nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import semel
from semel.engines.postgres import address, user_transactions
from tests.cli.shell import ask_to_stop, await_line, process
from tests.faults.server import Fragile, fragile_postgres
from tests.world import World, eventually

CONNECTIONS = 14
UNBORN = """
import pathlib
import semel
app = semel.App({url!r}, config=None)

@app.task
async def work() -> None: ...

pathlib.Path("imported").touch()
"""


@pytest.fixture(scope="module")
def small_server() -> Iterator[Fragile]:
    """A PostgreSQL with few connections, which may be frozen."""
    with fragile_postgres(max_connections=str(CONNECTIONS), superuser_reserved_connections="0", fsync="off") as server:
        yield server


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_worker_stops_in_time_although_the_server_is_frozen(small_server: Fragile) -> None:
    """Running and finished tasks alike: what could not be written runs again after the lease."""
    small_server.sql("create database frozen")
    url, runs = small_server.url("frozen"), []
    async with semel.App(url, config=None, auto_migrate=True) as first, semel.App(url, config=None) as second:
        may_end = asyncio.Event()
        for app in (first, second):

            @app.task(name="work", retry=5)
            async def work(n: int) -> int:
                runs.append(n)
                if n:
                    await may_end.wait()
                return n

        await first.migrate()
        async with first.worker(lease="2s", grace="1s") as worker:
            slow = await first.enqueue(first.tasks["work"], 1)
            await eventually(lambda: runs == [1])
            small_server.freeze()
            try:
                began = time.monotonic()
                await worker.stop()
                await first.close()
                assert time.monotonic() - began < 30  # and not a minute for each statement
            finally:
                small_server.thaw()
        may_end.set()
        async with second.worker(lease="2s"):
            handle = await second.get(slow.id)
            assert await handle.result(timeout="60s") == 1
    assert runs == [1, 1]


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_worker_that_starts_while_the_server_is_frozen_stops_in_time(
    small_server: Fragile, tmp_path: Path
) -> None:
    small_server.sql("create database unborn")
    url = small_server.url("unborn")
    async with semel.App(url, config=None) as app:
        await app.migrate()
    (tmp_path / "unborn.py").write_text(UNBORN.format(url=url))
    small_server.freeze()
    try:
        starting = process("worker", "unborn:app", cwd=tmp_path)
        await eventually((tmp_path / "imported").exists, within=60)
        began = time.monotonic()
        ask_to_stop(starting)
        _, said = await asyncio.to_thread(starting.communicate, timeout=90)
        assert time.monotonic() - began < 30  # and not only when a minute for each statement is over
    finally:
        small_server.thaw()
    assert (starting.returncode, "before it had started" in said) == (0, True), said


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_worker_that_starts_while_the_server_refuses_connections_waits_for_it(
    small_server: Fragile, tmp_path: Path
) -> None:
    """One is told to stop meanwhile and ends at once; one gets a connection later and serves."""
    small_server.sql("create database late")
    url = small_server.url("late")
    async with semel.App(url, config=None) as app:
        await app.migrate()
    (tmp_path / "late.py").write_text(UNBORN.format(url=url))
    held = await _all_but(url, 0)
    stopped, patient = (process("worker", "late:app", cwd=tmp_path) for _ in range(2))
    try:
        for starting in (stopped, patient):
            assert "too many clients" in await asyncio.to_thread(await_line, starting, "cannot start yet")
        began = time.monotonic()
        ask_to_stop(stopped)
        _, said = await asyncio.to_thread(stopped.communicate, timeout=60)
        assert (stopped.returncode, "before it had started" in said) == (0, True), said
        assert time.monotonic() - began < 30  # others would hold the connections for ever
        for connection in held:
            await connection.close()
        await asyncio.to_thread(await_line, patient, "ready")
        ask_to_stop(patient)
        await asyncio.to_thread(patient.communicate, timeout=60)
        assert patient.returncode == 0
    finally:
        for starting in (stopped, patient):
            if starting.poll() is None:
                starting.kill()
                starting.communicate()
        for connection in held:
            await connection.close()


@pytest.mark.slow
async def test_a_worker_takes_no_work_before_it_could_write_the_results(
    small_server: Fragile, caplog: pytest.LogCaptureFixture
) -> None:
    small_server.sql("create database crowded")
    url, runs = small_server.url("crowded"), []
    async with semel.App(url, config=None, auto_migrate=True) as app:

        @app.task
        async def work(n: int) -> int:
            runs.append(n)
            return n

        await app.migrate()
        handles = await app.enqueue_many([work.call(n) for n in range(5)])
        held = await _all_but(url, 3)  # for CLAIM, for the heartbeat and to listen; CONTROL is open already
        async with app.worker(lease="2s") as worker:
            await eventually(lambda: "no work is taken until its results can be written" in caplog.text)
            await eventually(lambda: worker.healthy)
            assert runs == []
            for connection in held:
                await connection.close()
            assert [await handle.result(timeout="30s") for handle in handles] == list(range(5))


async def _all_but(url: str, free: int) -> list[asyncpg.Connection]:
    """Take every connection of the server but so many."""
    held: list[asyncpg.Connection] = []
    while True:
        try:
            held.append(await asyncpg.connect(url))
        except asyncpg.TooManyConnectionsError:
            break
    for connection in held[:free]:
        await connection.close()
    return held[free:]


async def test_a_statement_that_timed_out_does_not_go_on_in_the_server(postgres_world: World) -> None:
    """A heartbeat waits for a lock again and again: each try is cancelled before the next."""
    app = postgres_world.app()

    @app.task
    async def work() -> None: ...

    holder = await asyncpg.connect(postgres_world.url)
    try:
        async with app.worker(lease="1s", grace=0) as worker:
            async with holder.transaction():
                await holder.execute("select from semel_worker for update")
                before = time.monotonic()
                await eventually(lambda: time.monotonic() - before > 2)  # six heartbeats or so without an answer

                async def none_left_over() -> bool:
                    waiting = await holder.fetchval(
                        "select count(*) from pg_stat_activity where application_name = 'semel beat'"
                        " and datname = current_database() and state = 'active'"
                    )
                    return bool(waiting <= 1)

                await eventually(none_left_over, within=30)
            await eventually(lambda: worker.healthy)
    finally:
        await holder.close()


async def test_a_function_that_pauses_for_too_long_in_a_transaction_is_told_so(
    postgres_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends its transaction; nothing is written, and the workflow is parked with the reason."""
    monkeypatch.setitem(address.LIMITS, "idle_in_transaction_session_timeout", "300ms")
    monkeypatch.setattr(user_transactions, "IDLE_IN_TRANSACTION", 0.3)
    app = postgres_world.app()
    await postgres_world.sql("create table till (n int)")

    def slow(tx: Any) -> None:
        tx.execute("insert into till values (1)")
        time.sleep(0.6)
        tx.execute("insert into till values (2)")

    @app.workflow
    async def pay(ctx: semel.Context) -> None:
        await ctx.transaction(slow)

    async with postgres_world.worker(app):
        handle = await app.start_workflow(pay, workflow_id="w")

        async def told() -> bool:
            error = (await handle.describe()).error
            return error is not None and "paused for" in error.message

        await eventually(told)
    assert await postgres_world.count("till") == 0


async def test_doctor_names_sessions_that_hang_and_claims_of_nobody(postgres_world: World) -> None:
    app = postgres_world.app()

    @app.task
    async def work_() -> None: ...

    await app.enqueue(work_)
    found = {finding.what: finding for finding in await app.doctor()}
    assert found["sessions"].ok
    assert found["claims"].ok
    await postgres_world.sql("update semel_ready set owner = 4711, attempt = 1")
    found = {finding.what: finding for finding in await app.doctor()}
    assert not found["claims"].ok
