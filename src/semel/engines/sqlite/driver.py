"""The SQLite library below an engine: the process's own `sqlite3`, or apsw.

Two SQLite libraries that open one file in one process destroy it: POSIX locks belong to the process, so each library
takes and drops the locks of the other. So the engine runs on the library that everything else in the process uses,
and apsw is for processes whose own library is too old, or where nothing else opens the file.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol
from urllib.parse import quote

from semel.engines.sqlite.parameters import NUMBERED_PLACEHOLDERS_WARN, with_names
from semel.errors import ConfigError

OLDEST: Final = (3, 38, 0)
"""The first SQLite that has everything our statements use: `->>` is the newest of it."""
BUSY, LOCKED, NOMEM, IOERR, CORRUPT, FULL, NOTADB = 5, 6, 7, 10, 11, 13, 26
"""Primary result codes of SQLite."""
_SAVEPOINT, _TRANSACTION = 32, 22
_OK, _DENY = 0, 1
_CACHED_STATEMENTS: Final = 256

Arguments = Sequence[Any] | Mapping[str, Any]


class Connection(Protocol):
    """One connection, used by one thread at a time. It begins no transactions by itself."""

    def execute(self, sql: str, args: Arguments = (), /) -> list[tuple[Any, ...]]:
        """Run one statement; all its rows."""

    def execute_script(self, text: str) -> list[tuple[Any, ...]]:
        """Run several statements within the transaction that is open; the rows of all of them."""

    def create_function(self, name: str, function: Callable[[], Any]) -> None:
        """Make a function without parameters known to SQL. It is asked once for each statement."""

    def forbid_transaction_control(self, forbidden: bool) -> None:
        """Refuse statements that begin or end a transaction or a savepoint, or allow them again."""

    def total_changes(self) -> int:
        """How many rows this connection has changed so far."""

    @property
    def in_transaction(self) -> bool:
        """Is a transaction open?"""

    def close(self) -> None:
        """Close the file. Does nothing when it is closed."""


class Driver(Protocol):
    """A SQLite library."""

    name: str
    version: tuple[int, ...]
    error: type[Exception]
    """The root of the library's errors."""

    def connect(self, path: str, *, patience: float, read_only: bool = False) -> Connection:
        """Open a file, or `:memory:`. Statements wait `patience` seconds for locks of others."""

    def code_of(self, error: BaseException) -> int:
        """SQLite's primary result code of an error; 0 if it is none of SQLite's."""


class Sqlite3Driver:
    """The library of Python's own `sqlite3`, which SQLAlchemy, Django and aiosqlite use as well."""

    name = "sqlite3"

    def __init__(self) -> None:
        self.version: tuple[int, ...] = sqlite3.sqlite_version_info
        self.error: type[Exception] = sqlite3.Error

    def connect(self, path: str, *, patience: float, read_only: bool = False) -> Connection:
        """Open a file; see Driver."""
        if read_only:
            path = f"file:{quote(str(Path(path).absolute()))}?mode=ro"
        made = sqlite3.connect(
            path,
            timeout=patience,
            isolation_level=None,  # no transactions but ours
            check_same_thread=False,  # opened by the thread of the caller, used by the writer thread
            cached_statements=_CACHED_STATEMENTS,
            uri=read_only,
        )
        return _NamingConnection(made) if NUMBERED_PLACEHOLDERS_WARN else _Sqlite3Connection(made)

    def code_of(self, error: BaseException) -> int:
        """The primary result code; see Driver."""
        return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF if isinstance(error, sqlite3.Error) else 0


class _Sqlite3Connection:
    def __init__(self, made: sqlite3.Connection) -> None:
        self._made = made
        self._cursor = made.cursor()
        self._forbidden: bool | None = None

    def execute(self, sql: str, args: Arguments = (), /) -> list[tuple[Any, ...]]:
        return self._cursor.execute(sql, args).fetchall()

    def execute_script(self, text: str) -> list[tuple[Any, ...]]:
        # Not executescript(): it commits first.
        return [row for statement in split_statements(text) for row in self.execute(statement)]

    def create_function(self, name: str, function: Callable[[], Any]) -> None:
        self._made.create_function(name, 0, function, deterministic=True)

    def forbid_transaction_control(self, forbidden: bool) -> None:
        if self._forbidden is None:  # once: a new authorizer has every cached statement prepared again
            self._made.set_authorizer(self._authorize)
        self._forbidden = forbidden

    def _authorize(self, action: int, *_: object) -> int:
        return _DENY if self._forbidden and action in (_TRANSACTION, _SAVEPOINT) else _OK

    def total_changes(self) -> int:
        return self._made.total_changes

    @property
    def in_transaction(self) -> bool:
        return self._made.in_transaction

    def close(self) -> None:
        if self._forbidden is not None:
            with contextlib.suppress(sqlite3.Error):
                self._made.set_authorizer(None)
        self._made.close()


class _NamingConnection(_Sqlite3Connection):
    """For Pythons that warn of `?1` with a sequence of arguments."""

    def execute(self, sql: str, args: Arguments = (), /) -> list[tuple[Any, ...]]:
        return self._cursor.execute(*with_names(sql, args)).fetchall()


class ApswDriver:
    """The library that the wheel of apsw brings. Nothing else in the process may open the engine's file."""

    name = "apsw"

    def __init__(self) -> None:
        self._apsw: ModuleType = importlib.import_module("apsw")
        self.version: tuple[int, ...] = tuple(map(int, self._apsw.sqlite_lib_version().split(".")[:3]))
        self.error: type[Exception] = self._apsw.Error

    def connect(self, path: str, *, patience: float, read_only: bool = False) -> Connection:
        """Open a file; see Driver."""
        apsw = self._apsw
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        made = apsw.Connection(path, flags=flags, statementcachesize=_CACHED_STATEMENTS)
        made.set_busy_timeout(round(patience * 1000))
        return _ApswConnection(made)

    def code_of(self, error: BaseException) -> int:
        """The primary result code; see Driver."""
        return int(getattr(error, "result", 0)) & 0xFF if isinstance(error, self.error) else 0


class _ApswConnection:
    def __init__(self, made: Any) -> None:
        self._made = made
        self._forbidden: bool | None = None

    def execute(self, sql: str, args: Arguments = (), /) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._made.execute(sql, args).fetchall()
        return rows

    def execute_script(self, text: str) -> list[tuple[Any, ...]]:
        return self.execute(text)

    def create_function(self, name: str, function: Callable[[], Any]) -> None:
        self._made.create_scalar_function(name, function, 0, deterministic=True)

    def forbid_transaction_control(self, forbidden: bool) -> None:
        if self._forbidden is None:
            self._made.set_authorizer(self._authorize)
        self._forbidden = forbidden

    def _authorize(self, action: int, *_: object) -> int:
        return _DENY if self._forbidden and action in (_TRANSACTION, _SAVEPOINT) else _OK

    def total_changes(self) -> int:
        return int(self._made.total_changes())

    @property
    def in_transaction(self) -> bool:
        return bool(self._made.in_transaction)

    def close(self) -> None:
        self._made.close()


def choose_driver(name: str = "auto") -> Driver:
    """The driver of this name; `auto`: the process's own library, or apsw where that is too old.

    Raises ConfigError where there is none that can be used, with what to install.
    """
    own = sqlite3.sqlite_version_info
    if name == "sqlite3" or (name == "auto" and own >= OLDEST):
        if own < OLDEST:
            raise ConfigError(f"sqlite_driver='sqlite3': {_too_old()} Or set sqlite_driver = 'apsw'.")
        return Sqlite3Driver()
    if importlib.util.find_spec("apsw") is None:
        raise ConfigError(_too_old() if name == "auto" else "sqlite_driver='apsw': pip install 'semel[apsw]'.")
    return ApswDriver()


def _too_old() -> str:
    needed = ".".join(map(str, OLDEST))
    return (
        f"the SQLite library of this Python is {sqlite3.sqlite_version}, and Semel needs {needed} or newer. "
        "Use a Python with a newer one, or pip install 'semel[apsw]', which brings its own."
    )


def split_statements(text: str) -> Iterator[str]:
    """The single statements of a script. Triggers stay whole."""
    statement = ""
    for piece in text.split(";"):
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip("; \t\r\n"):
        yield statement.removesuffix(";")
