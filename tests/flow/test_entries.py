"""Journals stay readable: what is written is read back as it was, also in the format of an earlier release."""

import pytest
from msgspec import Raw

from semel.contract.records import ErrorInfo
from semel.contract.window import DedupWindow
from semel.flow import entries, snapshot
from semel.flow.entries import Asked, Began, Dropped, Entry, Fired, Resolved, Signalled, Stopped, Turned, raw, stored
from semel.flow.history import history_events
from semel.flow.snapshot import Snapshot

EVERY_KIND: list[Entry] = [
    Began(1, 2, 3, 4),
    Turned(5),
    Resolved(6, "completed", Raw(b'{"a":[1,null]}'), None, "ref", True),
    Resolved(7, "failed", error=ErrorInfo("ValueError", "no", "trace")),
    Fired(8),
    Signalled("name", Raw(b"[1]"), "key"),
    Stopped(True),
    Asked(9, "task", "charge", "mark", "ref"),
    Dropped(10),
]


def test_every_kind_of_entry_comes_back_as_it_was() -> None:
    written = entries.dump(EVERY_KIND)
    back = entries.load(written)
    assert [type(one) for one in back] == [type(one) for one in EVERY_KIND]
    assert entries.dump(back) == written


def test_format_one_is_still_read() -> None:
    kept = (
        b'[["b",1,1,1,1000000],["a",1,"step","charge","ab12",null],["t",2000000],["r",1,"completed",42,null,null,false],'
        b'["a",2,"timer","","3000000",null],["t",3000000],["f",2],["s","go",{"x":1},"k",null],["c",false],["d",3]]'
    )
    assert [type(one).__name__ for one in entries.load(kept)] == [
        "Began", "Asked", "Turned", "Resolved", "Asked", "Turned", "Fired", "Signalled", "Stopped", "Dropped",
    ]  # fmt: skip


def test_what_is_no_journal_is_refused() -> None:
    with pytest.raises(ValueError, match=r"."):
        entries.load(b'[["x",1]]')


def test_nothing_and_null_are_the_same() -> None:
    assert stored(raw(None)) is None
    assert stored(raw(b"0")) == b"0"


def test_history_is_told_in_words() -> None:
    told = history_events([entries.dump(EVERY_KIND)])
    assert [event.what for event in told] == [
        "began", "resolved", "resolved", "fired", "signalled", "cancelled", "asked", "dropped",
    ]  # fmt: skip
    assert told[1].value == {"a": [1, None]}
    assert told[2].value == "ValueError: no"
    assert told[-1].name == "charge" or told[-1].command == 10


def test_a_snapshot_comes_back_as_it_was() -> None:
    seen = DedupWindow()
    before = Snapshot(b'{"n":1}', 2, 30, {"charge": 4}, {"scope": "eu"}, (Signalled("go", Raw(b"1"), "k"),), seen)
    after = snapshot.load(snapshot.dump(before))
    assert snapshot.dump(after) == snapshot.dump(before)
    assert (after.input, after.run, after.numbers, after.counts) == (b'{"n":1}', 2, 30, {"charge": 4})
    assert (after.attributes, after.signals[0].name, after.deadline) == ({"scope": "eu"}, "go", None)
