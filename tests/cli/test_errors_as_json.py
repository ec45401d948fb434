"""With `--json`, an error is one line of JSON on stderr, whatever the command and whoever refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import Answer, semel
from tests.cli.shell import shop as module_of
from tests.world import World


def error_of(told: Answer) -> Any:
    assert told.out == ""
    found = json.loads(told.err.splitlines()[-1])
    assert found["error"]["exit_code"] == told.code != 0
    return found["error"]


def test_an_error_of_the_library_says_its_code(sqlite_world: World) -> None:
    semel("migrate", "--url", sqlite_world.url)
    for command in (
        ("show", "abc"),
        ("cancel", "abc"),
        ("redrive", "abc"),
        ("workflows", "show", "abc"),
        ("workflows", "signal", "abc", "go"),
        ("workflows", "terminate", "abc"),
        ("schedules", "show", "abc"),
        ("schedules", "pause", "abc"),
        ("backfills", "show", "abc"),
        ("events", "show", "abc"),
    ):
        told = error_of(semel(*command, "--json", "--url", sqlite_world.url))
        assert (told["type"], told["code"], told["exit_code"]) == ("NotFound", "SEMEL-X01", 3), command
        assert "abc" in told["message"], command


def test_so_do_commands_that_load_an_app(sqlite_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (
        ("enqueue", "nowhere:app", "charge"),
        ("apply", "nowhere:app"),
        ("reconcile", "nowhere:app"),
        ("replay", "nowhere:app"),
        ("schedules", "create", "nowhere:app", "nightly", "charge", "--every", "1h"),
        ("sweep", "stuck", "nowhere:app"),
        ("doctor", "nowhere:app"),
    ):
        told = error_of(semel(*command, "--json"))
        assert (told["type"], told["code"], told["exit_code"]) == ("ConfigError", "SEMEL-C01", 2), command
    app = f"{module_of(sqlite_world, tmp_path)}:app"
    asked = ("enqueue", app, "charge", "--task-id", "o-1", "--json")
    first = semel(*asked, "--args", '["o-1", 1]').data
    told = error_of(semel(*asked, "--args", '["o-1", 2]'))
    assert (told["type"], told["code"], told["exit_code"]) == ("KeyConflict", "SEMEL-K02", 4)
    assert told["existing_execution_id"] == first["id"]


def test_a_refusal_of_the_command_itself(sqlite_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = f"{module_of(sqlite_world, tmp_path)}:app"
    create = ("schedules", "create", app, "nightly", "charge", '["o-1"]', "--every", "1h", "--json")
    assert semel(*create).code == 0
    told = error_of(semel(*create))
    assert (told["type"], told["code"], told["exit_code"]) == ("CommandFailed", None, 4)
    assert "already" in told["message"]


@pytest.mark.parametrize(
    "wrong", [("show",), ("list", "--limit", "0"), ("list", "--status", "gone"), ("lst",), ("list", "--nonsense")]
)
def test_wrong_usage(wrong: tuple[str, ...]) -> None:
    told = error_of(semel(*wrong, "--json"))
    assert (told["code"], told["exit_code"]) == (None, 2)
    assert told["message"]


def test_help_beside_json_is_help() -> None:
    told = semel("list", "--json", "--help")
    assert (told.code, "--status" in told.out, told.err) == (0, True, "")
