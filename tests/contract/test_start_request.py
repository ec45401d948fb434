"""A request as bytes and back: every field of it, those that are added later, too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from semel.contract.decision import Reuse
from semel.engine.start_request import VERSION, RunOptions, StartRequest
from semel.errors import NotDecodable

NOW = datetime(2026, 11, 17, 12, 0, 0, 123456, UTC)
OPTIONS: dict[str, Any] = {
    "kind": "workflow", "name": "ship", "queue": "bulk", "priority": -7, "reuse": Reuse.REJECT, "max_attempts": 9,
    "retention": timedelta(days=3, microseconds=1), "window": timedelta(days=400), "delay": timedelta(seconds=1.5),
    "run_at": NOW + timedelta(hours=2), "timeout": timedelta(minutes=5), "rate_limited": True, "keyed": True,
    "foreign": True,
}  # fmt: skip
START: dict[str, Any] = {
    "id": "the-request", "key": "the-key", "payload": b'{"a":[1,null,"\xc3\xa9"]}', "fingerprint": bytes(range(32)),
    "options": RunOptions(**OPTIONS), "concurrency_key": "customer-1", "root": "ship:1:parent", "parent": "the-parent",
    "on_parent_close": "terminate", "start_by": NOW,
}  # fmt: skip
FORMAT_1 = (
    b'{"version":1,"id":"the-request","payload":{"a":[1,null,"\xc3\xa9"]},'
    b'"fingerprint":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",'
    b'"terms":{"kind":"workflow","name":"ship","queue":"bulk","priority":-7,"reuse":"reject","max_attempts":9,'
    b'"retention":"P3DT0.000001S","window":"P400D","delay":"PT1.5S","run_at":"2026-11-17T14:00:00.123456Z",'
    b'"timeout":"PT300S","rate_limited":true,"keyed":true,"foreign":true},'
    b'"key":"the-key","concurrency_key":"customer-1","root":"ship:1:parent","parent":"the-parent",'
    b'"on_parent_close":"terminate"}'
)
"""As Temporal histories hold it."""


def test_the_samples_have_every_field_and_none_at_its_default() -> None:
    assert set(OPTIONS) == set(RunOptions.__struct_fields__)
    assert set(START) == set(StartRequest.__struct_fields__) - {"shape"}  # it is looked up where it is needed
    for kind, sample in ((RunOptions, OPTIONS), (StartRequest, START)):
        defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
        assert not [name for name, value in sample.items() if value == defaults[name]]


def test_every_field_and_every_option_comes_back() -> None:
    start = StartRequest(**START)
    assert StartRequest.from_bytes(start.to_bytes()) == start


def test_what_was_left_out_is_left_out() -> None:
    few = {name: OPTIONS[name] for name in ("kind", "name", "queue", "priority", "reuse", "max_attempts")}
    few |= {"retention": timedelta(0), "window": timedelta(0)}
    start = StartRequest("the-request", None, b"{}", b"", RunOptions(**few))
    assert StartRequest.from_bytes(start.to_bytes()) == start


def test_the_format_that_is_stored_already() -> None:
    start = StartRequest(**{**START, "start_by": None})
    assert StartRequest.from_bytes(FORMAT_1) == start
    assert start.to_bytes() == FORMAT_1
    assert StartRequest(**START).to_bytes() == FORMAT_1[:-1] + b',"start_by":"2026-11-17T12:00:00.123456Z"}'


def test_a_delay_begins_when_it_was_asked_for() -> None:
    asked = StartRequest(**{**START, "options": replace(START["options"], run_at=None)}).asked_at(NOW)
    assert (asked.options.delay, asked.options.run_at) == (None, NOW + timedelta(seconds=1.5))
    assert asked.asked_at(NOW + timedelta(days=1)) == asked


@pytest.mark.parametrize("change", [b'{"version":%d,' % (VERSION + 1), b'{"version":1,"news":1,', b"{"])
def test_what_a_newer_release_made_is_refused(change: bytes) -> None:
    data = StartRequest(**START).to_bytes()
    with pytest.raises(NotDecodable):
        StartRequest.from_bytes(data.replace(b'{"version":1,', change, 1))
    with pytest.raises(NotDecodable, match="news"):
        StartRequest.from_bytes(data.replace(b'"terms":{', b'"terms":{"news":1,', 1))
