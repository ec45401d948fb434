"""Statements by name, and transactions as generators that yield them: the same on every database."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class One:
    """A statement with its arguments."""

    name: str
    args: Row = ()


@dataclass(frozen=True, slots=True)
class Many:
    """A statement for many rows: PostgreSQL takes them as arrays, the others one after the other."""

    name: str
    rows: list[Row]
    shared: Row = ()


Script = Generator[One | Many, list[Row], T]
"""A transaction: it yields statements and is sent their rows. Of a change, as many rows as were changed."""


class StatementHook(Protocol):
    """Sits at the seam through which all SQL goes. For tests that fail or kill at a statement."""

    def before(self, statement: str) -> None:
        """About to run it."""

    def after(self, statement: str) -> None:
        """It ran."""


class Statements:
    """The statements of one dialect."""

    def __init__(self, folder: Traversable, *, arrays: bool) -> None:
        self._queries = read_queries(folder)
        self._arrays = arrays

    def render(self, statement: One | Many) -> list[tuple[str, Row]]:
        """A statement as SQL, each with its arguments; what is one here may be several there."""
        sql = self._queries[statement.name]
        if isinstance(statement, One):
            return [(sql, statement.args)]
        if self._arrays:
            columns = map(list, zip(*statement.rows, strict=True))
            return [(sql, (*statement.shared, *columns))] if statement.rows else []
        return [(sql, (*statement.shared, *row)) for row in statement.rows]


def read_queries(folder: Traversable) -> dict[str, str]:
    """Named statements: `-- name: x` begins one (`-- name: x, y`: both), comment lines are dropped."""
    queries: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        for block in re.split(r"(?m)^-- name: ", file.read_text(encoding="utf-8"))[1:]:
            names, _, body = block.partition("\n")
            lines = [line for line in body.splitlines() if not line.lstrip().startswith("--")]
            queries |= dict.fromkeys((name.strip() for name in names.split(",")), "\n".join(lines).strip())
    return queries


def split_statements(text: str) -> list[str]:
    """The statements of a file, without comments; what stands between `$$` is one piece."""
    bare = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    parts = re.findall(r"(?:\$\$.*?\$\$|[^;])+", bare, re.DOTALL)
    return [part.strip() for part in parts if part.strip()]


def folder_of(dialect: str) -> Traversable:
    """Where the statements of the outbox are, in one dialect."""
    return resources.files("semel.transactional.outbox") / "sql" / dialect
