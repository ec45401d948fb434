"""A database with an outbox, as the relay and the command line use it: from a URL to a connection of their own."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import Final, Protocol, TypeVar

from semel.errors import ConfigError, MigrationNeeded
from semel.transactional.statements import Script, StatementHook, folder_of

T = TypeVar("T")
DIALECTS: Final = {
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
}


class OutboxDatabase(Protocol):
    """A database of the caller's with an outbox. One connection, opened on first use and again when it is lost."""

    @property
    def dialect(self) -> str:
        """ "postgres", "sqlite" or "mysql"."""

    name: str
    """As people may see it, without a password."""
    timeout: float
    """Seconds that a call of `run` or `execute` takes at most, also if the server is frozen and never answers."""
    tap: StatementHook | None

    async def run(self, script: Script[T], *, write: bool = True) -> T:
        """Run a script in one transaction. `write`: it may change something.

        EngineUnavailable: the database did not answer, and it may have been committed or not. MigrationNeeded: it has
        no outbox.
        """

    async def wait(self, seconds: float) -> None:
        """Wait for so many seconds, or until somebody has committed a row, where the database tells of it."""

    async def execute(self, text: str) -> None:
        """Run the statements of a file."""

    async def close(self) -> None:
        """Let go of the connection. Takes a few seconds at most."""

    def terminate(self) -> None:
        """Let go of the connection at once, whatever is under way on it. It can be used again."""


CALL_TIMEOUT: Final = 30.0
"""Seconds, as the setting `call_timeout` is without a settings file."""


def open_database(url: str, timeout: float = CALL_TIMEOUT) -> OutboxDatabase:
    """The database of a URL, not yet connected. ConfigError says what a URL looks like."""
    scheme, colon, rest = url.partition("://")
    dialect = DIALECTS.get(scheme.partition("+")[0]) if colon else None
    if dialect == "sqlite":
        if not rest.startswith("/") or rest == "/":
            raise ConfigError(f"{url!r}: write three slashes and a file, such as sqlite:///shop.db.")
        from semel.transactional.outbox.sqlite import SqliteOutbox

        return SqliteOutbox(rest[1:], timeout)
    if dialect == "postgres":
        _require("asyncpg", "postgres")
        from semel.transactional.outbox.postgres import PostgresOutbox  # extras are imported only when they are used

        return PostgresOutbox(f"postgresql://{rest}", timeout)
    if dialect == "mysql":
        _require("pymysql", "mysql")
        from semel.transactional.outbox.mysql import MysqlOutbox

        return MysqlOutbox(f"mysql://{rest}", timeout)
    shown = hide_password(url)
    raise ConfigError(
        f"{shown!r} is no database that an outbox can be in: use postgresql://user@host/database, sqlite:///file.db or "
        "mysql://user@host/database."
    )


def _require(module: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ConfigError(f"an outbox in this database needs the extra: pip install 'semel[{extra}]'.")


def hide_password(url: str) -> str:
    """A URL fit for messages and logs."""
    scheme, colon, rest = url.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{colon}{user.partition(':')[0]}{at}{host}" if at else url


def tables_sql(dialect: str, *, drop: bool = False) -> str:
    """The statements that make the tables of an outbox in one dialect, or drop them."""
    return (folder_of(dialect) / ("drop.sql" if drop else "tables.sql")).read_text(encoding="utf-8")


def no_outbox(name: str) -> MigrationNeeded:
    """The error of a database without the tables."""
    return MigrationNeeded(f"there is no outbox in {name}: its tables are missing. Run: semel outbox init --database …")


async def sleep_until(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, and for so many seconds at most."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
