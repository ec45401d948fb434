"""Every call ends within its bound, also where a server is frozen: nothing answers and nothing refuses.

The tables of verbs and commands are complete: one that is added without a line in tests/faults/verbs.py, or a reason
here, fails the first two tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.cli.command import Exit
from semel.engine.bounded import note_answer, silence_limit
from semel.testing.temporal_server import TemporalServer, temporal_server
from tests.cli.shell import semel as at_shell
from tests.faults.server import await_stop, fragile_postgres
from tests.faults.verbs import Shop, public_commands, public_verbs

BOUND = 3.0
SHELL_BOUND = 1.0
SLACK = 12.0
"""Seconds that a busy machine adds to the bound of a call."""
WAITS_FOR_THE_SERVER = {"App.worker", "App.relay"}
"""A worker or a relay that cannot reach its database says so and goes on trying: that is what it is for. That relays
begin and stop in time: tests/outbox/test_frozen_databases.py."""
ON_A_CONNECTION = {"Outbox.add"}
"""It writes on a connection of the caller's, and ends when its driver does."""
CLOSES = {"App.close"}
"""Ends whether or not anything answers; see below."""
NEEDS_NO_SERVER = {"demo", "check", "schema export", "workflows import", "temporal dev"}
WAITS_AT_THE_SHELL = {"worker", "relay"}
WRITES = {
    "App.apply", "App.enqueue", "App.enqueue_many", "App.publish", "App.publish_many", "App.start_workflow",
    "Events.publish", "Events.publish_many", "Handle.cancel", "Handle.signal", "Handle.terminate", "Ref.ask",
    "Outbox.purge", "Outbox.redrive", "Outbox.redrive_failed",
    "Ref.send", "Schedules.edit", "Schedules.pause", "Schedules.put", "Schedules.resume", "Schedules.trigger",
}  # fmt: skip
"""What a locked SQLite file refuses; who only reads is not kept from it."""
IN_RECORDS = {"App.apply", "App.publish", "App.publish_many"}
"""What the records database answers without the cluster, once the app has been connected."""
_modules = itertools.count(1)


def test_every_verb_is_in_the_table(tmp_path: Path) -> None:
    listed = {*Shop("sqlite:///:memory:", tmp_path, bound=BOUND).calls("x")}
    assert listed | WAITS_FOR_THE_SERVER | ON_A_CONNECTION | CLOSES == public_verbs()


def test_every_command_is_in_the_table(tmp_path: Path) -> None:
    listed = {*Shop("sqlite:///:memory:", tmp_path, bound=BOUND).commands("x")}
    assert listed | NEEDS_NO_SERVER | WAITS_AT_THE_SHELL == public_commands()


async def test_a_task_that_outlives_the_verb_that_began_it_has_no_limit_of_it() -> None:
    """It runs in the context of the verb; its answers came to an error after their commit, and were written again."""
    ended = asyncio.Event()

    async def write_counts() -> str:
        await ended.wait()
        note_answer()
        return "written"

    async with silence_limit(60, "apply"):
        writing = asyncio.create_task(write_counts())
        note_answer()
    ended.set()
    assert await writing == "written"


async def call_timed(call: Callable[[], Awaitable[Any]]) -> tuple[float, str]:
    """Seconds until a call ended, and how: an error that is not Semel's own is not caught."""
    began, how = time.monotonic(), "answered"
    try:
        async with asyncio.timeout(BOUND + SLACK):
            await call()
    except semel.EngineUnavailable:
        how = "unavailable"
    except semel.SemelError as error:
        how = f"{type(error).__name__}: {error}"
    except TimeoutError:
        how = "did not end"
    return time.monotonic() - began, how


async def call_all(calls: Mapping[str, Callable[[], Awaitable[Any]]]) -> dict[str, str]:
    """How each of these ended, all of them called at once."""
    ended = await asyncio.gather(*(call_timed(call) for call in calls.values()))
    late = {verb: seconds for verb, (seconds, _) in zip(calls, ended, strict=True) if seconds > BOUND + SLACK - 1}
    assert late == {}
    return {verb: how for verb, (_, how) in zip(calls, ended, strict=True)}


async def see_the_rest_end(shop: Shop, execution: str) -> None:
    """Ten callers of one verb, a timeout of the caller's own, and the end of the app itself."""
    find = shop.calls(execution)["App.find"]
    await call_all({f"find {n}": find for n in range(10)})
    began = time.monotonic()
    known: semel.Handle[Any] = semel.Handle(shop.app, execution, "order", "o-0", duplicate=False)
    with pytest.raises((semel.ResultPending, semel.EngineUnavailable)):  # also if it could not even listen
        await known.result(timeout="1s")
    assert time.monotonic() - began < 1 + SLACK
    assert (await call_timed(shop.app.close))[1] == "answered"


def run_commands(shop: Shop, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Every command at a shell: its exit code. Each ends within its bound, and says what is wrong in a line."""
    module = f"frozen_shop_{os.getpid()}_{next(_modules)}"
    (folder / f"{module}.py").write_text(shop.source, encoding="utf-8")
    (folder / "semel.toml").write_text(shop.config.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("SEMEL_URL", shop.app.settings.url)
    if shop.app.settings.records is not None:
        monkeypatch.setenv("SEMEL_RECORDS", shop.app.settings.records)
    monkeypatch.setenv("SEMEL_OUTBOX", shop.app.settings.outbox or "")
    codes, late = {}, {}
    for command, arguments in shop.commands(f"{module}:app").items():
        began = time.monotonic()
        answer = at_shell(*command.split(), *arguments, typed="y\n")
        codes[command] = answer.code
        assert answer.code != Exit.USAGE, (command, answer.err)
        if (took := time.monotonic() - began) > SHELL_BOUND + SLACK:
            late[command] = took
    assert late == {}
    return codes


@contextmanager
def frozen(server: TemporalServer) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    await_stop(server.pid)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Another process holds the lock of a SQLite file."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("begin immediate")
        yield
        other.execute("rollback")


@pytest.mark.slow
@pytest.mark.parametrize("connected", [True, False], ids=["connected before", "not yet connected"])
async def test_calls_to_a_frozen_postgres_end(tmp_path: Path, connected: bool) -> None:
    with fragile_postgres() as server:
        url = server.url("postgres")
        patient, shop = Shop(url, tmp_path, bound=60), Shop(url, tmp_path, bound=BOUND)
        async with patient.app, shop.app:
            execution = await patient.stock()
            calls = shop.calls(execution)
            if connected:
                for verb, call in calls.items():
                    if verb not in ("Handle.result", "Handle.output", "Ref.ask"):  # they would wait for the end
                        with contextlib.suppress(semel.SemelError):
                            await call()
            server.freeze()
            try:
                ends = await call_all(calls)
                answered = {verb: how for verb, how in ends.items() if how != "unavailable"}
                # One is only a warning, and the other says it as a finding.
                assert answered == {"Schedules.warn_unapplied": "answered", "Outbox.doctor": "answered"}
                await see_the_rest_end(shop, execution)
            finally:
                server.thaw()
            assert await patient.app.find("o-0", kind="workflow") is not None


@pytest.mark.slow
async def test_calls_to_a_locked_sqlite_file_end(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    url = f"sqlite:///{file}"
    patient, shop = Shop(url, tmp_path, bound=60), Shop(url, tmp_path, bound=BOUND)
    async with patient.app, shop.app:
        execution = await patient.stock()
        with locked(file):
            calls = {
                verb: call
                for verb, call in shop.calls(execution).items()
                if verb not in ("Handle.result", "Handle.output")
            }
            ends = await call_all(calls)
            assert {verb for verb in WRITES if ends[verb] != "unavailable"} == set()
            assert ends["App.find"] == ends["App.list"] == ends["Outbox.list"] == "answered"  # reading goes on
            await see_the_rest_end(shop, execution)
        assert not (await patient.app.enqueue(patient.charge, 1, task_id="k")).duplicate


@pytest.mark.slow
@pytest.mark.parametrize("connected", [True, False], ids=["connected before", "not yet connected"])
async def test_calls_to_a_frozen_temporal_server_end(tmp_path: Path, connected: bool) -> None:
    records = f"sqlite:///{tmp_path}/records.db"
    with temporal_server(tmp_path, namespaces=["shop"]) as server:
        url = server.url("shop")
        patient = Shop(url, tmp_path, bound=60, records=records)
        shop = Shop(url, tmp_path, bound=BOUND, records=records)
        async with patient.app, shop.app:
            execution = await patient.stock()
            if connected:
                with contextlib.suppress(semel.EngineUnavailable):
                    await shop.app.find("o-0")
            with frozen(server):
                ends = await call_all(shop.calls(execution))
                of_the_cluster = {verb for verb in ends if verb.startswith(("App.", "Handle.", "Ref."))}
                assert {verb for verb in of_the_cluster if ends[verb] != "unavailable"} <= IN_RECORDS
                await see_the_rest_end(shop, execution)
            assert await patient.app.find("o-0", kind="workflow") is not None


@pytest.mark.slow
async def test_commands_at_a_frozen_postgres_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fragile_postgres() as server:
        shop = Shop(server.url("postgres"), tmp_path, bound=60)
        async with shop.app:
            await shop.stock()
        short = Shop(server.url("postgres"), tmp_path, bound=SHELL_BOUND)
        server.freeze()
        try:
            codes = await asyncio.to_thread(run_commands, short, tmp_path, monkeypatch)
        finally:
            server.thaw()
        assert {command: code for command, code in codes.items() if code != Exit.UNAVAILABLE} == {}


@pytest.mark.slow
async def test_commands_at_a_locked_sqlite_file_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "shop.db"
    shop = Shop(f"sqlite:///{file}", tmp_path, bound=60)
    async with shop.app:
        await shop.stock()
    short = Shop(f"sqlite:///{file}", tmp_path, bound=SHELL_BOUND)
    with locked(file):
        codes = await asyncio.to_thread(run_commands, short, tmp_path, monkeypatch)
    assert codes["enqueue"] == codes["schedules pause"] == codes["publish"] == Exit.UNAVAILABLE
    assert codes["list"] == codes["queues"] == codes["outbox list"] == Exit.OK
    assert codes["outbox redrive"] == codes["outbox purge"] == Exit.UNAVAILABLE


@pytest.mark.slow
async def test_commands_at_a_frozen_temporal_server_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = f"sqlite:///{tmp_path}/records.db"
    with temporal_server(tmp_path, namespaces=["shop"]) as server:
        shop = Shop(server.url("shop"), tmp_path, bound=60, records=records)
        async with shop.app:
            await shop.stock()
        short = Shop(server.url("shop"), tmp_path, bound=SHELL_BOUND, records=records)
        with frozen(server):
            codes = await asyncio.to_thread(run_commands, short, tmp_path, monkeypatch)
        answered = {command for command, code in codes.items() if code != Exit.UNAVAILABLE}
        assert answered == {command for command in codes if command.startswith("outbox")}  # it is in another database
        assert codes["enqueue"] == codes["list"] == codes["workflows show"] == Exit.UNAVAILABLE
