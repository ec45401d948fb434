"""Transactions as scripts: logic written once, run by whichever database is below.

A script is a generator that yields statements by name and is sent their rows. SQLite runs it on its writer thread
inside one transaction, PostgreSQL awaits each statement on a connection; the script cannot tell. All
SQL passes through the two drivers, which is what lets the crash tests stop at every single statement.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from importlib import resources
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from semel.engine.caller_connection import CallerConnection
from semel.errors import EngineError
from semel.transactional.statements import StatementHook, read_queries

T = TypeVar("T")
P = ParamSpec("P")
Row = tuple[Any, ...]


class Collision(EngineError):
    """A unique index refused a row; nothing of the script was written."""


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """One statement with its arguments; lists are passed as lists."""

    name: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class SqlBatch:
    """One statement for many rows: PostgreSQL takes them as arrays, SQLite one after the other."""

    name: str
    rows: list[Row]
    shared: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Raw:
    """A piece of a migration, run as it stands."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Work:
    """A function of the user's that runs in the transaction, between the script's own statements.

    Gives one row, (value, None) or (None, the error); what a function wrote that raised is rolled back.
    """

    name: str
    do: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Begin:
    """From here on all or nothing: a transaction begins, unless there is one already."""

    name: str = "begin"


BEGIN = Begin()
Statement = SqlQuery | SqlBatch | Raw | Work | Begin
Script = Generator[Statement, list[Any], T]


class ConnectionRole(Enum):
    """What a script is for. PostgreSQL keeps a connection for each, so that none waits for another."""

    ADMIT = "admit"
    CLAIM = "claim"
    SETTLE = "settle"
    CONTROL = "control"
    READ = "read"
    BEAT = "beat"
    """The heartbeat, which must not wait behind anything else."""


@dataclass(frozen=True)
class Procedure(Generic[P, T]):
    """A script with the line it runs on.

    `atomic` scripts of one statement need no transaction around it, nor do those that ask for one with BEGIN.
    """

    script: Callable[P, Script[T]]
    line: ConnectionRole
    atomic: bool
    quiet: bool = False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Script[T]:
        return self.script(*args, **kwargs)


def procedure(
    line: ConnectionRole, *, atomic: bool = False, quiet: bool = False
) -> Callable[[Callable[P, Script[T]]], Procedure[P, T]]:
    """Mark a script. `atomic` says that each statement may commit on its own, as when there is only one.

    `quiet`: nobody elsewhere waits for what it writes. SQLite cannot say what a commit was about, so it rings for all
    others.
    """
    return lambda script: Procedure(script, line, atomic, quiet)


class Topic(Enum):
    """What a process wants to be told of. A client without a worker is not woken by work that is enqueued."""

    RESULTS = auto()
    """Executions that ended, messages that were answered."""
    WORK = auto()
    """Work that is ready or due, cancellations, what came for workflows and entities."""


class Listener(Protocol):
    """What a store tells of things that happened in other processes, or in other engines of this one."""

    def work(self, lanes: Iterable[int]) -> None:
        """These lanes have work."""

    def due(self, at: int) -> None:
        """Something becomes ready at this time."""

    def done(self, ids: Iterable[str]) -> None:
        """These executions have ended."""

    def cancel(self, id: str) -> None:
        """Someone wants this execution cancelled."""

    def news(self, ids: Iterable[str]) -> None:
        """Something came for these flows while they are awake."""

    def schedules(self) -> None:
        """Some schedule was created, changed or resumed."""

    def poll_everything(self) -> None:
        """Something changed; who knows what."""


class ScriptRunner(Protocol):
    """Something that runs scripts: a store, or a transaction of the caller's."""

    async def run(self, script: Procedure[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a script to its end, in one transaction unless it is atomic by itself.

        Raises EngineUnavailable when the database did not answer: the script may then have been
        committed, or not.
        """


class Store(ScriptRunner, Protocol):
    """A database that runs scripts."""

    dialect: str
    migrations: list[tuple[int, str, str]]
    tap: StatementHook | None
    one_writer: bool
    """While a transaction of the caller's writes, nobody else can: all that belongs to it goes over its connection."""

    @property
    def reconnections(self) -> int:
        """How often a connection for heartbeats was opened: after each the database may have forgotten something."""

    def render(self, statement: SqlQuery | SqlBatch) -> list[tuple[str, tuple[Any, ...]]]:
        """A statement as SQL of the dialect, each with its arguments; what is one here may be several there."""

    async def is_ours(self, connection: CallerConnection) -> bool:
        """Is a connection of the caller's to this database? InvalidValue: it is, and cannot be used."""

    def expect_commit(self, connection: CallerConnection) -> None:
        """Something was written on a connection of the caller's: tell workers when that commits."""

    def now(self) -> int:
        """The time for statements on a connection of the caller's, where the database has none of its own."""

    async def listen(self, listener: Listener, topic: Topic) -> None:
        """Begin to tell the listener what happens elsewhere, at least as far as the topic goes.

        Called again for another topic, it tells the same listener of both.
        """

    async def relisten(self) -> None:
        """Begin anew: something was missed."""

    def is_ready(self, lines: Iterable[ConnectionRole]) -> bool:
        """Is there a connection for each of these lines of work, as far as is known without asking?"""

    async def make_ready(self, lines: Iterable[ConnectionRole]) -> None:
        """Open the connections for these lines of work that are missing. EngineUnavailable: one cannot be had."""

    async def verify(self, patience: float) -> None:
        """One connection did not answer within so many seconds: replace those that do not either."""

    async def check(self) -> list[tuple[bool, str, str]]:
        """Look at what could be wrong with the database itself."""

    async def close(self) -> None:
        """Let go of the database."""


def load_queries(package: str) -> dict[str, str]:
    """Named statements of a dialect: `-- name: x` begins one (`-- name: x, y`: both), comment lines are dropped."""
    return read_queries(resources.files(package) / "sql")


def load_migrations(package: str) -> list[tuple[int, str, str]]:
    """(number, name, statements) of a dialect's migrations, in order."""
    found = []
    for file in (resources.files(package) / "migrations").iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            found.append((int(number), name, file.read_text(encoding="utf-8")))
    return sorted(found)
