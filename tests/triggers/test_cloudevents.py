"""CloudEvents by HTTP and in batches: read or refused with what is wrong and where, and named the same each time."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from semel.errors import InvalidValue
from semel.triggers import EventEnvelope
from semel.triggers.cloudevents import (
    BATCH_TYPE,
    content_fingerprint,
    differing_fields,
    read_batch,
    read_event,
    read_http,
)
from semel.triggers.event_source import EventSource
from semel.triggers.ids import event_run_id

PAID: dict[str, Any] = {
    "specversion": "1.0",
    "id": "77",
    "source": "/shop/payments",
    "type": "invoice.paid",
    "subject": "invoice-7",
    "time": "2026-03-01T09:00:00Z",
    "tenant": "acme",
    "data": {"cents": 9900, "who": "Zoë"},
}
HEADERS = {
    "Content-Type": "application/json; charset=utf-8",
    "ce-specversion": "1.0",
    "CE-Id": "77",
    "ce-source": "/shop/payments",
    "ce-type": "invoice.paid",
    "ce-subject": "invoice-7",
    "ce-time": "2026-03-01T09:00:00Z",
    "ce-tenant": "acme",
}


def body(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_one_event_is_read_alike_in_all_three_forms() -> None:
    [binary] = read_http(HEADERS, body(PAID["data"]))
    [structured] = read_http({"content-type": "application/cloudevents+json; charset=UTF-8"}, body(PAID))
    [batch] = read_http([("Content-Type", BATCH_TYPE)], body([PAID]))
    assert structured == batch == read_event(PAID)
    assert binary.event == structured.event.model_copy(update={"datacontenttype": "application/json; charset=utf-8"})
    assert structured.id_origin == "producer"
    assert structured.event.event_id == "/shop/payments#77"


def test_values_in_headers_are_decoded() -> None:
    headers = {
        **HEADERS,
        "ce-subject": "Euro%20%E2%82%AC%20%F0%9F%98%80",
        "ce-note": '"say \\"hi\\" 100%25"',
    }
    [read] = read_http(headers, b"")
    assert read.event.subject == "Euro € 😀"
    assert read.event.extensions == {"tenant": "acme", "note": 'say "hi" 100%'}
    assert read.event.data is None


@pytest.mark.parametrize(
    ("media", "sent", "data", "data_base64"),
    [
        ("application/json", b'{"a": 1}', {"a": 1}, None),
        ("application/vnd.shop+json", b"[1]", [1], None),
        ("application/json", b"null", None, None),
        ("text/plain", "grüß".encode(), "grüß", None),
        ("text/plain", b"\xff", None, "/w=="),
        ("application/xml", b"<a/>", None, base64.b64encode(b"<a/>").decode()),
        ("", b"\x00\x01", None, "AAE="),
    ],
)
def test_the_body_is_read_by_its_type(media: str, sent: bytes, data: Any, data_base64: str | None) -> None:
    [read] = read_http({**HEADERS, "Content-Type": media}, sent)
    assert (read.event.data, read.event.data_base64) == (data, data_base64)


@pytest.mark.parametrize(
    ("headers", "sent", "message"),
    [
        ({}, b"{}", "without the header 'ce-specversion' and of content-type ''"),
        ({"content-type": "application/json"}, body(PAID), "holds no CloudEvent"),
        ({"content-type": "application/cloudevents+xml"}, b"<a/>", "only JSON is read"),
        ({"content-type": "application/cloudevents+json; charset=utf-16"}, body(PAID), "JSON is in UTF-8"),
        ({"content-type": "application/cloudevents+json"}, b"[]", "a JSON object, not list"),
        ({"content-type": BATCH_TYPE}, b"{}", "a JSON array, not dict"),
        (
            {"content-type": BATCH_TYPE},
            body([PAID, {**PAID, "type": ""}]),
            "event 1 of 2: event '/shop/payments#77': type:",
        ),
        ({"content-type": BATCH_TYPE}, body([PAID, 5]), "event 1 of 2: a CloudEvent is a JSON object, not int"),
        ({**HEADERS, "ce-specversion": "0.3"}, b"", "specversion='0.3'"),
        ({**HEADERS, "ce-datacontenttype": "a/b"}, b"", "its type the header 'content-type'"),
        ({**HEADERS, "ce-data": "1"}, b"", "data is the body"),
        ({**HEADERS, "ce-subject": "%ff"}, b"", "the header 'ce-subject' is not UTF-8"),
        ({**HEADERS, "ce-x_y": "1"}, b"", "'x_y' cannot be the name of an attribute"),
        ([*HEADERS.items(), ("ce-id", "78")], b"", "the header 'ce-id' comes twice"),
        (HEADERS, b"{", "the body that is not JSON"),
        (HEADERS, b'{"a": 1e999}', "JSON"),
        (HEADERS, b"[" * 100_000, "the body that is not JSON"),
        (HEADERS, b"[" * 70 + b"]" * 70, "nested deeper than 64 levels"),
        (HEADERS, b'{"a": 100000000000000000000000}', "beyond 64 bits"),
        ({**HEADERS, "ce-time": "yesterday"}, b"", "time: 'yesterday' is not a time"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(headers: Any, sent: bytes, message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_http(headers, sent)
    assert message in refused.value.message


def test_a_batch_has_a_bound() -> None:
    with pytest.raises(InvalidValue, match=r"a batch of 10,001 events: send at most 10,000 at once"):
        read_batch([PAID] * 10_001)
    assert read_batch(b"[]") == []


def nameless(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in {**PAID, **changes}.items() if name != "id"}


def test_an_event_without_an_id_gets_the_same_one_each_time() -> None:
    first = read_event(nameless())
    again = read_event(json.dumps(dict(reversed(nameless().items()))))
    assert first == again
    assert first.id_origin == "content"
    for change in ({"source": "/b"}, {"type": "b"}, {"subject": "b"}, {"time": "2026-03-01T09:00:01Z"}, {"data": 1}):
        assert read_event(nameless(**change)).event.event_id != first.event.event_id


def test_an_id_of_content_is_pinned() -> None:
    """Another format would make every event without an id look new."""
    assert read_event(nameless()).event.event_id == (
        "/shop/payments#sha256:8368a404e04402f922987be66c6ecf2a678e38fc125c9632e2e643426576dab6"
    )


def test_an_event_without_an_id_gets_it_by_the_rule_of_its_source() -> None:
    by_header = EventSource(name="github", id_from="header:X-GitHub-Delivery")
    headers = {name: value for name, value in HEADERS.items() if name != "CE-Id"}
    [read] = read_http({**headers, "x-github-delivery": "d-1"}, b"{}", by_header)
    assert (read.event.event_id, read.id_origin) == ("/shop/payments#d-1", "rule")
    [without] = read_http(headers, b"{}", by_header)
    assert without.id_origin == "content"
    [named] = read_http({**HEADERS, "x-github-delivery": "d-1"}, b"{}", by_header)
    assert (named.event.event_id, named.id_origin) == ("/shop/payments#77", "producer")

    by_data = EventSource(name="shop", id_from="data.order.id")
    assert read_event(nameless(data={"order": {"id": 5}}), by_data).event.event_id == "/shop/payments#5"
    assert read_event(nameless(data={"order": {"id": "o-5"}}), by_data).event.event_id == "/shop/payments#o-5"
    for data in (None, {}, {"order": 5}, {"order": {"id": None}}, {"order": {"id": True}}, {"order": {"id": [1]}}):
        assert read_event(nameless(data=data), by_data).id_origin == "content"
    with pytest.raises(InvalidValue, match=r"the id by 'data.order.id'=' ' is blank"):
        read_event(nameless(data={"order": {"id": " "}}), by_data)


@pytest.mark.parametrize("id", ["2026-03-01T09:00:00+00:00", "manual:x", "a:b/c", "x" * 300])
def test_an_id_of_any_form_makes_a_run_id_of_its_own(id: str) -> None:
    run = event_run_id("bill", read_event({**PAID, "id": id}).event.event_id)
    assert run.startswith("activity-bill:")
    assert len(run) <= 255
    assert run != event_run_id("bill", read_event(PAID).event.event_id)


def test_a_source_has_defaults_and_refuses_what_makes_no_sense() -> None:
    source = EventSource(name="github")
    assert (source.source, source.reuse, source.max_future, source.hash_window) == (
        "*",
        "reject",
        None,
        timedelta(hours=1),
    )
    for wrong in ("X-Id", "header:", "header:a b", "data", "data.", "data..id", "body.id", "data. x"):
        with pytest.raises(ValidationError, match="write 'header:'"):
            EventSource(name="github", id_from=wrong)
    with pytest.raises(ValidationError, match="at least a second"):
        EventSource(name="github", max_future="0")


def test_the_same_content_has_the_same_fingerprint_however_it_was_sent() -> None:
    structured = read_event({**PAID, "attempt": 2, "sampled": True, "traceparent": "00-a"}).event
    [binary] = read_http(
        {
            **HEADERS,
            "ce-attempt": "2",
            "ce-sampled": "true",
            "ce-traceparent": "00-b",
            "Content-Type": "application/json",
        },
        body(PAID["data"]),
    )
    assert content_fingerprint(structured) == content_fingerprint(binary.event)
    assert differing_fields(structured, binary.event) == []


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"data": {"cents": 9901, "who": "Zoë"}}, ["data.cents"]),
        ({"data": {"cents": 9900}}, ["data.who"]),
        ({"type": "invoice.sent", "subject": None}, ["subject", "type"]),
        ({"tenant": "umbrella"}, ["extensions.tenant"]),
        ({"time": "2026-03-01T09:00:01Z"}, ["time"]),
    ],
)
def test_other_content_is_named_by_its_fields(change: dict[str, Any], fields: list[str]) -> None:
    old, new = read_event(PAID).event, read_event({**PAID, **change}).event
    assert content_fingerprint(old) != content_fingerprint(new)
    assert differing_fields(old, new) == fields


texts = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=10,
)
events = st.fixed_dictionaries(
    {"specversion": st.just("1.0"), "id": texts, "source": texts, "type": texts},
    optional={"subject": texts, "data": json_values, "tenant": texts, "attempt": st.integers(0, 1000)},
)


@given(events)
@settings(max_examples=100)
def test_every_event_makes_the_round_trip_in_every_form(event: dict[str, Any]) -> None:
    read = read_event(msgspec.json.encode(event)).event
    assert read_event(read.to_cloudevent()).event == read
    assert [one.event for one in read_batch(msgspec.json.encode([read.to_cloudevent()] * 2))] == [read, read]
    headers = {f"ce-{k}": quote(str(v)) for k, v in event.items() if k != "data"}
    [binary] = read_http({**headers, "content-type": "application/json"}, msgspec.json.encode(event.get("data")))
    assert binary.event.event_id == read.event_id
    assert content_fingerprint(binary.event) == content_fingerprint(read)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
attributes = st.dictionaries(st.sampled_from([*PAID, "data_base64", "datacontenttype", "dataschema", "Ä"]), anything)


@given(attributes.map(lambda given: {**PAID, **given}) | anything, st.sampled_from([None, "data.id", "header:x"]))
@settings(max_examples=100)
def test_nothing_but_invalid_value_comes_out_of_bad_input(given: Any, rule: str | None) -> None:
    source = EventSource(name="any", id_from=rule)
    for read in (
        lambda: read_event(given, source),
        lambda: read_batch([given], source),
        lambda: read_batch(given, source),
    ):
        try:
            read()
        except InvalidValue:
            continue


@given(
    st.dictionaries(st.sampled_from([*HEADERS, "ce-", "ce-x", "X"]), st.text(), max_size=4),
    st.binary() | json_values.map(msgspec.json.encode),
)
@settings(max_examples=100)
def test_nothing_but_invalid_value_comes_out_of_a_bad_request(headers: dict[str, str], sent: bytes) -> None:
    try:
        for read in read_http({**HEADERS, **headers}, sent):
            assert isinstance(read.event, EventEnvelope)
    except InvalidValue:
        pass
