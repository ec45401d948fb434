"""An outbox in MySQL or MariaDB, on PyMySQL."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql

from semel.errors import ConfigError, EngineError, EngineUnavailable, phrase_with_type
from semel.transactional.outbox.database import hide_password, no_outbox
from semel.transactional.outbox.threaded import DRIVER_SHARE, ThreadedOutbox
from semel.transactional.parameters import by_name, to_pyformat
from semel.transactional.statements import Row

CONNECT_TIMEOUT: Final = 10.0
NO_SUCH_TABLE: Final = 1146
PORT: Final = 3306
ISOLATION: Final = "set session transaction isolation level read committed"
"""As MySQL sets it up, a look at rows that are due would also lock the gaps between them, and with them inserts."""


class MysqlOutbox(ThreadedOutbox):
    """See OutboxDatabase."""

    dialect = "mysql"

    def __init__(self, url: str, timeout: float) -> None:
        super().__init__(hide_password(url), timeout)
        self._options = read_url(url)

    def connect(self) -> Any:
        """See ThreadedOutbox."""
        patience = self.timeout * DRIVER_SHARE
        return pymysql.connect(
            **self._options,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=min(CONNECT_TIMEOUT, patience),
            read_timeout=patience,
            write_timeout=patience,
            init_command=ISOLATION,
        )

    def fetch(self, connection: Any, sql: str, args: Row) -> list[Row]:
        """See ThreadedOutbox. MySQL says only how many rows were changed."""
        with connection.cursor() as cursor:
            cursor.execute(to_pyformat(sql), by_name(args))
            return list(cursor.fetchall()) if cursor.description else [()] * max(0, cursor.rowcount)

    def explain(self, error: Exception) -> Exception:
        """See ThreadedOutbox."""
        if isinstance(error, pymysql.err.ProgrammingError) and error.args[:1] == (NO_SUCH_TABLE,):
            return no_outbox(self.name)
        if isinstance(error, pymysql.err.OperationalError | pymysql.err.InterfaceError | OSError):
            return EngineUnavailable(f"{self.name} did not answer: {phrase_with_type(error)}.")
        if isinstance(error, pymysql.err.Error):
            return EngineError(f"{self.name} refused: {phrase_with_type(error)}.")
        return error


def read_url(url: str) -> dict[str, Any]:
    """The options of a connection. ConfigError: the URL names no database."""
    parts = urlsplit(url)
    database = parts.path.lstrip("/")
    if not database:
        raise ConfigError(f"{hide_password(url)!r} names no database: write mysql://user@host/database.")
    options: dict[str, Any] = {
        "host": parts.hostname or "localhost",
        "port": parts.port or PORT,
        "user": None if parts.username is None else unquote(parts.username),
        "password": unquote(parts.password or ""),
        "database": unquote(database),
    }
    socket = parse_qs(parts.query).get("unix_socket")
    return {**options, "unix_socket": socket[0]} if socket else options
