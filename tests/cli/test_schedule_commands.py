"""`semel schedules` and `semel apply`: looking at schedules, changing them, and publishing what code declares."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli import shell
from tests.cli.shell import Answer
from tests.world import World

SHOP = """
import semel
app = semel.App({url!r}, config=None)

@app.task
async def report(city: str, run: semel.Run) -> str:
    return city

@app.task
async def sweep() -> None: ...

{declared}
"""
DECLARED = """
@app.on_schedule("0 9 * * *", timezone="Europe/Paris", id="{id}")
@app.task(name="nightly")
async def nightly() -> None: ...
"""
_numbers = iter(range(1000))


class Shell:
    """A shell in a folder with an app on a database of its own."""

    def __init__(self, world: World, folder: Path) -> None:
        self.url = world.url
        self.folder = folder
        self.app = self.module()

    def module(self, declared: str = "") -> str:
        name = f"scheduled_{os.getpid()}_{next(_numbers)}"
        (self.folder / f"{name}.py").write_text(SHOP.format(url=self.url, declared=declared))
        return f"{name}:app"

    def __call__(self, *arguments: str, typed: str | None = None) -> Answer:
        return shell.semel(*arguments, typed=typed)

    def schedules(self, *arguments: str) -> Answer:
        return shell.semel("schedules", *arguments, "--url", self.url)

    def create(self, *options: str, id: str = "daily") -> Answer:
        return shell.semel("schedules", "create", self.app, id, "report", '["Paris"]', *options)


@pytest.fixture
def sh(sqlite_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return Shell(sqlite_world, tmp_path)


def test_a_schedule_is_created_listed_and_shown(sh: Shell) -> None:
    made = sh.create("--cron", "0 9 * * *", "--timezone", "Europe/Paris", "--misfire", "compress", "--json")
    assert (made.code, made.data["when"], made.data["misfire"], made.data["owner"]) == (
        0,
        "0 9 * * *",
        "compress",
        "api",
    )
    listed = sh.schedules("list")
    assert "daily" in listed.out
    assert "0 9 * * * (Europe/Paris)" in listed.out
    assert [one["id"] for one in sh.schedules("list", "--json").data] == ["daily"]
    shown = sh.schedules("show", "daily")
    assert "daily runs task report on queue default" in shown.out
    assert "version 1, owned by api" in shown.out
    assert "│ ○ ○ ○ ○ ○ ○" in shown.out
    data = sh.schedules("show", "daily", "--json").data
    assert (data["schedule"]["id"], data["runs"], data["skipped"], len(data["next"])) == ("daily", [], [], 6)


def test_arguments_by_name_leave_the_run_out(sh: Shell) -> None:
    assert sh("schedules", "create", sh.app, "a", "report", '{"city": "Oslo"}', "--every", "5m").code == 0
    wrong = sh("schedules", "create", sh.app, "b", "report", '{"town": "Oslo"}', "--every", "5m")
    assert wrong.code == 2
    assert "do not fit report" in wrong.err
    assert ".." not in wrong.err


def test_a_single_time_that_has_passed_is_due(sh: Shell) -> None:
    made = sh.create("--at", "2020-01-01T00:00:00Z")
    assert "It is due since 2020-01-01 00:00:00 UTC: a worker runs it at once." in made.out


def test_what_cannot_be_created_is_refused_with_what_to_do(sh: Shell) -> None:
    assert sh.create("--every", "5m").code == 0
    again = sh.create("--every", "6m")
    assert (again.code, "semel schedules edit daily" in again.err) == (4, True)
    for options, words in (
        ((), "one of cron=, every= and at="),
        (("--at", "tomorrow"), "write it like 2026-03-01T09:00:00+01:00"),
        (("--at", "2026-03-01T09:00:00"), "no offset from UTC"),
        (("--every", "5m", "--misfire", "later"), "use one of 'skip', 'catchup', 'compress'"),
    ):
        refused = sh.create(*options, id="other")
        assert (refused.code, words in refused.err) == (2, True), refused.err
    assert sh("schedules", "create", sh.app, "other", "repotr", "--every", "5m").code == 3


def test_next_says_what_fires_and_why_not(sh: Shell) -> None:
    sh.create(
        *("--cron", "30 2 * * *", "--timezone", "Europe/Paris", "--nonexistent", "skip"),
        *("--start-at", "2035-03-24T00:00:00Z", "--end-at", "2035-03-27T12:00:00Z", "--exclude", "2035-03-26"),
    )
    found = sh.schedules("next", "daily", "-n", "10", "--json").data["next"]
    assert [(one["wall"], one["outcome"]) for one in found] == [
        ("2035-03-24T02:30:00", "fires"),
        ("2035-03-25T02:30:00", "the clock leaves it out"),
        ("2035-03-26T02:30:00", "excluded"),
        ("2035-03-27T02:30:00", "fires"),
        ("2035-03-28T02:30:00", "after end"),
    ]
    assert sh.schedules("pause", "daily", "--note", "audit").code == 0
    told = sh.schedules("next", "daily").out
    assert "(audit): until it is resumed, none of these fires" in told
    assert [line.split()[-1] for line in told.splitlines() if "2035-03-24" in line] == ["paused"]
    (left_out,) = [line.strip() for line in told.splitlines() if "2035-03-25" in line]
    assert left_out.endswith("the clock leaves it out")


def test_an_edit_changes_what_is_given(sh: Shell) -> None:
    sh.create("--every", "5m", "--grace", "1m", "--end-at", "2090-01-01T00:00:00Z")
    changed = sh.schedules("edit", "daily", "--overlap", "buffer_one", "--reset", "end-at", "--json").data
    assert (changed["version"], changed["overlap"], changed["when"]) == (2, "buffer_one", "every 5m")
    same = sh.schedules("edit", "daily", "--overlap", "buffer_one")
    assert "is as it was (version 2)" in same.out
    assert sh.schedules("edit", "daily").code == 2
    assert sh.schedules("edit", "daily", "--reset", "colour").code == 2
    assert sh.schedules("edit", "other", "--every", "5m").code == 3


def test_pause_resume_trigger_and_delete(sh: Shell) -> None:
    sh.create("--every", "5m")
    assert sh.schedules("pause", "daily", "--note", "audit", "--json").data["note"] == "audit"
    shown = sh.schedules("show", "daily").out
    assert "paused since" in shown
    assert "note: audit" in shown
    first = sh.schedules("trigger", "daily", "--request-key", "a", "--json").data
    again = sh.schedules("trigger", "daily", "--request-key", "a", "--json").data
    assert (first["id"], first["duplicate"], again["id"], again["duplicate"]) == (again["id"], False, first["id"], True)
    shown = sh.schedules("show", "daily", "--json").data
    assert [(one["why"], one["status"]) for one in shown["runs"]] == [("manual", "pending")]
    assert "▷ │" in sh.schedules("show", "daily").out
    assert "fires again. Slots inside the pause are skipped" in sh.schedules("resume", "daily").out
    assert "is not paused" in sh.schedules("resume", "daily").out
    assert sh.schedules("delete", "daily", "--json").data == {"deleted": "daily"}
    for verb in ("show", "next", "pause", "resume", "trigger", "delete"):
        gone = sh.schedules(verb, "daily")
        assert (gone.code, "semel schedules list" in gone.err) == (3, True), verb


def test_apply_shows_a_plan_and_wants_a_yes(sh: Shell) -> None:
    target = sh.module(DECLARED.format(id="nightly"))
    dry = sh("apply", target, "--dry-run")
    assert (dry.code, "create" in dry.out) == (0, True)
    refused = sh("apply", target)
    assert (refused.code, "add --yes" in refused.err) == (2, True)
    assert sh.schedules("list", "--json").data == []
    applied = sh("apply", target, "--yes")
    assert (applied.code, "Applied: 1 created." in applied.out) == (0, True)
    again = sh("apply", target)
    assert (again.code, "Nothing to do." in again.out) == (0, True)
    as_json = sh("apply", target, "--json").data
    kept = {"kind": "keep", "id": "nightly", "detail": "", "what": "schedule"}
    assert as_json == {"applied": False, "changes": [kept]}


def test_apply_asks_on_a_terminal(sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    target = sh.module(DECLARED.format(id="nightly"))
    monkeypatch.setattr(sys.modules["semel.cli.apply"], "has_terminal", lambda: True)
    assert sh("apply", target, typed="n\n").code == 1
    assert sh.schedules("list", "--json").data == []
    assert sh("apply", target, typed="y\n").code == 0
    assert [one["id"] for one in sh.schedules("list", "--json").data] == ["nightly"]


def test_apply_calls_a_rename_out_and_prunes(sh: Shell) -> None:
    sh("apply", sh.module(DECLARED.format(id="nightly")), "--yes")
    renamed = sh.module(DECLARED.format(id="at-night"))
    plan = sh("apply", renamed, "--dry-run", "--json").data["changes"]
    assert [(one["kind"], one["id"]) for one in plan] == [("create", "at-night"), ("orphan", "nightly")]
    assert "same function as nightly" in plan[0]["detail"]
    assert "goes on firing beside it" in plan[0]["detail"]
    plan = sh("apply", renamed, "--prune", "--yes", "--json").data
    assert [(one["kind"], one["id"]) for one in plan["changes"]] == [("create", "at-night"), ("delete", "nightly")]
    assert [one["id"] for one in sh.schedules("list", "--json").data] == ["at-night"]


def test_apply_leaves_what_others_own(sh: Shell) -> None:
    sh("schedules", "create", sh.app, "nightly", "sweep", "--every", "5m")
    target = sh.module(DECLARED.format(id="nightly"))
    kept = sh("apply", target, "--yes", "--json").data
    assert [(one["kind"], one["id"]) for one in kept["changes"]] == [("foreign", "nightly")]
    assert sh.schedules("show", "nightly", "--json").data["schedule"]["name"] == "sweep"
    assert sh("apply", target, "--take-over", "--yes").code == 0
    shown = sh.schedules("show", "nightly", "--json").data["schedule"]
    assert (shown["name"], shown["owner"]) == ("nightly", "code")


def test_slots_that_nobody_has_looked_at_are_due(sh: Shell) -> None:
    begin = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=3)
    sh.create("--every", "1h", "--start-at", begin.isoformat())
    assert "│ ○" in sh.schedules("show", "daily").out, "what has passed when it is created does not run"
    sh.create("--at", begin.isoformat(), id="once")
    shown = sh.schedules("show", "once").out
    assert "◔ │" in shown
    assert "no worker has looked at it yet" in shown


async def test_show_draws_runs_and_skipped_ranges(sqlite_world: World, tmp_path: Path) -> None:
    world = sqlite_world
    app = world.app()

    @app.task(retry=1, name="report")
    async def report() -> None:
        raise ValueError("no paper")

    begin = world.now().replace(microsecond=0) + timedelta(hours=1)
    await app.schedules.put("daily", report, every="1h", start_at=begin, grace="1m")
    await world.advance("3h30m")
    async with world.worker(app):
        await world.advance("30m")
        handle = None
        while handle is None:
            handle = await app.find(f"activity-daily:{(begin + timedelta(hours=3)).isoformat()}")
        await shell.until_status(app, handle.id, "failed")
    answer = await shell.at_shell("schedules", "show", "daily", "--url", world.url)
    assert "·×3 ✗ │ ○" in answer.out
    assert "skipped: late" in answer.out
    data = (await shell.at_shell("schedules", "show", "daily", "--json", "--url", world.url)).data
    assert [(one["reason"], one["count"]) for one in data["skipped"]] == [("late", 3)]
    assert [(one["status"], one["version"]) for one in data["runs"]] == [("failed", 1)]
    assert datetime.fromisoformat(data["runs"][0]["scheduled_for"]).tzinfo == UTC
