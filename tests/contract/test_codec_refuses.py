"""What JSON cannot carry is refused at the door, with its path."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pydantic
import pytest

from semel.codec import MAX_DEPTH, Shape
from semel.errors import NotEncodable, PayloadTooLarge

LIMIT = 100_000


@dataclass
class Item:
    price: float
    note: str = ""
    thing: Any = None


class Model(pydantic.BaseModel):
    price: float
    items: list[float] = []


def encode(annotation: Any, value: Any) -> bytes:
    def task(order: Item, value): ...

    task.__annotations__ = {"order": Item, "value": annotation}
    return Shape(task, "task").encode_input({"order": Item(1.0, "", 1), "value": value}, LIMIT)


def encode_result(annotation: Any, value: Any) -> bytes | None:
    def task(): ...

    task.__annotations__ = {"return": annotation}
    return Shape(task, "task").encode_result(value, LIMIT)


BAD_NUMBERS = [
    (Any, math.nan, "value", "nan"),
    (float, math.inf, "['value']", "inf"),
    (float | None, math.nan, "['value']", "nan"),
    (list[float | None], [1.0, -math.inf], "['value'][1]", "-inf"),
    (dict[str, float | None], {"a": math.nan}, "['value']['a']", "nan"),
    (Item, Item(math.nan), "['value'].price", "nan"),
    (list[Item], [Item(1.0), Item(math.inf)], "['value'][1].price", "inf"),
    (Model, Model(price=math.nan), "['value'].price", "nan"),
    (Model, Model(price=1, items=[1, math.nan]), "['value'].items[1]", "nan"),
    (Any, {"a": [{"b": math.nan}]}, "value['a'][0]['b']", "nan"),
]


@pytest.mark.parametrize(("annotation", "value", "path", "number"), BAD_NUMBERS)
def test_numbers_that_json_does_not_have(annotation: Any, value: Any, path: str, number: str) -> None:
    with pytest.raises(NotEncodable) as caught:
        encode(annotation, value)
    assert f"{path} is {number}: JSON has no such number" in caught.value.message


def test_numbers_that_json_does_not_have_inside_a_set() -> None:
    with pytest.raises(NotEncodable, match="nan: JSON has no such number"):
        encode(set[float | None], {math.nan})
    with pytest.raises(NotEncodable, match="nan: JSON has no such number"):
        encode_result(set[float], {1.0, math.nan})


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (str, "a\ud800", "['value'] holds a lone surrogate at position 1"),
        (Any, "\udfff", "['value'] holds a lone surrogate at position 0"),
        (Any, ["\ud800"], "value[0] holds a lone surrogate"),
        (list[str], ["a", "\ud800"], "['value'][1] holds a lone surrogate"),
        (Item, Item(1.0, "\ud800"), "['value'].note holds a lone surrogate"),
    ],
)
def test_text_that_is_not_unicode(annotation: Any, value: Any, path: str) -> None:
    with pytest.raises(NotEncodable) as caught:
        encode(annotation, value)
    assert path in caught.value.message


@pytest.mark.parametrize("annotation", [dict, dict[str, int], Any])
def test_a_key_that_is_not_unicode(annotation: Any) -> None:
    with pytest.raises(NotEncodable, match="surrogate"):
        encode(annotation, {"\ud800": 1})


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**30])
def test_integers_beyond_64_bits(value: int) -> None:
    with pytest.raises(NotEncodable, match=r"\['value'\] is an integer beyond 64 bits: pass it as a str"):
        encode(int, value)
    with pytest.raises(NotEncodable, match=r"value\[0\] is an integer beyond 64 bits"):
        encode(Any, [value])
    assert encode(Decimal, Decimal(value))


class Thing:
    """An object of somebody's."""


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (Any, Thing(), "value is a Thing"),
        (Any, [1, {"a": Thing()}], "value[1]['a'] is a Thing"),
        (list, [Thing()], "['value'][0] is a Thing"),
        (dict, {"a": Thing()}, "['value']['a'] is a Thing"),
        (Item, Item(1.0, "", Thing()), "['value'].thing is a Thing"),
        (Any, len, "value is a builtin_function_or_method"),
    ],
)
def test_objects(annotation: Any, value: Any, path: str) -> None:
    with pytest.raises(NotEncodable) as caught:
        encode(annotation, value)
    assert path in caught.value.message


@pytest.mark.parametrize(
    "value", [datetime(2026, 1, 1, tzinfo=UTC), Decimal(1), UUID(int=1), b"a", {1}, Item(1.0), Model(price=1)]
)
def test_a_typed_value_without_an_annotation_would_come_back_as_another(value: Any) -> None:
    for nested, path in ((value, "value"), ([value], r"value\[0\]"), ({"a": value}, r"value\['a'\]")):
        with pytest.raises(NotEncodable, match=f"]: {path} is a {type(value).__name__}: annotate"):
            encode(Any, nested)
        with pytest.raises(NotEncodable, match=f"is a {type(value).__name__}: annotate"):
            encode_result(Any, nested)


def test_keys_that_are_not_text_need_an_annotation() -> None:
    with pytest.raises(NotEncodable, match="value has the key 1: JSON keys are str"):
        encode(Any, {1: "a"})
    assert encode(dict[int, str], {1: "a"})


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(int, "1"), (str, 1), (list[int], ["a"]), (Item, {"note": "x"}), (Model, {"items": []}), (bool, 1), (int, None)],
)
def test_a_value_that_does_not_fit_its_annotation(annotation: Any, value: Any) -> None:
    with pytest.raises(NotEncodable, match="does not fit its annotation"):
        encode(annotation, value)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("annotation", [Any, list])
def test_depth_has_a_limit(annotation: Any) -> None:
    assert encode(annotation, nested(MAX_DEPTH - 1))
    with pytest.raises(NotEncodable, match=f"nested deeper than {MAX_DEPTH} levels"):
        encode(annotation, nested(MAX_DEPTH + 2))


@pytest.mark.parametrize("annotation", [Any, list])
def test_a_value_that_holds_itself(annotation: Any) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(NotEncodable, match="or holds itself"):
        encode(annotation, loop)


def test_size_has_a_limit_on_the_way_in_and_on_the_way_out() -> None:
    shape = Shape(lambda a: None, "task")
    assert shape.encode_input({"a": "x" * 90}, 100)
    with pytest.raises(PayloadTooLarge, match="arguments takes 109 bytes as JSON; at most 100"):
        shape.encode_input({"a": "x" * 101}, 100)
    with pytest.raises(PayloadTooLarge, match="result takes 103 bytes"):
        shape.encode_result("x" * 101, 100)


def test_what_is_wrong_is_named_and_not_its_healthy_neighbour() -> None:
    with pytest.raises(NotEncodable) as caught:
        encode(str, "\ud800")
    assert "['value']" in caught.value.message
    assert "order" not in caught.value.message
