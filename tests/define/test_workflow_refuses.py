"""A workflow whose context was forgotten is refused where it is defined."""

from collections.abc import Callable
from typing import Any

import pytest

import semel


async def nothing() -> None: ...


async def only_an_argument(order_id: str) -> None: ...


async def generic(orders: list[str]) -> None: ...


async def as_text(cents: "int") -> None: ...


async def by_keyword(*, ctx: semel.Context) -> None: ...


@pytest.mark.parametrize("fn", [nothing, only_an_argument, generic, as_text, by_keyword], ids=lambda fn: fn.__name__)
def test_it_takes_a_context_first(fn: Callable[..., Any]) -> None:
    app = semel.App("sqlite:///:memory:", config=None)
    with pytest.raises(semel.DefinitionError, match=r"takes no context: write `async def .*\(ctx: semel.Context, …\)`"):
        app.workflow(fn)


async def typed(ctx: semel.Context, order_id: str) -> None: ...


async def untyped(ctx, order_id):  # type: ignore[no-untyped-def]
    ...


@pytest.mark.parametrize("fn", [typed, untyped], ids=lambda fn: fn.__name__)
def test_a_context_need_not_be_annotated(fn: Callable[..., Any]) -> None:
    assert semel.App("sqlite:///:memory:", config=None).workflow(fn).name == fn.__name__
