"""SQL lives in .sql files, and a diff of the two dialects shows only the dialect."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from semel.contract.lifecycle import Status
from tests.tidy.house import SRC, parse, short, sources

SQLITE, POSTGRES = (SRC / "engines" / dialect for dialect in ("sqlite", "postgres"))
STATEMENTS = [path for dialect in (SQLITE, POSTGRES) for path in sources(".sql", under=dialect)]
QUERIES = [path for path in STATEMENTS if "migrations" not in path.parts]

# An upper-case verb, or the shape of a statement in any case. "Update the lease" is neither.
SQL_IN_PYTHON = re.compile(
    r"\s*(?:(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE TABLE|ALTER TABLE|DROP TABLE)\s"
    r"|(?i:select\s.+\sfrom\s|insert\s+into\s|update\s+\S+\s+set\s|delete\s+from\s"
    r"|with\s+\w+\s+as\s*\(|(?:create|alter|drop)\s+(?:unique\s+)?(?:table|index|view)\s))",
    re.DOTALL,
)
NAME_LINE = re.compile(r"^-- name: *(?P<names>.*)$")
COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
ON_STATUS = re.compile(
    r"\bstatus\b\s*(?:=|==|<>|!=|(?:not\s+)?in)\s*(?:any\s*)?(?P<values>'\w+'|\([^()]*\))"
    r"|\bstatus\b\s+text\b[^,]*?\bdefault\s+(?P<default>'\w+')",
    re.IGNORECASE,
)
CHECKED = re.compile(r"\bcheck\s*\(\s*status\s+in\s*\((?P<values>[^()]*)\)", re.IGNORECASE)


def strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Every string except docstrings and other strings that stand alone."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node


def named_queries(path: Path) -> dict[str, list[str]]:
    """Each query's lines by its name, in the order of the file."""
    queries: dict[str, list[str]] = {}
    names: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if found := NAME_LINE.match(line):
            names = found["names"].split(", ")
            for name in names:
                assert name.isidentifier(), f"{short(path)}: {line!r} is no name"
                assert name not in queries, f"{short(path)}: {name} stands there twice"
                queries[name] = []
        for name in names if not found else ():
            queries[name].append(line)
    return queries


def quoted(text: str) -> set[str]:
    return set(re.findall(r"'(\w+)'", text))


def statuses(sql: str) -> set[str]:
    """The words that a statement compares with, or assigns to, a status."""
    matches = ON_STATUS.finditer(COMMENT.sub("", sql))
    return {word for match in matches for word in quoted(match["values"] or match["default"])}


@pytest.mark.parametrize("path", sources(".py"), ids=short)
def test_no_sql_in_python(path: Path) -> None:
    found = [
        f"line {node.lineno}: {node.value[:60]!r}" for node in strings(parse(path)) if SQL_IN_PYTHON.match(node.value)
    ]
    assert found == []


def test_dialects_have_the_same_files() -> None:
    sqlite, postgres = (
        [path.relative_to(dialect).as_posix() for path in sources(".sql", under=dialect)]
        for dialect in (SQLITE, POSTGRES)
    )
    assert sqlite == postgres


def test_dialects_have_migrations() -> None:
    assert {path.relative_to(SRC / "engines").parts[0] for path in STATEMENTS if "migrations" in path.parts} == {
        "sqlite",
        "postgres",
    }


@pytest.mark.parametrize("path", [path for path in QUERIES if SQLITE in path.parents], ids=short)
def test_dialects_have_the_same_queries_in_the_same_order(path: Path) -> None:
    twin = POSTGRES / path.relative_to(SQLITE)
    assert list(named_queries(path)) == list(named_queries(twin))


@pytest.mark.parametrize("path", QUERIES, ids=short)
def test_every_query_says_what_it_is_for(path: Path) -> None:
    queries = named_queries(path)
    assert queries, "no query has a name"
    silent = [name for name, lines in queries.items() if not re.match(r"--\s*\w+\s+\w+", "".join(lines[:1]))]
    assert silent == []


@pytest.mark.parametrize("path", STATEMENTS, ids=short)
def test_sql_knows_no_other_status(path: Path) -> None:
    assert statuses(path.read_text(encoding="utf-8")) - set(Status) == set()


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=short)
def test_the_schema_allows_every_status(dialect: Path) -> None:
    schema = "\n".join(COMMENT.sub("", path.read_text(encoding="utf-8")) for path in sources(".sql", under=dialect))
    lists = [quoted(found["values"]) for found in CHECKED.finditer(schema)]
    assert set(Status) in lists, "no CHECK (status IN (...)) lists exactly the states of contract/lifecycle.py"


@pytest.mark.parametrize(
    ("text", "is_sql"),
    [
        ("SELECT 1", True),
        ("select id from runs", True),
        ("\n  UPDATE runs SET a = 1", True),
        ("insert into runs values (1)", True),
        ("BEGIN IMMEDIATE", False),
        ("PRAGMA journal_mode = wal", False),
        ("LISTEN semel", False),
        ("Update the lease of a worker", False),
        ("Select a queue", False),
    ],
)
def test_the_check_tells_sql_from_prose(text: str, is_sql: bool) -> None:
    assert bool(SQL_IN_PYTHON.match(text)) is is_sql


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("where status = 'pending'", {"pending"}),
        ("status NOT IN ('failed', 'cancelled') -- status = 'odd'", {"failed", "cancelled"}),
        ("status text not null default 'pending',", {"pending"}),
        ("where e.status <> 'done' and kind = 'task'", {"done"}),
        ("set status = $1", set()),
    ],
)
def test_the_check_reads_statuses(sql: str, words: set[str]) -> None:
    assert statuses(sql) == words
