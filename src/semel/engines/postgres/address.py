"""The hosts of a PostgreSQL URL: which of them to connect to, and how a connection to one of them is made."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, urlsplit

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from semel.engines.postgres.pool import is_pooled, refuse_shared_sessions
from semel.errors import ConfigError, EngineError

CONNECT_TIMEOUT: Final = 10.0
CONNECT_TIMEOUT_OF_SEVERAL: Final = 5.0
COMMAND_TIMEOUT: Final = 60.0
IDLE_IN_TRANSACTION: Final = 60.0
LIMITS: Final = {
    # The server gives up a little before the client does: what timed out here does not go on there.
    "statement_timeout": "55s",
    # A client that is gone, or cut off by something that answers in its name, does not keep its locks.
    "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION:.0f}s",
    "tcp_keepalives_idle": "20",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
    "tcp_user_timeout": "40s",
}
"""Session settings of every connection, besides those of its purpose."""
_KEEPALIVE: Final = (
    ("SOL_SOCKET", "SO_KEEPALIVE", 1),
    ("IPPROTO_TCP", "TCP_KEEPIDLE", 20),
    ("IPPROTO_TCP", "TCP_KEEPINTVL", 5),
    ("IPPROTO_TCP", "TCP_KEEPCNT", 4),
    ("IPPROTO_TCP", "TCP_USER_TIMEOUT", 40_000),
)
"""Keepalive options of the client's sockets; what a platform does not have is left out."""

FIRST_ASSIGNED_OID: Final = 10_000
"""Below it, types have the same numbers on every server."""
NOT_ASKED: Final = SimpleNamespace(name="none")
"""Stands for the statement that asked for types, where none was sent: asyncpg need not prepare its own again."""


class Address:
    """A URL with one host or several. Connects to one that takes writes, first to the one that did so last."""

    def __init__(self, url: str) -> None:
        self._urls = split_hosts(url)
        self._last = 0
        # A standby answers and cannot be used. Who names another wish in the URL gets that.
        self._wanted = None if "target_session_attrs" in url else SessionAttribute.read_write

    async def connect(self, settings: Mapping[str, str]) -> asyncpg.Connection:
        """A connection with these session settings. Raises what the last host said if none can be had."""
        hosts = len(self._urls)
        for attempt in range(hosts):
            number = (self._last + attempt) % hosts
            try:
                connection = await self._connect_to(self._urls[number], {**LIMITS, **settings})
            except asyncio.CancelledError:
                self._last = (number + 1) % hosts  # whoever cannot wait for this one tries the next one first
                raise
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
                if attempt == hosts - 1:
                    raise
                continue
            self._last = number
            return connection
        raise AssertionError("unreachable")

    async def _connect_to(self, url: str, settings: Mapping[str, str]) -> asyncpg.Connection:
        connection = await self._open(url, settings, statements=200)
        try:
            async with asyncio.timeout(self._patience):
                if await is_pooled(connection):
                    await refuse_shared_sessions(connection, lambda: self._open(url, settings, statements=0))
        except BaseException:
            connection.terminate()
            raise
        return connection

    @property
    def _patience(self) -> float:
        return CONNECT_TIMEOUT if len(self._urls) == 1 else CONNECT_TIMEOUT_OF_SEVERAL

    async def _open(self, url: str, settings: Mapping[str, str], statements: int) -> asyncpg.Connection:
        try:
            connection = await asyncpg.connect(
                url,
                server_settings=dict(settings),
                statement_cache_size=statements,
                max_cached_statement_lifetime=0,
                timeout=self._patience,
                command_timeout=COMMAND_TIMEOUT,
                target_session_attrs=self._wanted,
                connection_class=KnownTypes,
            )
        except asyncpg.PostgresError as error:
            if "startup parameter" in str(error):
                raise EngineError(
                    f"the server at the other end refuses session settings ({error}): it looks like PgBouncer. Semel "
                    "keeps prepared statements and listens, so connect to PostgreSQL directly or to a pool in session "
                    "mode. For PgBouncer also set ignore_startup_parameters = "
                    f"{','.join(sorted({*settings} - {'application_name'}))}."
                ) from error
            raise
        except FileNotFoundError:
            refuse_missing_files(url)
            raise
        except KeyError as error:  # Python has no name for whoever runs this
            raise ConfigError(
                "the URL of PostgreSQL names no user, and the user that this process runs as has no name: write "
                "postgresql://USER@host/database."
            ) from error
        keep_alive(connection)
        return connection


class KnownTypes(asyncpg.Connection):
    """A connection that asks what an array type of PostgreSQL's own looks like once in a process, not once each.

    asyncpg asks on every connection, with a query that takes the server longer than all that a worker does to start. It
    is a method of asyncpg's own that is replaced here: should it go, each connection asks again.
    """

    _known: ClassVar[dict[frozenset[int], Any]] = {}

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float) -> Any:
        wanted = frozenset(typeoids)
        if wanted in self._known:
            return self._known[wanted], NOT_ASKED
        asyncpg_own: Any = super()
        types, statement = await asyncpg_own._introspect_types(wanted, timeout)
        if max(wanted) < FIRST_ASSIGNED_OID:
            self._known[wanted] = types
        return types, statement


def describe_url(url: str) -> str:
    """A URL as people may see it, without user and password."""
    return "postgresql://" + url.partition("://")[2].rpartition("@")[2]


def split_hosts(url: str) -> list[str]:
    """One URL for each host of a URL: `postgresql://user@one:5432,two:5433/db` has two."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, hosts = authority.rpartition("@")
    return [f"{scheme}{separator}{user}{at}{host}{slash}{path}" for host in hosts.split(",")]


def refuse_missing_files(url: str) -> None:
    """ConfigError: a certificate or key that a URL names is not there."""
    for name, values in parse_qs(urlsplit(url).query).items():
        if name in ("sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile") and not Path(values[-1]).exists():
            raise ConfigError(f"{name}={values[-1]!r} in the URL of PostgreSQL: there is no such file.")


def keep_alive(connection: asyncpg.Connection) -> None:
    """Let the operating system notice a peer that is gone, also while nothing is sent."""
    transport: Any = getattr(connection, "_transport", None)
    found = transport.get_extra_info("socket") if transport is not None else None
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    for level, option, value in _KEEPALIVE:
        with contextlib.suppress(OSError, AttributeError):
            found.setsockopt(getattr(socket, level), getattr(socket, option), value)
