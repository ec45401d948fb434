"""`semel publish` and `semel events`: publishing, looking at what became of events, running them again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli import shell
from tests.cli.shell import Answer
from tests.world import World

SHOP = """
import semel
app = semel.App({url!r}, config=None)

@app.on_event("invoice.paid", where="data.cents > 0")
@app.task
async def bill(event: semel.EventEnvelope) -> str:
    return event.event_id

@app.on_event("order.placed")
@app.task
async def pack() -> None: ...
"""


class Shell:
    """A shell in a folder with an app on a database of its own."""

    def __init__(self, world: World, folder: Path) -> None:
        self.url = world.url
        name = f"eventful_{os.getpid()}_{folder.name.replace('-', '_')}"
        (folder / f"{name}.py").write_text(SHOP.format(url=self.url))
        assert shell.semel("apply", f"{name}:app", "--yes").code == 0

    def publish(self, *arguments: str) -> Answer:
        return shell.semel("publish", *arguments, "--url", self.url)

    def events(self, *arguments: str) -> Answer:
        return shell.semel("events", *arguments, "--url", self.url)


@pytest.fixture
def sh(sqlite_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return Shell(sqlite_world, tmp_path)


def test_an_event_is_published_once_and_shown(sh: Shell) -> None:
    first = sh.publish("invoice.paid", '{"cents": 900}', "--id", "evt_1", "--json")
    assert first.code == 0
    (published,) = first.data
    assert (published["duplicate"], published["state"], published["runs"][0]["key"]) == (
        False,
        "routed",
        "activity-bill:evt_1",
    )
    again = sh.publish("invoice.paid", '{"cents": 900}', "--id", "evt_1")
    assert "a duplicate" in again.out
    assert "semel events replay evt_1" in again.out
    other = sh.publish("invoice.paid", '{"cents": 901}', "--id", "evt_1")
    assert (other.code, "data.cents: 900 -> 901" in other.err) == (4, True)
    shown = sh.events("show", "evt_1")
    for words in ("delivered 2 times", "it counts once", "activity-bill:evt_1", "other type"):
        assert words in shown.out
    data = sh.events("show", "evt_1", "--json").data
    assert (data["event"]["duplicates"], data["runs"][0]["status"]) == (1, "pending")
    assert {match["activity"]: match["kind"] for match in data["matches"]} == {"bill": "matches", "pack": "other type"}


def test_events_are_listed_by_state_and_backfilled(sh: Shell, tmp_path: Path) -> None:
    file = tmp_path / "events.json"
    cloud = {"specversion": "1.0", "source": "/shop", "type": "invoice.paid", "data": {"cents": 0}}
    file.write_text(json.dumps([{**cloud, "id": "1"}, {**cloud, "id": "2", "data": {"cents": 5}}]))
    assert sh.publish("--file", str(file)).code == 0
    listed = sh.events("list", "--state", "unmatched", "--json").data
    assert [one["event_id"] for one in listed] == ["/shop#1"]
    assert "/shop#2" in sh.events("list").out
    assert sh.events("backfill", "bill", "--dry-run", "--json").data["events"] == []
    assert "for 0 events" in sh.events("backfill", "bill").out
    assert "nothing to run again" in sh.events("replay", "/shop#2").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("invoice.paid",), "--id"),
        (("invoice.paid", "{", "--id", "x"), "not JSON"),
        (("invoice.paid", "--id", "x", "--deliver-at", "2026-03-01T09:00:00"), "no offset from UTC"),
        (("invoice.paid", "--id", "x", "--file", "y"), "not both"),
        (("--file", "missing.json"), "missing.json"),
    ],
)
def test_wrong_arguments_are_refused(sh: Shell, arguments: tuple[str, ...], words: str) -> None:
    answer = sh.publish(*arguments)
    assert (answer.code, words in answer.err) == (2, True)
    assert sh.events("list", "--json").data == []


def test_an_event_that_is_not_there_is_not_found(sh: Shell) -> None:
    assert (sh.events("show", "nothing").code, sh.events("replay", "nothing").code) == (3, 3)
