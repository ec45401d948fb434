"""What is stored names no module and no class of Semel's, so that both may be moved and renamed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.testing.temporal_server import TemporalServer
from tests.stored import record
from tests.stored.kept import Kept, RestoredWorld, restored_sqlite
from tests.stored.names import BEFORE, PUBLIC_ERRORS, WORDS, own_names

ALLOWED = PUBLIC_ERRORS | set(WORDS)


def rows(file: Path) -> Iterable[Any]:
    """Every value in every table of a file."""
    with closing(sqlite3.connect(file)) as connection:
        for (table,) in connection.execute("select name from sqlite_master where type = 'table'").fetchall():
            for row in connection.execute(f"select * from {table}").fetchall():
                yield from row


def test_public_errors_are_public() -> None:
    assert [name for name in sorted(PUBLIC_ERRORS) if not hasattr(semel, name.removeprefix("semel."))] == []


def test_kept_files_and_histories(kept: Kept, tmp_path: Path) -> None:
    found = set()
    for file in ("sqlite", "records"):
        found |= own_names(rows(restored_sqlite(kept, tmp_path, file)))
    for file in ("exports", "temporal-exports", "temporal"):
        found |= own_names([kept.histories(file)])
    assert "semel.published" in found, "the search does find what is there"
    assert found - ALLOWED == BEFORE.get(kept.name, set())


async def test_kept_tables(world: RestoredWorld) -> None:
    """All rows, as the databases give them; what names code in SQLite's pages would be found in the file too."""
    tables = await world.sql(
        "select name from sqlite_master where type = 'table'"
        if world.engine == "sqlite"
        else "select tablename from pg_tables where schemaname = 'public'"
    )
    assert len(tables) > 15
    found: set[str] = set()
    for (table,) in tables:
        found |= own_names(await world.sql(f"select * from {table}"))
    assert found - ALLOWED == BEFORE.get(world.kept.name, set())


@pytest.mark.slow
def test_what_is_stored_today_on_a_journal(tmp_path: Path) -> None:
    folder = tmp_path / "stored"
    folder.mkdir()
    asyncio.run(record.record_sqlite(folder, tmp_path))
    new = Kept(folder)
    names = own_names(rows(restored_sqlite(new, tmp_path))) | own_names([new.histories("exports")])
    assert names - ALLOWED == set()


def test_what_is_stored_today_on_a_cluster(temporal_server: TemporalServer, tmp_path: Path) -> None:
    folder = tmp_path / "stored"
    folder.mkdir()
    asyncio.run(record.record_temporal(folder, temporal_server, tmp_path, "stored-today"))
    new = Kept(folder)
    names = own_names(rows(restored_sqlite(new, tmp_path, "records")))
    names |= own_names([new.histories("temporal"), new.histories("temporal-exports")])
    assert names - ALLOWED == set()
