"""An app whose engine is not where its business rows are, and relays that a test drives step by step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import semel
from semel.engine.protocol import Engine
from semel.transactional.outbox.database import open_database
from semel.transactional.outbox.dispatch import Dispatcher
from semel.transactional.outbox.relay import Relay, RelayOptions
from tests.outbox.places import Place
from tests.world import World


class OutboxShop:
    """Orders and their shipment."""

    def __init__(self, world: World, place: Place) -> None:
        self.world = world
        self.place = place
        self.app = app = world.app(outbox=place.url)
        self.handled: list[semel.OutboxEvent] = []

        @app.task
        async def ship(order: int) -> str:
            return f"shipped {order}"

        @app.workflow
        async def approve(ctx: semel.Context, order: int) -> str:
            return await ctx.wait_signal("answer", type=str)

        @app.entity
        class Points:
            total: int = 0

            @semel.handler
            async def add(self, ctx: semel.EntityContext, n: int) -> int:
                self.total += n
                return self.total

        @app.outbox_handler("mail.wanted")
        async def mail(event: semel.OutboxEvent) -> None:
            if event.payload == "bad":
                raise ValueError("no such address")
            self.handled.append(event)

        self.ship: Any = ship
        self.approve: Any = approve
        self.points: Any = Points

    @asynccontextmanager
    async def relay(self, engine: Engine | None = None, **options: Any) -> AsyncIterator[Relay]:
        """A relay that does nothing by itself: `await relay.step()` has it take, carry out and mark rows."""
        dispatcher = Dispatcher(
            engine or self.app.engine, self.app.tasks, self.app.settings, self.app._handlers, timeout=30
        )
        made = Relay(open_database(self.place.url), dispatcher, self.app.settings.namespace, RelayOptions(**options))
        try:
            yield made
        finally:
            await made.stop()

    async def relay_all(self) -> None:
        """Relay all that is due."""
        async with self.relay() as relay:
            while await relay.step():
                pass

    async def order(self, number: int, **options: Any) -> Any:
        """An order with its shipment, committed."""
        async with self.place.transaction() as connection:
            await self.place.insert(connection, number)
            return await self.app.enqueue(self.ship, number, task_id=f"ship:{number}", connection=connection, **options)

    async def mail(self, *texts: str) -> None:
        """Rows for the handler."""
        async with self.place.transaction() as connection:
            for text in texts:
                await self.app.outbox.add("mail.wanted", text, connection=connection)
