"""The part of an app that is about transactions of the caller's: `connection=`, `app.bind`, outbox and relay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from functools import cached_property
from typing import Any, Literal, TypeVar

from semel.contract.durations import Duration, parse_duration
from semel.contract.keys import check_name
from semel.define.registry import Registry
from semel.engine.protocol import Engine, EngineVerbs, JoinedVerbs
from semel.errors import ConfigError, DefinitionError, InvalidValue
from semel.outbox import Outbox
from semel.settings import Settings
from semel.transactional.bound import bound, connection_of
from semel.transactional.outbox.database import hide_password, open_database
from semel.transactional.outbox.dispatch import Dispatcher, Handler
from semel.transactional.outbox.events import TYPE_LENGTH
from semel.transactional.outbox.relay import Relay, RelayOptions
from semel.transactional.outbox.verbs import OutboxVerbs, row_options
from semel.transactional.recognise import recognise

H = TypeVar("H", bound=Handler)


class Transactions:
    """Verbs in a transaction of the caller's."""

    settings: Settings
    tasks: Registry

    @property
    def engine(self) -> Engine:
        """The engine of the running event loop."""
        raise NotImplementedError

    def bind(self, connection: Any) -> AbstractContextManager[None]:
        """`with app.bind(session): …`: starts inside use this connection, as if each were given `connection=session`.

        `app.bind(None)` takes code out of it again: what is started inside is committed at once.
        """
        return bound(self, connection)

    def _connection(self, given: Any, verb: str) -> Any:
        """The connection that a verb uses: that which it was given, or the bound one; None: one of the engine's own."""
        return connection_of(self, verb) if given is None else given

    async def _joined(self, connection: Any) -> JoinedVerbs | OutboxVerbs:
        """The verbs in a transaction of the caller's: the engine's own, or rows of an outbox in another database."""
        given = await recognise(connection)
        joined = await self.engine.join(given)
        return (
            OutboxVerbs(given, self.settings.namespace, hide_password(self.settings.url)) if joined is None else joined
        )

    async def _verbs(self, connection: Any) -> EngineVerbs | OutboxVerbs:
        """The verbs on a connection of the caller's, or on the engine's own."""
        return self.engine if connection is None else await self._joined(connection)

    # The outbox.

    @cached_property
    def outbox(self) -> Outbox:
        """The outbox of this app: rows in another database than its engine's."""
        return Outbox(self)

    def outbox_options(
        self,
        *,
        aggregate_id: str | None = None,
        order_key: str | None = None,
        on_failure: Literal["hold", "continue"] | None = None,
        max_retries: int | None = None,
    ) -> AbstractContextManager[None]:
        """Options of the outbox rows that are written inside: `with app.outbox_options(order_key="order-7"): …`.

        Rows with one `order_key` are relayed one after the other; one that has failed for good holds those after it
        (`hold`), or lets them pass (`continue`). `aggregate_id` is what people look for them by. What is started in the
        engine's own database has no row, and is not touched by this.
        """
        return row_options(aggregate_id, order_key, on_failure, max_retries)

    def outbox_handler(self, event_type: str) -> Callable[[H], H]:
        """Have relays call a function for rows of a type of your own: `@app.outbox_handler("invoice.sent")`.

        It gets the `OutboxEvent`, and may be called more than once for one row. A plain function runs in a thread. It
        has half of the relay's lease to end; what it raises is a failed try. Rows of a type without a handler are left
        to relays that have one.
        """
        name = check_name(event_type, "event_type", TYPE_LENGTH)
        if name.startswith("semel."):
            raise DefinitionError(f"event_type={name!r}: what begins with 'semel.' is Semel's own.")

        def register(function: H) -> H:
            if name in self._handlers:
                raise DefinitionError(f"there are two handlers for rows of type {name!r}.")
            self._handlers[name] = function
            return function

        return register

    @cached_property
    def relays(self) -> list[Relay]:
        """The relays that run in this process for this app."""
        return []

    @cached_property
    def _handlers(self) -> dict[str, Handler]:
        return {}

    @asynccontextmanager
    async def relay(
        self,
        *databases: str,
        batch: int = 500,
        concurrency: int = 100,
        poll: Duration = "5s",
        lease: Duration = "60s",
        retention: Duration = "7d",
    ) -> AsyncIterator[list[Relay]]:
        """Relays in this process, one for each database: `async with app.relay("postgresql://…"): …`.

        Without a database, that of the setting `outbox`. Any number of processes may relay one outbox. Leaving the
        block marks what is under way.
        """
        options = _relay_options(batch, concurrency, poll, lease, retention)
        dispatcher = Dispatcher(self.engine, self.tasks, self.settings, self._handlers, options.lease / 2)
        limit = self.settings.call_timeout.total_seconds()
        relays = [
            Relay(open_database(url, limit), dispatcher, self.settings.namespace, options)
            for url in databases or (self._outbox_url(),)
        ]
        try:
            for failed in await asyncio.gather(*(relay.start() for relay in relays), return_exceptions=True):
                if failed is not None:
                    raise failed
            self.relays.extend(relays)
            yield relays
        finally:
            self.relays[:] = [one for one in self.relays if one not in relays]
            await asyncio.gather(*(relay.stop() for relay in relays))

    def _outbox_url(self) -> str:
        if self.settings.outbox is None:
            raise ConfigError(
                "which database is the outbox in? Give its URL, or set outbox in semel.toml, SEMEL_OUTBOX or "
                "App(outbox=…)."
            )
        return self.settings.outbox


def _relay_options(batch: int, concurrency: int, poll: Duration, lease: Duration, retention: Duration) -> RelayOptions:
    for name, count in (("batch", batch), ("concurrency", concurrency)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidValue(f"{name}={count!r}: use a whole number, 1 or more.")
    seconds = [
        parse_duration(value, name).total_seconds()
        for name, value in (("poll", poll), ("lease", lease), ("retention", retention))
    ]
    if seconds[0] <= 0 or seconds[1] < 1:
        raise InvalidValue(f"poll={poll!r}, lease={lease!r}: a poll takes some time, and a lease at least '1s'.")
    return RelayOptions(batch, concurrency, *seconds)
