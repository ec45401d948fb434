"""Definitions in files: what is read, and errors that name the file, the place and what is wrong."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from semel.errors import ConfigError
from semel.triggers import load_definitions

REPORT = """
[[activities]]
activity_id = "daily-report"

[[activities.triggers]]
type = "cron"
cron = "0 9 * * *"
timezone = "Europe/Paris"
start_at = 2026-03-01T00:00:00+01:00
exclude = [2026-12-25]

[[activities.tasks]]
task_type = "send_report"
arguments = { format = "pdf" }

[[activities]]
activity_id = "heartbeat"
triggers = { type = "interval", every = "5m" }
tasks = { task_type = "beat" }
"""
CLEANUP = {"activity_id": "cleanup", "triggers": {"type": "interval", "every": "1d"}, "tasks": {"task_type": "clean"}}


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("_", ".")
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return folder


def refusal(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_definitions(path)
    return caught.value.message.splitlines()


def test_one_file_may_hold_several_definitions(tmp_path: Path) -> None:
    write(tmp_path, report_toml=REPORT)
    report, heartbeat = load_definitions(tmp_path / "report.toml")
    assert (report.activity_id, heartbeat.activity_id) == ("daily-report", "heartbeat")
    assert report.tasks[0].arguments == {"format": "pdf"}
    assert report.triggers[0].model_dump(mode="json")["exclude"] == ["2026-12-25"]


def test_json_says_the_same_as_toml(tmp_path: Path) -> None:
    write(tmp_path, report_toml=REPORT)
    definitions = load_definitions(tmp_path / "report.toml")
    dumped = [definition.model_dump(mode="json", exclude_none=True) for definition in definitions]
    write(tmp_path, report_json=json.dumps({"activities": dumped}))
    assert load_definitions(str(tmp_path / "report.json")) == definitions


def test_one_definition_may_stand_alone(tmp_path: Path) -> None:
    write(tmp_path, cleanup_json=json.dumps(CLEANUP))
    (cleanup,) = load_definitions(tmp_path / "cleanup.json")
    assert cleanup.activity_id == "cleanup"


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    write(tmp_path, b_toml=REPORT, a_json=json.dumps(CLEANUP), c_txt="not read")
    (tmp_path / "deeper").mkdir()
    write(tmp_path / "deeper", x_json=json.dumps({**CLEANUP, "activity_id": "deep"}))
    (tmp_path / ".hidden").mkdir()
    write(tmp_path / ".hidden", x_json="not read")
    ids = [definition.activity_id for definition in load_definitions(tmp_path)]
    assert ids == ["cleanup", "daily-report", "heartbeat", "deep"]


def test_errors_name_the_file_and_the_place(tmp_path: Path) -> None:
    write(
        tmp_path,
        a_toml="""
        [[activities]]
        activity_id = "report"
        dedupe_strategy = "skip"
        triggers = [{ type = "cron", cron = "0 9 * *" }, { type = "interval", every = "5x", timezon = "UTC" }]
        tasks = [{ task_type = "a:b" }]
        """,
        b_json=json.dumps({**CLEANUP, "tasks": []}),
    )
    one, other = tmp_path / "a.toml", tmp_path / "b.json"
    found = refusal(tmp_path)
    assert [line.partition(": ")[0] for line in found] == [str(one)] * 5 + [str(other)]
    assert [line.partition(": ")[2][:60] for line in sorted(found)] == [
        "activities[0] ('report') dedupe_strategy: there is no such f",
        "activities[0] ('report') tasks[0].task_type: 'a:b': use 1 to",
        "activities[0] ('report') triggers[0]: cron='0 9 * *' has 4 f",
        "activities[0] ('report') triggers[1].every: '5x' is not a du",
        "activities[0] ('report') triggers[1].timezon: there is no su",
        "tasks: give at least 1.",
    ]
    assert [line for line in found if line.endswith("Did you mean 'dedupe_key_strategy'?")]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a_toml", "x = = 1", "cannot be read: Invalid value (at line 1, column 5)."),
        ("a_json", "{", "cannot be read: Expecting property name enclosed in double quotes: line 1 column 2"),
        ("a_json", '{"a": 1, "a": 2}', "the field 'a' is there twice in one object."),
        ("a_json", '{"a": NaN}', "NaN is not a number that JSON can write."),
        ("a_json", "[]", "holds a list: write a table with activities, or one definition."),
        ("a_toml", "", "activities: give a list of definitions, [[activities]] in TOML."),
        ("a_toml", "activities = []", "activities: give a list of definitions"),
        ("a_toml", "[activities]\nx = 1", "activities: give a list of definitions"),
        ("a_toml", "activites = []", "activites: there is no such field. Did you mean 'activities'?"),
        ("a_toml", "tasks = []", "tasks: a definition has an activity_id as well"),
        ("a_toml", "activities = [5]", "activities[0]: 5 is not a table."),
        ("a_toml", "[[activities]]\ntasks = []", "activities[0] activity_id: it is missing."),
        ("a_yaml", "", "neither a .toml nor a .json file."),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, name: str, text: str, words: str) -> None:
    write(tmp_path, **{name: text})
    path = tmp_path / name.replace("_", ".")
    assert any(line.startswith(f"{path}: ") and words in line for line in refusal(path))


def test_an_id_that_is_taken_names_both_places(tmp_path: Path) -> None:
    write(tmp_path, a_json=json.dumps(CLEANUP), b_json=json.dumps({"activities": [CLEANUP]}))
    taken = f"activities[0] ('cleanup'): activity_id 'cleanup' is taken by {tmp_path / 'a.json'}: activity_id."
    assert refusal(tmp_path) == [f"{tmp_path / 'b.json'}: {taken}"]


def test_a_missing_path_and_an_empty_folder_are_said(tmp_path: Path) -> None:
    assert "there is no file or folder" in refusal(tmp_path / "nowhere")[0]
    assert "there is no .toml or .json file in" in refusal(tmp_path)[0]
    (tmp_path / "a.toml").write_bytes(b"\xff")
    assert "cannot be read" in refusal(tmp_path)[0]
