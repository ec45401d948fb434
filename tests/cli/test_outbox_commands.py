"""`semel outbox` and `semel relay`: from the tables to a row that has been relayed."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import semel
from tests.cli import shell
from tests.world import World, eventually

SHOP = """
import semel
app = semel.App({url!r}, config=None)

@app.task
def ship(order: int) -> str:
    return f"shipped {{order}}"

@app.outbox_handler("mail.wanted")
def mail(event: semel.OutboxEvent) -> None:
    raise ValueError("no such address")
"""
ADD = "insert into outbox_events (event_type, payload, key, max_retries) values (?, ?, ?, 1)"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    file = tmp_path / "shop.db"
    sqlite3.connect(file).close()
    assert shell.semel("outbox", "init", "--url", f"sqlite:///{file}").code == 0
    return file


def add(place: Path, type: str, payload: str, key: str | None = None) -> None:
    connection = sqlite3.connect(place)
    with connection:
        connection.execute(ADD, (type, payload, key))
    connection.close()


def run(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "semel", *arguments], cwd=folder)


def test_the_tables_are_printed_and_nothing_is_changed(tmp_path: Path) -> None:
    for url, words in (
        ("postgresql://nobody@127.0.0.1:1/shop", "semel_outbox_add"),
        ("mysql://nobody@127.0.0.1:1/shop", "engine = innodb"),
        (f"sqlite:///{tmp_path}/none.db", "autoincrement"),
    ):
        printed = shell.semel("outbox", "init", "--url", url, "--print")
        assert printed.code == 0
        assert words in printed.out
        dropped = shell.semel("outbox", "init", "--url", url, "--print", "--drop")
        assert "drop table if exists outbox_events" in dropped.out
    assert shell.semel("outbox", "init", "--url", f"sqlite:///{tmp_path}/none.db", "--drop").code == 2
    assert shell.semel("outbox", "init", "--url", f"sqlite:///{tmp_path}/none.db").code == 5
    assert not (tmp_path / "none.db").exists()
    assert shell.semel("outbox", "init", "--url", "oracle://x/y").code == 2


def test_rows_are_listed_shown_and_deleted(place: Path) -> None:
    url = f"sqlite:///{place}"
    assert shell.semel("outbox", "init", "--url", url).code == 0, "it may be run again"
    add(place, "semel.task", '{"name": "ship", "arguments": {"order": 1}}', "ship:1")
    (row,) = shell.semel("outbox", "list", "--url", url, "--json").data
    assert (row["key"], row["status"], row["retry_count"]) == ("ship:1", "pending", 0)
    shown = shell.semel("outbox", "show", str(row["id"]), "--url", url)
    assert "ship:1" in shown.out
    assert shell.semel("outbox", "show", "77", "--url", url).code == 3
    assert shell.semel("outbox", "redrive", str(row["id"]), "--url", url).code == 4
    assert shell.semel("outbox", "redrive", "--url", url).code == 2
    assert shell.semel("outbox", "purge", "--status", "pending", "--url", url).code == 2
    assert shell.semel("outbox", "purge", "--older-than", "0s", "--url", url, "--json").data == {"deleted": 0}


def test_processed_rows_are_tried_again_after_a_restore(place: Path) -> None:
    url = f"sqlite:///{place}"
    add(place, "semel.task", '{"name": "ship", "arguments": {"order": 1}}', "ship:1")
    connection = sqlite3.connect(place)
    with connection:
        connection.execute("update outbox_events set status = 'processed', processed_at = '2026-03-01 09:00:00.000'")
    connection.close()
    redrive = ("outbox", "redrive", "--url", url, "--json", "--processed-since")
    assert shell.semel(*redrive, "2026-03-01T09:00:01Z").data == {"redriven": 0}
    assert shell.semel(*redrive, "2026-03-01T10:00:00+01:00").data == {"redriven": 1}
    (row,) = shell.semel("outbox", "list", "--url", url, "--json").data
    assert row["status"] == "pending"
    assert shell.semel(*redrive, "yesterday").code == 2
    assert shell.semel(*redrive, "2026-03-01T09:00:00").code == 2, "without an offset"
    assert shell.semel(*redrive, "2026-03-01T09:00:00Z", "--failed").code == 2


def test_a_key_that_only_the_outbox_knows_is_explained(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = f"sqlite:///{tmp_path}/engine.db"
    assert shell.semel("migrate", "--url", engine).code == 0
    add(place, "semel.task", '{"name": "ship", "arguments": {"order": 1}}', "ship:1")
    connection = sqlite3.connect(place)
    with connection:
        connection.execute("update outbox_events set status = 'failed', last_error = 'no such address'")
    connection.close()
    monkeypatch.setenv("SEMEL_OUTBOX", f"sqlite:///{place}")
    told = shell.semel("explain", "ship:1", "--url", engine)
    assert "has failed" in told.out
    assert "no such address" in told.out
    assert "semel outbox redrive 1" in told.out
    assert told.code == 3, "no execution has the key"


async def test_a_relay_of_the_command_line(sqlite_world: World, place: Path, tmp_path: Path) -> None:
    (tmp_path / "relayed.py").write_text(SHOP.format(url=sqlite_world.url))
    add(place, "semel.task", '{"name": "ship", "arguments": {"order": 1}}', "ship:1")
    add(place, "mail.wanted", "{}")
    url = f"sqlite:///{place}"
    process = run(tmp_path, "relay", "relayed:app", "--database", url, "--poll", "200ms")
    app = semel.App(sqlite_world.url, config=None, outbox=url)
    try:

        async def relayed() -> bool:
            return [row.status for row in await app.outbox.list()] == ["failed", "processed"]

        await eventually(relayed)
        assert (await app.outbox.state()).relays == 1
        handle = await app.find("ship:1")
        assert handle is not None
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 60) == 0
        assert (await app.outbox.state()).relays == 0
    finally:
        process.kill()
        process.wait(30)
        await app.close()
    answer = await asyncio.to_thread(shell.semel, "outbox", "redrive", "--failed", "--url", url, "--json")
    assert answer.data == {"redriven": 1}


def test_a_relay_makes_no_engine_of_a_mistyped_url(place: Path, tmp_path: Path) -> None:
    add(place, "semel.task", '{"name": "ship", "arguments": {"order": 1}}', "ship:1")
    for given in (["--url", f"sqlite:///{tmp_path}/mistyped.db"], []):
        process = run(tmp_path, "relay", *given, "--database", f"sqlite:///{place}")
        assert process.wait(60) == 5
    assert not (tmp_path / "mistyped.db").exists()
    assert not (tmp_path / "semel.db").exists()


async def test_a_worker_relays_on_request(sqlite_world: World, place: Path, tmp_path: Path) -> None:
    (tmp_path / "working.py").write_text(SHOP.format(url=sqlite_world.url))
    add(place, "semel.task", '{"name": "ship", "arguments": {"order": 1}}', "ship:1")
    process = run(tmp_path, "worker", "working:app", "--relay", f"sqlite:///{place}")
    app = semel.App(sqlite_world.url, config=None)
    try:

        async def done() -> bool:
            handle = await app.find("ship:1")
            return handle is not None and await handle.status() == "completed"

        await eventually(done)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 60) == 0
    finally:
        process.kill()
        process.wait(30)
        await app.close()
