"""Parameters that Semel hands in, such as `ctx`, are no part of what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from semel.codec import Shape
from semel.errors import DefinitionError

if TYPE_CHECKING:
    from somewhere import Unknown

LIMIT = 1000


def workflow(ctx: Unknown, order_id: str, *items: int, note: str = "") -> list[int]:
    return list(items)


def method(self: Any, ctx: Unknown, /, points: int = 1) -> None: ...


def test_a_skipped_parameter_is_not_stored_and_need_not_be_known() -> None:
    shape = Shape(workflow, "workflow", skip=1, kind="workflow")
    bound = shape.bind(("o-1", 1, 2), {"note": "n"})
    assert bound == {"order_id": "o-1", "items": (1, 2), "note": "n"}
    data = shape.encode_input(bound, LIMIT)
    assert data == b'{"items":[1,2],"note":"n","order_id":"o-1"}'
    args, kwargs = shape.decode_input(data)
    assert workflow(None, *args, **kwargs) == [1, 2]
    assert shape.decode_result(shape.encode_result([3], LIMIT)) == [3]


def test_two_are_skipped() -> None:
    shape = Shape(method, "method", skip=2)
    assert shape.bind((), {}) == {}
    assert shape.decode_input(b"{}") == ((), {"points": 1})
    with pytest.raises(TypeError):
        shape.bind((1, 2), {})
    with pytest.raises(TypeError):
        shape.bind((), {"ctx": 1})


def test_what_is_left_still_has_to_be_known() -> None:
    with pytest.raises(DefinitionError, match="workflow 'w': the annotation 'Unknown' is not known"):
        Shape(workflow, "w", kind="workflow")


def test_there_must_be_something_to_skip() -> None:
    def none() -> None: ...

    def star(*args: int) -> None: ...

    def named(*, ctx: int) -> None: ...

    for fn in (none, star, named):
        with pytest.raises(DefinitionError, match="workflow 'w' is handed 1 positional argument by Semel"):
            Shape(fn, "w", skip=1, kind="workflow")
