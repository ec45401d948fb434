"""Starts in a transaction of the caller's, as operations that can be broken at each statement and at the commit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiosqlite
import asyncpg

import semel
from tests.faults.backfill_operations import OPERATIONS
from tests.faults.operations import Memo, operation
from tests.faults.shop import Shop

__all__ = ["OPERATIONS"]


class CallerShop(Shop):
    """Saves rows of its own, in `till`, and starts what belongs to them in the same transaction."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A connection of the caller's. Its commit is a statement that can break, too."""
        if self.site.engine == "sqlite":
            async with aiosqlite.connect(self.site.path) as connection:
                await connection.execute("begin immediate")
                yield connection
                await self._commit(connection.commit)
            return
        connection = await asyncpg.connect(self.site.url)
        try:
            block = connection.transaction()
            await block.start()
            yield connection
            await self._commit(block.commit)
        finally:
            await connection.close()

    async def _commit(self, commit: Any) -> None:
        if self.store.tap is not None:
            self.store.tap.before("commit of the caller")
        await commit()
        if self.store.tap is not None:
            self.store.tap.after("commit of the caller")

    async def save(self, connection: Any, keys: list[str]) -> None:
        """Rows that are not there yet. Those that are have their executions, and the others have none."""
        saved = {who for (who,) in await self.site.sql("select who from till")}
        known = {key for (key,) in await self.site.sql("select key from semel_execution where current")}
        for key in keys:
            assert (key in saved) == (key in known), f"{key}: one of the row and its execution is there alone"
            if key not in saved:
                await connection.execute(f"insert into till (who) values ('{key}')")


def rows_of(*keys: str) -> Memo:
    """What must be in the till at the end."""
    return {"keys": list(keys), "till": dict.fromkeys(keys, 1)}


async def no_rows(shop: CallerShop) -> Memo:
    await shop.app.queues()
    return rows_of("o-1")


async def new_tables(shop: CallerShop) -> Memo:
    """The engine of this process has not been used, and there is no lane yet."""
    return rows_of("o-1")


async def five_rows(shop: CallerShop) -> Memo:
    await shop.app.queues()
    return rows_of("o-1", "o-2", "o-3", "o-4", "o-5")


async def one_that_failed(shop: CallerShop) -> Memo:
    """Its key is free, and its row was saved with it."""
    async with shop.transaction() as connection:
        await connection.execute("insert into till (who) values ('o-1')")
        handle = await shop.app.enqueue(shop.doomed, "o-1", task_id="o-1", connection=connection)
    async with shop.app.worker():
        try:
            await handle.result(60)
        except semel.ExecutionFailed:
            return rows_of("o-1") | {"failed": handle.id}
    raise AssertionError("it did not fail")


@operation(no_rows, client=True, shop=CallerShop)
async def commit_and_start(shop: CallerShop, memo: Memo) -> Any:
    async with shop.transaction() as connection:
        await shop.save(connection, ["o-1"])
        handle = await shop.app.enqueue(shop.charge, "o-1", task_id="o-1", connection=connection)
    return {"keys": [handle.key]}


@operation(new_tables, client=True, shop=CallerShop)
async def commit_and_start_first_of_all(shop: CallerShop, memo: Memo) -> Any:
    async with shop.transaction() as connection:
        await shop.save(connection, ["o-1"])
        handle = await shop.app.enqueue(shop.charge, "o-1", task_id="o-1", connection=connection)
    return {"keys": [handle.key]}


@operation(five_rows, client=True, shop=CallerShop)
async def commit_and_start_many(shop: CallerShop, memo: Memo) -> Any:
    keys = memo["keys"]
    async with shop.transaction() as connection:
        await shop.save(connection, keys)
        calls = [(shop.charge.call(key), key) for key in reversed(keys)]
        handles = await shop.app.enqueue_many(calls, connection=connection)
    return {"keys": [handle.key for handle in handles]}


@operation(one_that_failed, client=True, shop=CallerShop)
async def commit_and_start_again(shop: CallerShop, memo: Memo) -> Any:
    """The key moves from the execution that failed to a new one, or stays."""
    async with shop.transaction() as connection:
        await shop.save(connection, ["o-1"])
        await shop.app.enqueue(shop.charge, "o-1", task_id="o-1", reuse="failed_only", connection=connection)
    return {"keys": ["o-1"]}
