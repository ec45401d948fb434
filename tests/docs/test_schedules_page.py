"""The page of schedules names every option, policy, reason, verb and field, and no other."""

from __future__ import annotations

import dataclasses
import inspect
import re
from enum import StrEnum

import pytest

from semel.contract.occurrences import Outcome
from semel.contract.reconciliation import DifferenceKind
from semel.contract.runs import ChangeKind, Run, RunWindow, ScheduleInfo, ScheduleRun, SkippedSlots, Why
from semel.contract.slot_policy import Misfire, Overlap, SkipReason, SlotPolicy
from semel.contract.timing import Timing
from semel.define.schedule import ScheduleOptions
from semel.schedules import Schedules
from tests.docs.pages import read, table

PAGE = read("docs/reference/schedules.md")
HIDDEN = {"declare", "apply", "warn_unapplied", "explain_run", "declare_activity"}


def names(first: str) -> list[str]:
    """The names in the first column of a table; a cell may hold several."""
    rows = table(PAGE, first)[1:]
    return [name.strip("`") for row in rows for name in row[0].split(", ")]


def test_every_option_is_there_with_its_default() -> None:
    rows = {row[0].strip("`"): row[1].strip("`") for row in table(PAGE, "option")[1:]}
    assert set(rows) == set(ScheduleOptions.__annotations__)
    defaults = {field.name: field.default for kind in (Timing, SlotPolicy) for field in dataclasses.fields(kind)}
    for name, shown in rows.items():
        default = defaults.get(name)
        expected = f'"{default}"' if isinstance(default, str) else str(default)
        assert shown == ("none" if not default and default is not False else expected), name


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("misfire policy", Misfire),
        ("overlap policy", Overlap),
        ("reason", SkipReason),
        ("outcome", Outcome),
        ("change", ChangeKind),
        ("difference", DifferenceKind),
    ],
)
def test_every_word_is_there(first: str, words: type[StrEnum]) -> None:
    assert names(first) == [word.value for word in words]


def test_every_verb_is_there() -> None:
    section = PAGE.partition("## Verbs")[2].partition("\n## ")[0]
    found = re.findall(r"(?m)^\| `(\w+)` \|", section)
    verbs = {name for name, one in vars(Schedules).items() if name[0] != "_" and inspect.isfunction(one)} - HIDDEN
    assert set(found) == verbs | {"declared"}


@pytest.mark.parametrize("record", [Run, RunWindow, ScheduleInfo, ScheduleRun, SkippedSlots])
def test_every_field_of_a_record_is_there(record: type) -> None:
    assert sorted(names(record.__name__)) == sorted(field.name for field in dataclasses.fields(record))


def test_every_why_of_a_run_is_there() -> None:
    (row,) = [row for row in table(PAGE, "Run")[1:] if row[0].strip("`") == "why"]
    assert re.findall(r"[a-z]{3,}", row[1].replace(" or ", " ")) == [why.value for why in Why]
