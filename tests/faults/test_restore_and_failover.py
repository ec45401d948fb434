"""A database that goes back in time for real: `pg_restore` under a live worker, and a promoted replica that lagged.

No key gets another key's result, nothing that was accepted afterwards is lost, and what was lost is run when its client
sends it again under its key.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import semel
from bench.server import Postgres
from semel.engines.journal.worker import JournalWorker
from tests.faults.server import Fragile, fragile_postgres, standby_of
from tests.faults.test_the_database_goes_back import Doors
from tests.world import World, eventually

LATE = 60.0
PAST = ("went back in time", "tables were replaced")


class Fleet:
    """One process with a worker and one that only asks; both have the same functions."""

    def __init__(self, worker_app: semel.App, client: semel.App) -> None:
        self.doors = Doors()
        self.client = client
        self._asked: list[tuple[semel.Handle[Any], Any]] = []
        self._define(worker_app)
        self._echo, self._double = self._define(client)

    def _define(self, app: semel.App) -> tuple[Any, Any]:
        @app.task
        async def echo(value: str) -> str:
            return await self.doors.wait(value) if value in ("X", "Y") else value

        @app.workflow
        async def double(ctx: semel.Context, value: str) -> str:
            return await ctx.execute_task(echo, value) + await ctx.execute_task(echo, value, queue="lost")

        return echo, double

    async def echo(self, value: str, queue: str = "default") -> semel.Handle[str]:
        """Ask for a task under the key that is its value; as a client does, until the database has accepted it."""
        return await self._accepted(lambda: self.client.enqueue(self._echo, value, task_id=value, queue=queue), value)

    async def double(self, value: str) -> semel.Handle[str]:
        """Ask for a workflow under the key that is its value."""
        start = self.client.start_workflow
        return await self._accepted(lambda: start(self._double, value, workflow_id=value), value + value)

    async def _accepted(self, ask: Any, expected: str) -> semel.Handle[str]:
        while True:
            try:
                handle: semel.Handle[str] = await ask()
            except semel.EngineUnavailable:
                await asyncio.sleep(0.1)  # a pause between two requests, as clients make
                continue
            self._asked.append((handle, expected))
            return handle

    def forget_asked(self) -> None:
        """What was asked for so far has no answer any more."""
        self._asked.clear()

    async def all_right(self) -> None:
        """Everything that was asked for has its own result."""
        for handle, expected in self._asked:
            assert await handle.result(timeout=LATE) == expected

    async def use(self, names: str) -> None:
        """Some of everything: a queue that is known, one that may be lost, and a workflow."""
        for name in names:
            await self.echo(f"{name}1")
            await self.echo(f"{name}2", queue="lost")
            await self.double(f"{name}3")

    async def after_the_past(self, caplog: pytest.LogCaptureFixture) -> None:
        """The database went back to where nothing of X and of 'tail' was known. X is still running here."""
        self.forget_asked()
        y = await self.echo("Y")
        await self.use("new")
        await self.doors.until("Y")
        self.doors.open("X")
        await eventually(lambda: any(word in caplog.text for word in PAST), within=LATE)
        assert not (await y.describe()).status.terminal
        self.doors.open("Y")
        assert not (await self.echo("X")).duplicate
        await self.use("tail")
        await self.all_right()
        assert self.doors.reached.count("X") == 2
        assert self.doors.reached.count("Y") == 1
        await eventually(self._at_rest, within=LATE)

    async def _at_rest(self) -> bool:
        found = {finding.what: finding for finding in await self.client.doctor()}
        queues = await self.client.queues()
        return found["stranded"].ok and found["claims"].ok and all(not (q.ready or q.running) for q in queues)


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("how", [(), ("--single-transaction",)], ids=["in pieces", "at once"])
async def test_a_database_is_restored_under_a_live_worker_and_client(
    postgres_world: World,
    postgres_server: Postgres,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    how: tuple[str, ...],
) -> None:
    """`pg_dump`, then `pg_restore --clean` in place: connections stay open and sequence numbers are used again."""
    world, backup = postgres_world, tmp_path / "backup"

    async def run(program: str, *arguments: str) -> bool:
        command = [str(postgres_server.bin / program), *arguments]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or "deadlock" in done.stderr, done.stderr
        return done.returncode == 0

    async def restored() -> bool:
        """It may meet a statement of a worker and lose; then it is run again."""
        return await run("pg_restore", "--clean", "--if-exists", *how, f"--dbname={world.url}", str(backup))

    worker_app = world.app()
    fleet = Fleet(worker_app, world.app())
    async with world.worker(worker_app, lease="3s") as worker:
        await (await fleet.echo("before")).result(timeout=LATE)
        await eventually(world.at_rest)
        assert await run("pg_dump", "--format=custom", f"--file={backup}", world.url)
        await fleet.echo("X")
        await fleet.use("tail")
        await fleet.doors.until("X")
        if not how:  # who writes into tables that are half there keeps them from being restored
            await eventually(lambda: len(worker.running) == 1, within=LATE)
        await eventually(restored, within=LATE)
        await fleet.after_the_past(caplog)


@pytest.mark.proof
@pytest.mark.timeout(200)
def test_a_replica_that_lagged_is_promoted(caplog: pytest.LogCaptureFixture) -> None:
    """Asynchronous streaming replication; the primary dies with transactions that the replica never got."""
    with fragile_postgres() as primary, standby_of(primary) as standby:
        primary.sql("create database semel")
        url = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/semel"

        async def play() -> None:
            async with (
                semel.App(url, config=None, auto_migrate=True) as worker_app,
                semel.App(url, config=None) as client,
                worker_app.worker(lease="3s") as worker,
            ):
                assert isinstance(worker, JournalWorker)
                fleet = Fleet(worker_app, client)
                await (await fleet.echo("before")).result(timeout=LATE)
                await asyncio.to_thread(_cut_off, standby, primary)
                await fleet.echo("X")
                await fleet.use("tail")
                await fleet.doors.until("X")
                beats = worker.heart._beats[1]
                await eventually(lambda: worker.heart._beats[1] > beats, within=LATE)
                await asyncio.to_thread(primary.end, signal.SIGQUIT)
                await asyncio.to_thread(standby.promote)
                await fleet.after_the_past(caplog)

        asyncio.run(play())


def _cut_off(standby: Fragile, primary: Fragile) -> None:
    """The replica has all there is now and gets nothing any more."""
    at = primary.sql("select pg_current_wal_lsn()")
    _wait_for(standby, f"select pg_last_wal_replay_lsn() >= '{at}'")
    standby.sql("alter system set primary_conninfo to ''")
    standby.sql("select pg_reload_conf()")
    _wait_for(standby, "select count(*) = 0 from pg_stat_wal_receiver")


def _wait_for(server: Fragile, question: str) -> None:
    for _ in range(600):
        if server.sql(question) == "t":
            return
        server.sql("select pg_sleep(0.1)")
    raise AssertionError(f"never true: {question}")
