"""The first program that people write: an app, its worker and their own tables through SQLAlchemy, in one SQLite file.

`python -m tests.faults.newcomer FILE ACKS NAME` runs until it is killed. Each order and each task that was acknowledged
is a line of ACKS, written before the next one is begun.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing

import sqlalchemy

import semel

ORDERS = "create table if not exists orders (id text primary key, cents integer not null)"


class Shop:
    """One process of it."""

    def __init__(self, path: str, acks: str, name: str) -> None:
        self.name = name
        self.path = path
        self.app = semel.App(f"sqlite:///{path}", config=None)
        self._database = sqlalchemy.create_engine(f"sqlite:///{path}", connect_args={"timeout": 30})
        self._acks = os.open(acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._numbers = itertools.count()

        @self.app.task
        async def ship(order: str) -> str:
            return order

        self._ship = ship

    def acknowledge(self, kind: str, key: str) -> None:
        """In one write, so that a kill leaves whole lines."""
        os.write(self._acks, f"{kind} {key}\n".encode())

    def make_table(self) -> None:
        """The newcomer's own table, beside Semel's."""
        with self._database.begin() as connection:
            connection.execute(sqlalchemy.text(ORDERS))

    def place(self, key: str) -> None:
        """Write an order, as a request of a web application does."""
        with self._database.begin() as connection:
            connection.execute(sqlalchemy.text("insert into orders values (:id, 100)"), {"id": key})
        self.acknowledge("order", key)

    def count(self) -> None:
        """Look at the orders through a connection that is closed again, as a report does."""
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            connection.execute("select count(*) from orders").fetchall()

    async def buy(self) -> None:
        """Place an order, then have it shipped."""
        key = f"{self.name}-{next(self._numbers)}"
        await asyncio.to_thread(self.place, key)
        await self.app.enqueue(self._ship, key, task_id=key)
        self.acknowledge("task", key)

    async def run(self) -> None:
        """Sell until killed."""
        await asyncio.to_thread(self.make_table)
        async with self.app.worker(lease="5s"):
            await asyncio.gather(self._again(self.buy), self._again(self.buy), self._again(self._report))

    async def _report(self) -> None:
        await asyncio.to_thread(self.count)

    async def _again(self, do: Callable[[], Awaitable[None]]) -> None:
        while True:
            await do()
            await asyncio.sleep(0.005)


if __name__ == "__main__":
    asyncio.run(Shop(*sys.argv[1:4]).run())
