"""Take away one guard of starts in the caller's transaction at a time: a named check must notice."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import pytest

import semel
from semel.engines.journal import caller_transaction
from semel.engines.journal.admissions import Admissions
from semel.engines.journal.lanes import Lanes
from semel.engines.postgres.store import PostgresStore
from semel.engines.sqlite.commit_watch import CommitWatch
from semel.engines.sqlite.store import SqliteStore
from tests.faults.conftest import new_site
from tests.faults.site import Site
from tests.faults.test_mutants import prepare
from tests.faults.transactional_operations import CallerShop

pytestmark = pytest.mark.proof
Check = Callable[[CallerShop], Awaitable[None]]


async def passes(site: Site, check: Check) -> None:
    await site.reset()
    async with CallerShop(site) as shop:
        await shop.app.queues()
        await check(shop)


async def another_file_is_refused(shop: CallerShop) -> None:
    other = Path(shop.site.folder) / "other.db"
    copied = semel.App(f"sqlite:///{other}", config=None)
    await copied.migrate()
    await copied.close()
    async with aiosqlite.connect(other) as connection:
        with pytest.raises(semel.MigrationNeeded):  # it has no outbox
            await shop.app.enqueue(shop.charge, "o-1", connection=connection)


async def who_has_not_read_can_write(shop: CallerShop) -> None:
    """A deferred transaction waits for the writer, and sees what that has committed."""
    async with aiosqlite.connect(shop.site.path) as writer, aiosqlite.connect(shop.site.path) as waiting:
        await writer.execute("insert into till (who) values ('other')")
        await waiting.execute("begin deferred")
        started = asyncio.create_task(shop.app.enqueue(shop.charge, "o-1", task_id="o-1", connection=waiting))
        await asyncio.sleep(0.1)
        await writer.commit()
        try:
            await started
        except sqlite3.OperationalError as error:
            raise AssertionError("it cannot write any more") from error
        await waiting.commit()


async def workers_are_woken_by_the_commit(shop: CallerShop) -> None:
    """Without that, most would wait for the slow poll, which comes every second."""
    async with shop.app.worker(), aiosqlite.connect(shop.site.path) as connection:
        slow = 0
        for number in range(15):
            handle = await shop.app.enqueue(shop.charge, f"o-{number}", connection=connection)
            await connection.commit()
            began = time.monotonic()
            await handle.result(30)
            slow += time.monotonic() - began > 0.3
        assert slow <= 3, slow  # a busy machine may be slow by itself


async def a_conflict_leaves_the_transaction_usable(shop: CallerShop) -> None:
    """Also in a long list, which would be inserted in one go if its keys were new."""
    await shop.app.enqueue(shop.charge, "o-5", task_id="o-5")
    connection = await asyncpg.connect(shop.site.url)
    try:
        async with connection.transaction():
            calls = [(shop.charge.call(f"o-{n}"), f"o-{n}") for n in range(150)]
            try:
                await shop.app.enqueue_many(calls, connection=connection)
            except asyncpg.PostgresError as error:
                raise AssertionError("it aborted the transaction") from error
    finally:
        await connection.close()
    assert await shop.site.sql("select count(*) from semel_execution") == [(150,)]


async def lanes_block_nobody(shop: CallerShop) -> None:
    connection = await asyncpg.connect(shop.site.url)
    try:
        async with connection.transaction():
            await shop.app.enqueue(shop.charge, "o-1", queue="new", connection=connection)
            async with CallerShop(shop.site) as other:
                await asyncio.wait_for(other.app.enqueue(other.charge, "o-2", queue="new"), 5)
    finally:
        await connection.close()


async def nothing(*args: Any, **options: Any) -> None:
    """Instead of a guard."""


async def always(*args: Any) -> bool:
    """Instead of a guard that looks."""
    return True


SQLITE = {
    "is_ours: another file": (another_file_is_refused, SqliteStore, "is_ours", always),
    "begin_to_write: the lock before the first look": (
        who_has_not_read_can_write,
        caller_transaction.CallerTransaction,
        "begin_to_write",
        nothing,
    ),
    "expect_commit: looks after the call": (
        workers_are_woken_by_the_commit,
        CommitWatch,
        "expect",
        lambda self, connection: None,
    ),
}


@pytest.mark.parametrize("name", SQLITE)
def test_a_missing_guard_is_noticed_on_sqlite(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = prepare(tmp_path)
    check, owner, guard, instead = SQLITE[name]
    asyncio.run(passes(site, check))
    monkeypatch.setattr(owner, guard, instead)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        asyncio.run(passes(site, check))


def careless(self: Admissions, transaction: Any, lanes: Lanes) -> Admissions:
    """As on a connection of the engine's own."""
    return Admissions(transaction, self._namespace, lanes, self._hub, self._time_limit, self._duplicates)


POSTGRES = {
    "on: a taken key fails no statement": (a_conflict_leaves_the_transaction_usable, Admissions, "on", careless),
    "join: lanes are made beforehand": (lanes_block_nobody, PostgresStore, "one_writer", True),
}


@pytest.mark.parametrize("name", POSTGRES)
def test_a_missing_guard_is_noticed_on_postgres(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = new_site("postgres", tmp_path, request)
    check, owner, guard, instead = POSTGRES[name]
    asyncio.run(passes(site, check))
    monkeypatch.setattr(owner, guard, instead)
    with pytest.raises((AssertionError, TimeoutError)):
        asyncio.run(passes(site, check))
