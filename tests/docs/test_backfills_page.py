"""The page of backfills names every option, word, verb and field, and no other."""

from __future__ import annotations

import dataclasses
import inspect
from enum import StrEnum

import pytest

from semel.backfills import BackfillOptions, Backfills
from semel.contract.backfill import MOST_SLOTS, BackfillInfo, BackfillPlan, BackfillStatus, PlannedSlot, SlotFate
from tests.docs.pages import read, table

PAGE = read("docs/reference/backfills.md")


def names(first: str) -> list[str]:
    """The names in the first column of a table; a cell may hold several."""
    return [name.strip("`") for row in table(PAGE, first)[1:] for name in row[0].split(", ")]


def test_every_option_is_there() -> None:
    assert names("backfill option") == list(BackfillOptions.__annotations__)
    assert f"{MOST_SLOTS:,} slots" in PAGE


@pytest.mark.parametrize(("first", "words"), [("fate", SlotFate), ("status", BackfillStatus)])
def test_every_word_is_there(first: str, words: type[StrEnum]) -> None:
    assert names(first) == [word.value for word in words]


def test_every_verb_is_there() -> None:
    verbs = {name for name, one in vars(Backfills).items() if name[0] != "_" and inspect.isfunction(one)}
    assert set(names("verb")) == verbs


@pytest.mark.parametrize("record", [BackfillInfo, BackfillPlan, PlannedSlot])
def test_every_field_of_a_record_is_there(record: type) -> None:
    assert sorted(names(record.__name__)) == sorted(field.name for field in dataclasses.fields(record))
