"""A request as bytes and back: every field of it, those that are added later, too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from semel.contract.decision import Reuse
from semel.engine.protocol import Start, Terms
from semel.engine.start_request import VERSION, StartRequest, from_bytes
from semel.errors import NotDecodable

NOW = datetime(2026, 11, 17, 12, 0, 0, 123456, UTC)
TERMS: dict[str, Any] = {
    "kind": "workflow", "name": "ship", "queue": "bulk", "priority": -7, "reuse": Reuse.REJECT, "max_attempts": 9,
    "retention": timedelta(days=3, microseconds=1), "window": timedelta(days=400), "delay": timedelta(seconds=1.5),
    "run_at": NOW + timedelta(hours=2), "timeout": timedelta(minutes=5), "rate_limited": True, "keyed": True,
    "foreign": True,
}  # fmt: skip
START: dict[str, Any] = {
    "id": "the-request", "key": "the-key", "payload": b'{"a":[1,null,"\xc3\xa9"]}', "fingerprint": bytes(range(32)),
    "concurrency_key": "customer-1", "root": "ship:1:parent",
}  # fmt: skip


def sent(terms: dict[str, Any], start: dict[str, Any]) -> Start:
    return from_bytes(StartRequest.of(Start(**start, terms=Terms(**terms)), NOW, "the-parent").to_bytes()).start()


def test_the_samples_have_every_field_and_none_at_its_default() -> None:
    assert set(TERMS) == set(Terms.__struct_fields__)
    assert set(START) == set(Start.__struct_fields__) - {"terms", "shape"}  # a shape is looked up where it is needed
    for kind, sample in ((Terms, TERMS), (Start, START)):
        defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
        assert not [name for name, value in sample.items() if value == defaults[name]]


@pytest.mark.parametrize("name", [name for name in TERMS if name != "delay"])
def test_every_term_comes_back(name: str) -> None:
    terms = {key: value for key, value in TERMS.items() if key != "delay"}
    assert getattr(sent(terms, START).terms, name) == TERMS[name]


@pytest.mark.parametrize("name", list(START))
def test_every_field_comes_back(name: str) -> None:
    assert getattr(sent(TERMS, START), name) == START[name]


def test_a_delay_begins_when_it_was_asked_for() -> None:
    terms = sent({**TERMS, "run_at": None}, START).terms
    assert (terms.delay, terms.run_at) == (None, NOW + timedelta(seconds=1.5))


def test_what_was_left_out_is_left_out() -> None:
    few = {name: TERMS[name] for name in ("kind", "name", "queue", "priority", "reuse", "max_attempts")}
    few |= {"retention": timedelta(0), "window": timedelta(0)}
    start = Start("the-request", None, b"{}", b"", Terms(**few))
    assert from_bytes(StartRequest.of(start, NOW).to_bytes()).start() == start


def test_who_asks_comes_along_and_the_id_may_be_another() -> None:
    start = Start(**START, terms=Terms(**TERMS))
    found = from_bytes(StartRequest.of(start, NOW, "the-parent", "terminate").to_bytes())
    assert found.on_parent_close == "terminate"
    assert (found.parent, found.start("another").id) == ("the-parent", "another")


@pytest.mark.parametrize("change", [b'{"version":%d,' % (VERSION + 1), b'{"version":1,"news":1,', b"{"])
def test_what_a_newer_release_made_is_refused(change: bytes) -> None:
    data = StartRequest.of(Start(**START, terms=Terms(**TERMS)), NOW).to_bytes()
    with pytest.raises(NotDecodable):
        from_bytes(data.replace(b'{"version":1,', change, 1))
    with pytest.raises(NotDecodable, match="news"):
        from_bytes(data.replace(b'"terms":{', b'"terms":{"news":1,', 1))
