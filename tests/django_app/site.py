"""A Django project of a test: one database, one app of Semel's, the task backend."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from django.core.management import call_command
from django.db import connections, transaction
from django.test import override_settings

from tests.world import World, eventually

LIVE = "status not in ('completed', 'failed', 'cancelled', 'timed_out')"
BACKEND = "semel.django.task_backend.SemelBackend"


class _RollBack(Exception):
    pass


class Site:
    """What a test of the backend has at hand."""

    def __init__(self, world: World, alias: str, url: str) -> None:
        self.world = world
        self.alias = alias
        self.url = url
        self.elsewhere = url != world.url
        self.app = world.app(outbox=url)
        self.shop: Any = None
        """The module with tasks."""

    @property
    def connection(self) -> Any:
        return connections[self.alias]

    def atomic(self) -> Any:
        return transaction.atomic(using=self.alias)

    @contextmanager
    def rolled_back(self) -> Iterator[None]:
        """A transaction, or inside of one a savepoint, that ends with an error."""
        try:
            with self.atomic():
                yield
                raise _RollBack
        except _RollBack:
            return

    @contextmanager
    def open(self) -> Iterator[None]:
        """Migrate, and have the backend use this database and this app."""
        call_command("migrate", "semel", database=self.alias, verbosity=0)
        self.sql("create table orders (id integer primary key, note varchar(50))")
        options = {"app": self.app, "database": self.alias}
        tasks = {"default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": options}}
        with override_settings(TASKS=tasks):
            self.shop = import_tasks()
            self.shop.alias = self.alias
            try:
                yield
            finally:
                self.app.sync.close()
                connections.close_all()

    def sql(self, text: str) -> list[Any]:
        with self.connection.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall()) if cursor.description else []

    def orders(self) -> list[int]:
        return [row[0] for row in self.sql("select id from orders order by id")]

    def rows(self) -> int:
        """Starts that are written down, in the outbox or by the engine."""
        return len(self.sql("select 1 from outbox_events")) + asyncio.run(self._executions())

    async def _executions(self) -> int:
        return await self.world.count()

    def work(self) -> None:
        """Relay and run until there is nothing left to do."""

        async def main() -> None:
            async with self.app.relay(poll="50ms"), self.world.worker(self.app):
                await eventually(self._idle)
            await self.app.close()

        asyncio.run(main())

    def relay(self) -> None:
        """Relay until no row waits."""

        async def main() -> None:
            async with self.app.relay(poll="50ms"):
                await eventually(self._relayed)
            await self.app.close()

        asyncio.run(main())

    async def _relayed(self) -> bool:
        return not (await self.app.outbox.state()).pending

    async def _idle(self) -> bool:
        return await self._relayed() and not await self.world.count(f"semel_execution where {LIVE}")


def import_tasks() -> ModuleType:
    """The module with tasks, whose decorators want a backend."""
    from tests.django_app import shop

    return shop
