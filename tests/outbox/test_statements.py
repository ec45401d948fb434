"""The three dialects of the outbox have the same statements, each with a sentence above it."""

from __future__ import annotations

import re

import pytest

from semel.transactional.statements import folder_of, split_statements
from tests.outbox.places import PLACES

DIALECTS = ["postgres", "sqlite", "mysql"]


def text_of(dialect: str, file: str) -> str:
    return (folder_of(dialect) / file).read_text(encoding="utf-8")


def test_the_same_statements_in_the_same_order() -> None:
    assert len(PLACES) == len(DIALECTS)
    names = [re.findall(r"(?m)^-- name: (\w+)$", text_of(dialect, "outbox.sql")) for dialect in DIALECTS]
    assert names[0]
    assert names[0] == names[1] == names[2]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_statement_says_what_it_is_for(dialect: str) -> None:
    blocks = re.split(r"(?m)^-- name: ", text_of(dialect, "outbox.sql"))[1:]
    assert [block.splitlines()[0] for block in blocks if not block.splitlines()[1].startswith("-- ")] == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_made_can_be_removed(dialect: str) -> None:
    made = re.findall(r"create table if not exists (\w+)", text_of(dialect, "tables.sql"))
    dropped = re.findall(r"drop table if exists (\w+)", text_of(dialect, "drop.sql"))
    assert sorted(made) == sorted(dropped)
    assert len(made) == 4


def test_columns_are_those_of_the_pattern() -> None:
    """S3-6, by name, in every dialect."""
    wanted = ["id", "event_type", "aggregate_id", "payload", "status", "retry_count", "max_retries", "last_error"]
    wanted += ["created_at", "processed_at"]
    for dialect in DIALECTS:
        table = split_statements(text_of(dialect, "tables.sql"))[0]
        columns = re.findall(
            r"(?m)^  `?(\w+)`? (?:bigint|varchar|text|json|integer|longtext|timestamptz|datetime)", table
        )
        assert columns[: len(wanted)] == wanted
        assert "varchar(100)" in table
