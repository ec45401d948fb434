"""`semel schedules backfill`, `semel backfills` and `semel reconcile`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import shell
from tests.cli.shell import Answer
from tests.cli.test_schedule_commands import DECLARED, Shell
from tests.world import World

RANGE = ("--from", "2026-03-01T00:00:00Z", "--to", "2026-03-02T00:00:00Z")


@pytest.fixture
def sh(sqlite_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Shell(sqlite_world, tmp_path)
    assert made.create("--cron", "0 * * * *").code == 0
    return made


def backfills(sh: Shell, *arguments: str) -> Answer:
    return shell.semel("backfills", *arguments, "--url", sh.url)


def test_a_plan_lists_every_slot_and_runs_nothing(sh: Shell) -> None:
    told = sh.schedules("backfill", "daily", *RANGE, "--dry-run")
    assert told.code == 0
    assert "24 slots: 24 missing. 24 would run." in told.out
    data = sh.schedules("backfill", "daily", *RANGE, "--dry-run", "--json").data
    assert (len(data["slots"]), data["to_run"], data["counts"]["missing"]) == (24, 24, 24)
    assert data["slots"][0] == {
        "slot": "2026-03-01T00:00:00+00:00",
        "fate": "missing",
        "runs": True,
        "generation": 0,
        "reason": None,
    }
    assert backfills(sh, "list", "--json").data == []


def test_without_a_terminal_it_needs_a_yes(sh: Shell) -> None:
    refused = sh.schedules("backfill", "daily", *RANGE)
    assert refused.code == 2
    assert "24 slots would run, and there is no terminal to ask on: add --yes." in refused.err


def test_a_backfill_is_created_listed_shown_paused_resumed_and_cancelled(sh: Shell) -> None:
    made = sh.schedules("backfill", "daily", *RANGE, "--yes", "--max-active", "3", "--request-key", "b-1", "--json")
    assert (made.code, made.data["id"], made.data["status"], made.data["slots"]) == (0, "b-1", "running", 24)
    assert sh.schedules("backfill", "daily", *RANGE, "--yes", "--request-key", "b-1").code == 4, "other options"
    assert "0/24" in backfills(sh, "list").out
    assert [one["id"] for one in backfills(sh, "list", "--schedule", "daily", "--json").data] == ["b-1"]
    paused = backfills(sh, "pause", "b-1", "--note", "slow")
    assert (paused.code, "is paused: 0 of 24 slots" in paused.out) == (0, True)
    assert "note: slow" in backfills(sh, "show", "b-1").out
    assert backfills(sh, "resume", "b-1", "--json").data["status"] == "running"
    assert backfills(sh, "cancel", "b-1").code == 0
    assert backfills(sh, "resume", "b-1").code == 4, "it has ended"
    assert backfills(sh, "show", "nothing").code == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--from", "2026-03-01", "--to", "2026-03-02T00:00:00Z"), "write it like 2026-03-01T00:00:00Z"),
        (("--from", "2026-03-01T00:00:00Z", "--to", "2126-03-02T00:00:00Z"), "is in the future"),
        ((*RANGE, "--rerun", "some"), "use one of 'missing', 'failed', 'all'"),
        ((*RANGE, "--max-active", "0"), "from 1 to 100"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_made(sh: Shell, options: tuple[str, ...], words: str) -> None:
    refused = sh.schedules("backfill", "daily", *options, "--yes")
    assert refused.code == 2
    assert words in refused.err
    assert backfills(sh, "list", "--json").data == []


def test_reconcile_tells_what_differs_and_repairs_it_when_told(sh: Shell) -> None:
    app = sh.module(DECLARED.format(id="nightly"))
    found = sh("reconcile", app)
    assert found.code == 6
    assert "nightly   missing" in found.out
    assert f"next: semel reconcile {app} --fix" in found.out
    fixed = sh("reconcile", app, "--fix", "--json")
    assert (fixed.code, fixed.data["left"]) == (0, 0)
    assert [(one["kind"], one["fixed"]) for one in fixed.data["differences"]] == [("missing", True)]
    again = sh("reconcile", app)
    assert (again.code, "agree" in again.out) == (0, True)
