"""An event envelope: compatible with CloudEvents 1.0 in JSON, there and back, and strict about what it is given."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from semel.codec import encode
from semel.engine.publications import make_publication
from semel.errors import InvalidValue
from semel.settings import Settings
from semel.triggers import EventEnvelope
from semel.triggers.ids import event_run_id

PAID = {
    "specversion": "1.0",
    "id": "A234-1234-1234",
    "source": "/shop/payments",
    "type": "invoice.paid",
    "subject": "invoice-7",
    "time": "2026-03-01T10:00:00.123456+01:00",
    "datacontenttype": "application/json",
    "dataschema": "urn:shop:invoice:1",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "attempt": 2,
    "sampled": True,
    "data": {"cents": 9900, "tags": ["a", None]},
}


def test_a_cloudevent_becomes_an_envelope() -> None:
    event = EventEnvelope.from_cloudevent(PAID)
    assert event.event_id == "/shop/payments#A234-1234-1234"
    assert (event.source, event.type, event.subject) == ("/shop/payments", "invoice.paid", "invoice-7")
    assert event.time == datetime(2026, 3, 1, 9, 0, 0, 123456, tzinfo=UTC)
    assert event.data == {"cents": 9900, "tags": ["a", None]}
    assert (event.datacontenttype, event.dataschema) == ("application/json", "urn:shop:invoice:1")
    assert event.extensions == {"traceparent": PAID["traceparent"], "attempt": 2, "sampled": True}


@pytest.mark.parametrize("form", [json.dumps(PAID), json.dumps(PAID).encode(), PAID])
def test_text_bytes_and_objects_are_read_alike(form: Any) -> None:
    assert EventEnvelope.from_cloudevent(form) == EventEnvelope.from_cloudevent(PAID)


@pytest.mark.parametrize(
    "event",
    [
        PAID,
        {"specversion": "1.0", "id": "1", "source": "s", "type": "t"},
        {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": [1, "zwei", {"drei": 3.5}]},
        {"specversion": "1.0", "id": "a#b", "source": "s#f", "type": "t", "data": 0},
        {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": "text", "datacontenttype": "text/plain"},
        {
            "specversion": "1.0",
            "id": "1",
            "source": "s",
            "type": "t",
            "data_base64": base64.b64encode(b"\x00\xff").decode(),
            "datacontenttype": "application/octet-stream",
        },
    ],
)
def test_there_and_back(event: dict[str, Any]) -> None:
    envelope = EventEnvelope.from_cloudevent(event)
    back = envelope.to_cloudevent()
    assert EventEnvelope.from_cloudevent(json.dumps(back)) == envelope
    given = {"datacontenttype": "application/json", **event} if "data" in event else dict(event)
    if "time" in given:
        given["time"] = "2026-03-01T09:00:00.123456+00:00"
    assert back == given


def test_the_same_id_from_two_sources_is_two_events() -> None:
    one, other = ({"specversion": "1.0", "id": "1", "source": source, "type": "t"} for source in ("a", "b"))
    assert EventEnvelope.from_cloudevent(one).event_id != EventEnvelope.from_cloudevent(other).event_id


def test_a_hash_sign_in_a_source_cannot_pass_for_the_one_before_the_id() -> None:
    one = {"specversion": "1.0", "id": "c", "source": "a#b", "type": "t"}
    other = {"specversion": "1.0", "id": "b#c", "source": "a", "type": "t"}
    assert EventEnvelope.from_cloudevent(one).event_id == "a%23b#c"
    assert EventEnvelope.from_cloudevent(other).event_id == "a#b#c"


def test_an_envelope_made_in_code_keeps_its_event_id() -> None:
    event = EventEnvelope(event_id="evt_abc123", source="shop", type="invoice.paid")
    assert event_run_id("550e8400-e29b-41d4-a716-446655440000", event.event_id) == (
        "activity-550e8400-e29b-41d4-a716-446655440000:evt_abc123"
    )
    assert event.to_cloudevent() == {"specversion": "1.0", "id": "evt_abc123", "source": "shop", "type": "invoice.paid"}


def test_an_envelope_comes_back_from_json() -> None:
    event = EventEnvelope.from_cloudevent(PAID)
    assert EventEnvelope.model_validate_json(event.model_dump_json()) == event
    assert event.model_dump(mode="json")["time"] == "2026-03-01T09:00:00.123456+00:00"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"specversion": "0.3"}, "specversion='0.3': only '1.0'"),
        ({"specversion": None}, "specversion=None"),
        ({"id": None}, "needs an id and a source: id=None is a NoneType"),
        ({"id": ""}, "id='' is blank"),
        ({"id": 7}, "id=7 is a int"),
        ({"id": "x" * 1001}, "at most 1000"),
        ({"source": ""}, "source='' is blank"),
        ({"type": None}, "event '/shop/payments#A234-1234-1234': type: it is missing."),
        ({"type": "x" * 256}, "type: "),
        ({"time": "2026-03-01T10:00:00"}, "time: '2026-03-01T10:00:00' has no time zone"),
        ({"time": 1772355600}, "time: 1772355600 is not a datetime"),
        ({"datacontenttype": "json"}, "datacontenttype: 'json' is not a media type"),
        ({"dataschema": " "}, "dataschema: ' ' is blank"),
        ({"data_base64": "AA=="}, "both data and data_base64"),
        ({"data": None, "data_base64": "?"}, "data_base64: this is not base64."),
        ({"data": None, "data_base64": 5}, "data_base64: this is not base64."),
        ({"Trace": "x"}, "'Trace' cannot be the name of an attribute"),
        ({"trace-id": "x"}, "lower-case letters and digits only"),
        ({"trace": {"a": 1}}, "an extension is a text, a whole number of 32 bits, true or false"),
        ({"trace": 1.5}, "trace=1.5: an extension is"),
        ({"trace": 1 << 31}, "a whole number of 32 bits"),
        ({"trace": ""}, "trace='': an extension is"),
    ],
)
def test_what_is_wrong_with_a_cloudevent_is_said(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        EventEnvelope.from_cloudevent({**PAID, **change})
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        (b"\xff", "not JSON"),
        ('{"data": NaN}', "not JSON"),
        ("[]", "a JSON object, not list"),
        ("[" * 100_000, "not JSON"),
    ],
    ids=["open", "bytes", "nan", "list", "deep"],
)
def test_what_is_no_json_object_is_refused(text: str | bytes, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        EventEnvelope.from_cloudevent(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"event_id": ""},
        {"event_id": "x" * 2002},
        {"event_id": "a\x00"},
        {"extensions": {"id": "1"}},
        {"extensions": [1]},
        {"data": object()},
        {"idd": 1},
    ],
)
def test_what_no_envelope_holds(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EventEnvelope.model_validate({"event_id": "1", "source": "s", "type": "t", **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"data": {"a": None, "b": [1, None, {"c": 2.5}], "d": "é\n", "e": True}},
        {"data": [None]},
        {"data": 0},
        {"data": ""},
        {"data_base64": "AAEC", "datacontenttype": "image/png"},
        {"time": "2026-03-01T10:00:00.120000+01:00", "subject": "s", "dataschema": "urn:a"},
        {"extensions": {"tenant": "a", "attempt": 2, "sampled": False}},
    ],
)
def test_what_is_stored_of_an_event_is_what_its_model_dumps(fields: dict[str, Any]) -> None:
    """It is made without the model, which is quicker: fingerprints of stored events must not change."""
    event = EventEnvelope(event_id="e", source="/s", type="t", **fields)
    publication = make_publication(Settings(), event, None, None, datetime.now(UTC))
    assert publication.envelope == encode(event.model_dump(mode="json", exclude_none=True), "event")
    assert EventEnvelope.model_validate_json(publication.envelope) == event


@pytest.mark.parametrize(
    ("field", "example"), [("source", "/shop/payments"), ("type", "invoice.paid"), ("subject", "invoice-17")]
)
def test_a_blank_attribute_is_told_an_example_of_its_own(field: str, example: str) -> None:
    given: dict[str, Any] = {"event_id": "evt_1", "source": "/shop", "type": "invoice.paid", field: ""}
    with pytest.raises(ValueError, match=f"is blank: give a text such as '{example}'"):
        EventEnvelope(**given)
