"""A database that goes back in time: its tables as they were, put back under apps and workers that go on."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import asyncpg

from tests.world import World

COPY = "import sqlite3, sys; a, b = map(sqlite3.connect, sys.argv[1:]); a.backup(b); b.close(); a.close()"
"""Run as a process of its own, as `sqlite3 file .restore` would be."""


async def keep(world: World) -> None:
    """Take a backup; there is one at a time."""
    if world.engine == "sqlite":
        await _copy(_file(world), _backup(world))
        return
    connection = await asyncpg.connect(world.url)
    try:
        await connection.execute("drop schema if exists kept cascade; create schema kept")
        for table in await _tables(connection):
            await connection.execute(f"create table kept.{table} as table public.{table}")
        await connection.execute(
            "create table kept.sequences as select * from pg_sequences where schemaname = 'public'"
        )
    finally:
        await connection.close()


async def go_back(world: World) -> None:
    """Restore the backup in place; connections stay open, as with `pg_restore --clean`."""
    if world.engine == "sqlite":
        await _copy(_backup(world), _file(world))
        return
    connection = await asyncpg.connect(world.url)
    try:
        tables = await _tables(connection)
        async with connection.transaction():
            await connection.execute("set local session_replication_role = replica")
            await connection.execute(f"truncate {', '.join(tables)}")
            for table in tables:
                await connection.execute(f"insert into {table} overriding system value table kept.{table}")
            await connection.execute(
                "select setval(format('%I', sequencename)::regclass, coalesce(last_value, 1), last_value is not null)"
                " from kept.sequences"
            )
    finally:
        await connection.close()


async def _tables(connection: asyncpg.Connection) -> list[str]:
    rows = await connection.fetch(
        "select tablename from pg_tables where schemaname = 'public' and tablename <> 'semel_skew' order by 1"
    )
    return [row[0] for row in rows]


def _file(world: World) -> Path:
    return Path(world.url.removeprefix("sqlite:///"))


def _backup(world: World) -> Path:
    return _file(world).with_name("backup.db")


async def _copy(source: Path, target: Path) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", COPY, str(source), str(target))
    assert await process.wait() == 0
