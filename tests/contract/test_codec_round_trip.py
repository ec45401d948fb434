"""What goes in comes out, by annotation."""

import enum
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.codec import MAX_PAYLOAD, Shape, decode_plain
from semel.errors import DefinitionError, NotDecodable


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    S = 1
    L = 2


@dataclass
class ConnectionRole:
    sku: str
    price: Decimal
    colour: Colour | None = None


@dataclass(frozen=True)
class Order:
    id: UUID
    lines: list[ConnectionRole]
    placed: datetime
    notes: dict[str, str] = field(default_factory=dict)


class Struct(msgspec.Struct):
    a: int
    when: date


class Customer(pydantic.BaseModel):
    name: str
    since: date
    limits: dict[str, Decimal] = {}
    friends: list["Customer"] = []


class Pair(NamedTuple):
    left: int
    right: str


class Table(TypedDict):
    legs: int


ORDER = Order(
    UUID(int=7),
    [ConnectionRole("a", Decimal("1.10"), Colour.RED), ConnectionRole("b", Decimal(0))],
    datetime(2026, 3, 1, tzinfo=UTC),
)
ANN = Customer(name="Ann", since=date(2020, 2, 29), limits={"day": Decimal("9.99")})
BOB = Customer(name="Bob", since=date(2021, 1, 1), friends=[ANN])


def there_and_back(annotation: Any, value: Any) -> Any:
    def task(value): ...

    task.__annotations__ = {"value": annotation, "return": annotation}
    shape = Shape(task, "task")
    data = shape.encode_input(shape.bind((value,), {}), MAX_PAYLOAD)
    args, kwargs = shape.decode_input(data)
    assert shape.encode_input(shape.bind(args, kwargs), MAX_PAYLOAD) == data
    result = shape.decode_result(shape.encode_result(value, MAX_PAYLOAD))
    assert result == {**kwargs, **dict(zip(["value"], args, strict=False))}["value"]
    return result


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Order, ORDER), (list[Order], [ORDER]), (dict[str, Order], {"x": ORDER}), (Order | None, None),
        (Order | None, ORDER), (Struct, Struct(1, date(2026, 1, 1))), (Customer, ANN), (Customer, BOB),
        (list[Customer], [ANN, BOB]), (dict[str, Customer], {"a": ANN}), (Customer | None, BOB),
        (Customer | None, None), (Colour, Colour.BLUE), (Size, Size.L), (list[Colour], [Colour.RED]),
        (datetime, datetime(2026, 3, 1, 9, 30, 1, 5, tzinfo=UTC)), (datetime, datetime(2026, 3, 1)), # noqa: DTZ001
        (date, date(2026, 2, 28)), (time, time(9, 30)), (timedelta, timedelta(days=1, microseconds=1)),
        (Decimal, Decimal("12.340")), (UUID, UUID(int=5)), (bytes, b"\x00\xff"), (bytes, b""),
        (set[str], {"a", "b"}), (frozenset[int], frozenset({1, 2})), (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2, 3)), (dict[int, str], {1: "a", -2: "b"}), (dict[UUID, int], {UUID(int=1): 1}),
        (Pair, Pair(1, "a")), (Table, {"legs": 4}), (float, 1.5), (int, 2**64 - 1), (int, -(2**63)),
        (bool, True), (str, "ümläut 🧾 \u2028 \x00"), (int | str, "a"), (dict, {"a": [1, None]}), (list, [[], {}]),
        (Any, {"a": [1, 2.5, None, True, "x", {}]}), (object, [1]), (list[object], [1, "a", None]), (None, None),
    ],
    ids=lambda value: f"{sorted(value)}" if isinstance(value, set) else repr(value),
)  # fmt: skip
def test_a_value_comes_back_as_it_was(annotation: Any, value: Any) -> None:
    back = there_and_back(annotation, value)
    assert back == value
    assert type(back) is type(value)


lines = st.builds(
    ConnectionRole, st.text(), st.decimals(allow_nan=False, allow_infinity=False), st.sampled_from(Colour)
)
orders = st.builds(
    Order, st.uuids(), st.lists(lines, max_size=3), st.datetimes(timezones=st.just(UTC)),
    st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
)  # fmt: skip


@pytest.mark.slow
@given(orders)
def test_any_order_comes_back_as_it_was(order: Order) -> None:
    assert there_and_back(Order, order) == order


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.slow
@given(plain)
def test_any_plain_value_comes_back_as_it_was(value: Any) -> None:
    assert there_and_back(Any, value) == value


@given(st.dictionaries(st.text(max_size=3), st.integers(), max_size=6))
def test_the_order_of_keys_does_not_matter(value: dict[str, int]) -> None:
    shape = Shape(lambda value: None, "task")
    turned = dict(reversed(value.items()))
    small = {k: v for k, v in value.items() if abs(v) < 2**63}
    turned = {k: v for k, v in turned.items() if k in small}
    assert shape.encode_input({"value": small}, MAX_PAYLOAD) == shape.encode_input({"value": turned}, MAX_PAYLOAD)


def called(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    shape = Shape(fn, "task")
    data = shape.encode_input(shape.bind(args, kwargs), MAX_PAYLOAD)
    args, kwargs = shape.decode_input(data)
    return fn(*args, **kwargs)


def test_every_kind_of_parameter() -> None:
    def many(a: int, /, b: int, *rest: Decimal, c: int = 3, **more: UUID) -> Any:
        return a, b, rest, c, more

    one, two = Decimal("1.0"), UUID(int=2)
    assert called(many, 1, 2) == (1, 2, (), 3, {})
    assert called(many, 1, b=2, c=4) == (1, 2, (), 4, {})
    assert called(many, 1, 2, one, one, c=5, x=two) == (1, 2, (one, one), 5, {"x": two})


def test_only_positional_only_keyword_and_nothing_at_all() -> None:
    assert called(lambda a, /: a, 1) == 1
    assert called(lambda *, a: a, a=1) == 1
    assert called(lambda: 5) == 5
    assert called(lambda *args: args, 1, "a") == (1, "a")
    assert called(lambda **kwargs: kwargs, a=1, args=2) == {"a": 1, "args": 2}


def test_what_was_left_out_is_not_stored_and_is_its_default_when_it_runs() -> None:
    def greet(name: str = "Ann", count: int = 2) -> Any:
        return name, count

    shape = Shape(greet, "greet")
    assert shape.encode_input(shape.bind((), {}), MAX_PAYLOAD) == b"{}"
    assert called(greet) == ("Ann", 2)
    assert called(greet, count=3) == ("Ann", 3)


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"a": 1}), ((1,), {"x": 1}), ((), {"b": 1})]
)
def test_arguments_that_do_not_fit_are_refused_as_by_a_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    def task(a: int, b: int = 0) -> None: ...

    with pytest.raises(TypeError):
        task(*args, **kwargs)
    with pytest.raises(TypeError):
        Shape(task, "task").bind(args, kwargs)


def stored(fn: Callable[..., Any], *args: Any) -> bytes:
    shape = Shape(fn, "task")
    return shape.encode_input(shape.bind(args, {}), MAX_PAYLOAD)


def test_a_new_parameter_with_a_default_reads_old_arguments() -> None:
    old = stored(lambda a: None, 1)
    args, kwargs = Shape(lambda a, b=[2]: None, "task").decode_input(old)
    assert (args, kwargs) == ((), {"a": 1, "b": [2]})


def test_a_new_parameter_without_a_default_or_a_lost_one_says_what_to_do() -> None:
    with pytest.raises(NotDecodable, match="give new ones a default"):
        Shape(lambda a, b: None, "task").decode_input(stored(lambda a: None, 1))
    with pytest.raises(NotDecodable, match="Keep old parameters"):
        Shape(lambda a: None, "task").decode_input(stored(lambda a, b: None, 1, 2))


def test_a_result_that_no_longer_fits_says_so() -> None:
    def task() -> int: ...  # type: ignore[empty-body]

    with pytest.raises(NotDecodable, match="return annotation"):
        Shape(task, "task").decode_result(b'"text"')


def test_none_is_nothing_at_all() -> None:
    shape = Shape(lambda: None, "task")
    assert shape.encode_result(None, MAX_PAYLOAD) is None
    assert shape.decode_result(None) is None
    assert decode_plain(None) is None


def test_an_annotation_that_only_the_type_checker_knows_is_refused_at_definition() -> None:
    def task(order: "Ordre") -> None: ...  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(DefinitionError, match="'Ordre' is not known at run time"):
        Shape(task, "task")


HASH = """
import pydantic
from semel.codec import Shape
class Bag(pydantic.BaseModel):
    tags: set[str]
    inner: list[frozenset[str]]
def task(bag: Bag, tags: set[str]): ...
names = {"a", "b", "c", "d", "e"}
print(Shape(task, "task").encode_input({"bag": Bag(tags=names, inner=[frozenset(names)]), "tags": names}, 9999))
"""


@pytest.mark.slow
def test_sets_are_stored_the_same_in_every_process() -> None:
    seen = {
        subprocess.run(
            [sys.executable, "-c", HASH], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1
