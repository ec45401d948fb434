"""The engine copies the log into the file by itself, under the write lock, so the log stays short and commits stay."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from semel.engines.journal.script import ConnectionRole, Raw, Script, procedure
from semel.engines.sqlite import checkpoint
from semel.engines.sqlite.checkpoint import Checkpoints
from semel.engines.sqlite.store import SqliteStore

PAGES = 40


@procedure(ConnectionRole.CONTROL)
def write(pages: int) -> Script[Any]:
    """A commit of about so many pages, each with other content."""
    yield Raw("write", f"insert into filled values (randomblob({pages * 4000}))")


@procedure(ConnectionRole.CONTROL)
def make_table() -> Script[Any]:
    yield Raw("table", "create table if not exists filled (content blob)")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each checkpoint: was the write lock taken when it was made?"""
    found: list[bool] = []
    real = Checkpoints.make
    monkeypatch.setattr(checkpoint, "DUE", PAGES)
    monkeypatch.setattr(checkpoint, "MORE", PAGES)
    monkeypatch.setattr(checkpoint, "PAUSE", 0.0)
    monkeypatch.setattr(checkpoint, "LOOK_EVERY", 0.0)

    def make(self: Checkpoints) -> None:
        with closing(sqlite3.connect(self._log_path.removesuffix("-wal"), timeout=0, isolation_level=None)) as other:
            try:
                other.execute("begin immediate")
                found.append(False)
            except sqlite3.OperationalError:
                found.append(True)
        real(self)

    monkeypatch.setattr(Checkpoints, "make", make)
    return found


async def fill(store: SqliteStore, commits: int, pages: int = 5) -> None:
    await store.run(make_table)
    for _ in range(commits):
        await store.run(write, pages)
    await store.run(make_table)  # a checkpoint comes after the answer, and before the next script


async def test_the_log_is_copied_under_the_write_lock_and_stays_short(tmp_path: Path, made: list[bool]) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "shop.db")
    store = SqliteStore(str(link))
    await fill(store, 60)
    log = tmp_path / "shop.db-wal"
    assert len(made) >= 3
    assert all(made)
    assert log.stat().st_size < 3 * PAGES * 4120, "the log is started anew after each checkpoint"
    await store.close()
    assert not log.exists()


async def test_our_connections_make_no_automatic_checkpoints(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "shop.db"))
    await fill(store, 20, pages=100)
    assert (tmp_path / "shop.db-wal").stat().st_size > 2000 * 4096
    await store.close()


async def test_commits_of_others_count(tmp_path: Path, made: list[bool]) -> None:
    store = SqliteStore(str(tmp_path / "shop.db"))
    await fill(store, 1)
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as other:
        other.execute("pragma wal_autocheckpoint = 0")
        other.execute(f"insert into filled values (randomblob({2 * PAGES * 4096}))")
    assert made == []
    await fill(store, 1)
    assert made == [True]
    await store.close()


async def test_a_reader_that_stays_is_tried_again_only_after_more_commits(tmp_path: Path, made: list[bool]) -> None:
    store = SqliteStore(str(tmp_path / "shop.db"))
    await fill(store, 1)
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from filled").fetchall()
        await fill(store, 40)
        assert 2 <= len(made) <= 7
        reader.execute("rollback")
    await fill(store, 20)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert db.execute("select count(*) from filled").fetchall() == [(61,)]
    await store.close()
