"""A connection of the caller's with an open transaction, as an engine sees it, whichever driver is below."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class CallerConnection(Protocol):
    """A connection that Semel never commits, rolls back or closes. `semel.transactional` makes them."""

    @property
    def dialect(self) -> str:
        """The database at the other end: "sqlite", "postgres" or "mysql"."""

    @property
    def kind(self) -> str:
        """What people call it, such as "psycopg.Connection"."""

    @property
    def driver_connection(self) -> object:
        """The driver's own connection object."""

    @property
    def in_transaction(self) -> bool:
        """Is a transaction open? Can be asked from any thread."""

    def play(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        """Run `work` where the connection may be used: in the caller's thread, or in this event loop.

        Only inside of it `fetch` and `set_clock` may be called.
        """

    async def fetch(self, sql: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run one statement; its rows as plain tuples, whatever row factory the connection has.

        The driver's own errors come out as they are: whoever retries transactions looks for them.
        """

    def set_clock(self, now: int) -> None:
        """What the function `semel_now` of our statements gives from here on; PostgreSQL has a clock of its own."""
