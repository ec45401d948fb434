"""From a URL to an engine."""

from __future__ import annotations

import difflib
import importlib.util
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from semel.define.registry import Registry
from semel.engine.protocol import Capabilities, Engine
from semel.engines.journal.engine import JournalEngine
from semel.engines.sqlite.store import SqliteStore
from semel.errors import ConfigError
from semel.runtime.events import Events
from semel.settings import Settings

if TYPE_CHECKING:
    from temporalio.client import Interceptor
    from temporalio.converter import PayloadCodec

SCHEMES = ("sqlite", "postgresql", "postgres", "temporal")
SQLITE = Capabilities(
    "sqlite", many_machines=False, in_order=True, limits=True, hears_in_steps=True, joins_transactions=True
)
POSTGRES = Capabilities(
    "postgres", many_machines=True, in_order=True, limits=True, hears_in_steps=True, joins_transactions=True
)


class Opener:
    """Opens engines for one URL: one for each event loop, a `:memory:` database shared between them."""

    def __init__(
        self,
        settings: Settings,
        definitions: Registry,
        auto_migrate: bool | None,
        clock: Callable[[], float] | None,
        codec: PayloadCodec | None = None,
        interceptors: Sequence[Interceptor] = (),
        events: Events | None = None,
    ) -> None:
        self._events = events or Events()
        self._settings = settings
        self._codec = codec
        self._interceptors = interceptors
        self._definitions = definitions
        self._auto_migrate = auto_migrate
        self._clock = clock or time.time
        self.scheme, self.path = parse_url(settings.url)
        if self.scheme != "temporal" and (codec is not None or interceptors):
            raise ConfigError(
                f"{'interceptors' if codec is None else 'codec'}= is Temporal's: what is stored in {self.scheme} does "
                "not go through it. Leave it away, or give a temporal:// URL."
            )
        self._shared: SqliteStore | None = None
        """A database in memory, until it is closed: then it is gone, and the next use makes an empty one."""

    def open(self, namespace: str) -> Engine:
        """A new engine for the running event loop."""
        if self.scheme == "sqlite":
            migrate = True if self._auto_migrate is None else self._auto_migrate
            in_memory = self.path == ":memory:"
            if in_memory and self._shared is None:
                self._shared = self._sqlite()
            return JournalEngine(
                self._shared or self._sqlite(),
                SQLITE,
                namespace,
                auto_migrate=migrate,
                settings=self._settings,
                own_store=not in_memory,
                events=self._events,
            )
        migrate = self._settings.auto_migrate if self._auto_migrate is None else self._auto_migrate
        if self.scheme == "temporal":
            from semel.engines.temporal.factory import open_engine  # extras are imported only when they are used

            return open_engine(
                self._settings,
                namespace,
                self._definitions,
                migrate=migrate,
                records_too=self._auto_migrate,
                clock=self._clock,
                codec=self._codec,
                interceptors=self._interceptors,
                events=self._events,
            )
        from semel.engines.postgres.store import PostgresStore

        return JournalEngine(
            PostgresStore(self._settings.url),
            POSTGRES,
            namespace,
            auto_migrate=migrate,
            settings=self._settings,
            events=self._events,
        )

    def now(self) -> float:
        """Seconds since 1970 by the clock of this process, or by that which a test gave the app."""
        return self._clock()

    def copy(self) -> Opener:
        """One that opens the same and shares nothing with this one."""
        return Opener(
            self._settings,
            self._definitions,
            self._auto_migrate,
            self._clock,
            self._codec,
            self._interceptors,
            self._events,
        )

    def _sqlite(self) -> SqliteStore:
        return SqliteStore(self.path, self._clock, self._settings.sqlite_driver)

    async def close(self) -> None:
        """Let go of what engines share."""
        shared, self._shared = self._shared, None
        if shared is not None:
            await shared.close()


def parse_url(url: str) -> tuple[str, str]:
    """(scheme, path) of an engine URL, or ConfigError that says what a URL looks like."""
    scheme, colon, rest = url.partition("://")
    if not colon or scheme not in SCHEMES:
        near = difflib.get_close_matches(scheme, SCHEMES, 1)
        hint = f" Did you mean {near[0]}://?" if near and colon else ""
        raise ConfigError(
            f"url={hide_password(url)!r} is not one Semel can open.{hint} Use sqlite:///file.db, sqlite:///:memory:, "
            "postgresql://user@host/database or temporal://host:7233/namespace."
        )
    if scheme == "temporal":
        return scheme, rest
    if scheme != "sqlite":
        if importlib.util.find_spec("asyncpg") is None:
            raise ConfigError("PostgreSQL needs the extra: pip install 'semel[postgres]'.")
        return "postgresql", rest
    if not rest.startswith("/") or rest == "/":
        raise ConfigError(f"url={url!r}: write three slashes and a file, such as sqlite:///semel.db.")
    return scheme, rest[1:]


def hide_password(url: str) -> str:
    """A URL fit for messages and logs."""
    scheme, colon, rest = url.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{colon}{user.partition(':')[0]}{at}{host}" if at else url
