"""SQLite lets a statement end the transaction it is in: that is its function's failure, and nobody else's."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.engines.journal.script import ConnectionRole, Script, Work, procedure
from semel.engines.journal.user_transactions import Worked
from semel.engines.sqlite.driver import choose_driver
from semel.engines.sqlite.store import SqliteStore
from tests.world import World

TABLES = """
create table orders (id text primary key, cents integer not null);
create table strict_orders (id text primary key on conflict rollback);
insert into strict_orders values ('a');
create trigger no_gifts before insert on orders when new.cents = 0 begin select raise(rollback, 'a gift'); end;
insert into orders values ('a', 1);
"""
ENDS = [
    "insert or rollback into orders values ('a', 2)",
    "insert into strict_orders values ('a')",
    "insert into orders values ('b', 0)",
]


@pytest.mark.parametrize("sql", ENDS)
@pytest.mark.parametrize("caught", [False, True])
async def test_it_is_recorded_once_and_leaves_nothing(sqlite_world: World, sql: str, caught: bool) -> None:
    app, calls = sqlite_world.app(), []
    await app.migrate()
    await sqlite_world.sql(TABLES)

    def ends(tx: Any) -> str:
        calls.append(1)
        tx.execute("insert into orders values ('c', 3)")
        with contextlib.suppress(Exception) if caught else contextlib.nullcontext():
            tx.execute(sql)
        with contextlib.suppress(Exception):
            tx.execute("insert into orders values ('d', 4)")
        return "kept"

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            return await ctx.transaction(ends)
        except semel.ExecutionFailed as error:
            return error.error_message

    async with sqlite_world.worker(app):
        told = await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s")
    assert ("has ended the transaction" in told) == caught
    assert calls == [1]
    assert await sqlite_world.sql("select id from orders") == [("a",)]


@asynccontextmanager
async def opened(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    path = str(tmp_path / "orders.db")
    with contextlib.closing(choose_driver().connect(path, patience=10)) as db:
        db.execute_script(TABLES)
    store = SqliteStore(path)
    try:
        yield store
    finally:
        await store.close()


@procedure(ConnectionRole.SETTLE)
def transact(do: Any) -> Script[Worked]:
    found: Worked = (yield Work("transaction", do))[0]
    return found


async def together(store: SqliteStore, *functions: Any) -> list[Worked]:
    """They wait while another one has the writer, and so come into one transaction."""
    go = threading.Event()
    first = asyncio.create_task(store.run(transact, lambda tx: go.wait(60)))
    others = [asyncio.create_task(store.run(transact, do)) for do in functions]
    await asyncio.sleep(0.05)
    go.set()
    assert (await first)[1] is None
    return await asyncio.gather(*others)


async def test_those_that_shared_the_transaction_are_neither_lost_nor_doubled(tmp_path: Path) -> None:
    calls: list[str] = []

    def good(id_: str) -> Any:
        def do(tx: Any) -> str:
            tx.execute("insert into orders values ($1, 5)", id_)
            return id_

        return do

    def bad(sql: str) -> Any:
        def do(tx: Any) -> None:
            calls.append(sql)
            tx.execute("insert into orders values ($1, 6)", sql)
            tx.execute(sql)

        return do

    functions = good("p"), bad(ENDS[0]), good("q"), bad(ENDS[1]), bad(ENDS[2]), good("r"), good("p")
    async with opened(tmp_path) as store:
        worked = await together(store, *functions)
        rows, _ = await store.run(transact, lambda tx: tx.execute("select id from orders order by id"))
    assert [value for value, _ in worked] == ["p", None, "q", None, None, "r", None]
    assert [error is None for _, error in worked] == [True, False, True, False, False, True, False]
    assert calls == ENDS
    assert rows == [("a",), ("p",), ("q",), ("r",)]


@pytest.mark.parametrize("sql", ["select 1 as [it's]; commit; --'", "select 1 as `it's`; rollback; begin; --'"])
async def test_what_is_hidden_from_the_look_at_its_words_commits_nothing(tmp_path: Path, sql: str) -> None:
    refusals = []

    def hides(tx: Any) -> None:
        tx.execute("insert into orders values ('h', 7)")
        try:
            tx.execute(sql)
        except Exception as error:
            refusals.append(error)
        tx.execute("insert into orders values ('i', 7)")
        raise ValueError("undo it all")

    async with opened(tmp_path) as store:
        (_, error), (value, _) = await together(store, hides, lambda tx: "fine")
        rows, _ = await store.run(transact, lambda tx: tx.execute("select id from orders"))
    assert len(refusals) == 1
    assert isinstance(error, ValueError)
    assert value == "fine"
    assert rows == [("a",)]
