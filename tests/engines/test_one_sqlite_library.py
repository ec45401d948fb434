"""A second SQLite library on the engine's file, in the engine's process, is refused before it can drop a lock."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiosqlite
import apsw
import pytest
import sqlalchemy

import semel
from semel.engines.sqlite import library_guard
from semel.engines.sqlite.driver import choose_driver

DRIVERS = ("sqlite3", "apsw")


@asynccontextmanager
async def engine_on(path: Path | str, driver: str, folder: Path) -> AsyncIterator[semel.App]:
    """An app that has its file open through this library."""
    config = folder / f"{driver}.toml"
    config.write_text(f'url = "sqlite:///{path}"\nsqlite_driver = "{driver}"\n', encoding="utf-8")
    async with semel.App(config=config) as app:
        await app.migrate()
        yield app


def locks(path: Path) -> set[str]:
    """The locks on a file, as the kernel has them."""
    inode = f":{path.stat().st_ino}"
    lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return {line.partition(":")[2] for line in lines if inode in line}


def link(path: Path, name: str, *, hard: bool) -> Path:
    """Another name for the file."""
    made = path.with_name(name)
    if hard:
        made.hardlink_to(path)
    else:
        made.symlink_to(path)
    return made


async def test_sqlite3_is_refused_where_the_engine_is_on_apsw(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    ways: dict[str, Callable[[], Any]] = {
        "str": lambda: sqlite3.connect(str(path)),
        "Path": lambda: sqlite3.connect(path),
        "bytes": lambda: sqlite3.connect(os.fsencode(path)),
        "relative": lambda: sqlite3.connect(os.path.relpath(path)),
        "URI": lambda: sqlite3.connect(f"file:{path}?mode=ro", uri=True),
        "escaped URI": lambda: sqlite3.connect(f"file://{str(path).replace('shop', '%73hop')}", uri=True),
        "symlink": lambda: sqlite3.connect(link(path, "soft.db", hard=False)),
        "hard link": lambda: sqlite3.connect(link(path, "hard.db", hard=True)),
        "SQLAlchemy": sqlalchemy.create_engine(f"sqlite:///{path}").connect,
    }
    refusal = r"sqlite3 was about to open .*shop\.db.* through apsw"
    async with engine_on(path, "apsw", tmp_path) as app:
        before = locks(path)
        for way, connect in ways.items():
            with pytest.raises(semel.SqliteLibraryConflict, match=refusal):
                connect()
            assert locks(path) == before, way
        with pytest.raises(semel.SqliteLibraryConflict, match=refusal):
            await aiosqlite.connect(path)
        sqlite3.connect(tmp_path / "other.db").close()
        sqlite3.connect(":memory:").close()
        assert await app.find("nothing") is None
    sqlite3.connect(path).close()


async def test_apsw_is_refused_where_the_engine_is_on_sqlite3(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    (tmp_path / "link.db").symlink_to(path)
    async with engine_on(path, "sqlite3", tmp_path) as app:
        before = locks(path)
        assert len(before) == 1
        for name in (str(path), f"file:{path}?mode=ro", str(tmp_path / "link.db")):
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
            with pytest.raises(
                semel.SqliteLibraryConflict, match=r"apsw was about to open .*shop\.db.* through sqlite3"
            ):
                apsw.Connection(name, flags=flags)
            assert locks(path) == before, "to close the refused connection has dropped the lock of the engine"
        apsw.Connection(str(tmp_path / "other.db")).close()
        apsw.Connection(":memory:").close()
        with closing(sqlite3.connect(path)) as own:
            assert own.execute("select count(*) from semel_execution").fetchall() == [(0,)]
        assert await app.find("nothing") is None
    assert library_guard._on_apsw_connection not in apsw.connection_hooks
    apsw.Connection(str(path)).close()


LATE = """
import asyncio, importlib, sys
import semel

async def main() -> None:
    app = semel.App(f"sqlite:///{sys.argv[1]}", config=None)
    await app.migrate()
    assert "apsw" not in sys.modules, "the base install has no apsw"
    if sys.argv[2] == "statement":
        import apsw
    else:
        apsw = importlib.import_module("apsw")
    assert type(apsw.__spec__.loader).__module__ != "semel.engines.sqlite.library_guard"
    try:
        apsw.Connection(sys.argv[1])
    except semel.SqliteLibraryConflict as error:
        print(error)
    await app.close()
    apsw.Connection(sys.argv[1]).close()

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["statement", "import_module"])
def test_apsw_that_is_imported_later_is_refused_too(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-c", LATE, str(tmp_path / "shop.db"), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "SEMEL-N05" in done.stdout


@pytest.mark.parametrize("driver", DRIVERS)
async def test_an_engine_is_refused_where_the_other_library_has_the_file_open(tmp_path: Path, driver: str) -> None:
    path = tmp_path / "shop.db"
    other = "apsw" if driver == "sqlite3" else "sqlite3"
    with closing(choose_driver(other).connect(str(path), patience=1)) as foreign:
        foreign.execute("create table orders (id text)")
        before = locks(path)
        with pytest.raises(semel.SqliteLibraryConflict, match="already"):
            async with engine_on(path, driver, tmp_path):
                pass
        assert locks(path) == before
        foreign.execute("insert into orders values ('a')")
    async with engine_on(path, driver, tmp_path) as app:
        assert await app.find("nothing") is None


async def test_a_connection_that_belongs_to_another_thread_is_found(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with ThreadPoolExecutor(1) as thread:
        foreign = thread.submit(sqlite3.connect, path).result()
        with pytest.raises(semel.SqliteLibraryConflict):
            async with engine_on(path, "apsw", tmp_path):
                pass
        thread.submit(foreign.close).result()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_two_engines_share_a_file_only_through_one_library(tmp_path: Path, driver: str) -> None:
    path = tmp_path / "shop.db"
    other = "apsw" if driver == "sqlite3" else "sqlite3"
    async with engine_on(path, driver, tmp_path) as first:
        async with engine_on(path, driver, tmp_path) as second:
            assert await second.find("nothing") is None
        with pytest.raises(semel.SqliteLibraryConflict):
            async with engine_on(path, other, tmp_path):
                pass
        assert await first.find("nothing") is None


@pytest.mark.parametrize("driver", DRIVERS)
async def test_the_doctor_tells_library_and_guard(tmp_path: Path, driver: str) -> None:
    async with engine_on(tmp_path / "shop.db", driver, tmp_path) as app:
        found = {finding.what: finding for finding in await app.doctor()}
    assert all(finding.ok for finding in found.values())
    version = sqlite3.sqlite_version if driver == "sqlite3" else apsw.sqlite_lib_version()
    assert found["SQLite library"].detail.startswith(f"{version} through ")
    assert driver in found["SQLite library"].detail
    assert "are refused" in found["second SQLite library"].detail
    assert ("3.51.3" in found["SQLite checkpoints"].detail) == (choose_driver(driver).version < (3, 51, 3))


async def test_the_doctor_tells_of_a_library_that_cannot_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pysqlite3", sqlite3)
    async with engine_on(tmp_path / "shop.db", "sqlite3", tmp_path) as app:
        bad = [finding for finding in await app.doctor() if not finding.ok]
    assert [finding.what for finding in bad] == ["second SQLite library"]
    assert "pysqlite3" in bad[0].detail


def test_a_library_that_is_too_old_is_replaced_by_apsw_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_driver().name == "sqlite3"
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.37.2")
    assert choose_driver().name == "apsw"
    with pytest.raises(semel.ConfigError, match=r"is 3\.37\.2, and Semel needs 3\.38\.0"):
        choose_driver("sqlite3")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(semel.ConfigError, match=r"pip install 'semel\[apsw\]'"):
        choose_driver()
