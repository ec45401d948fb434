"""A step is known by its function: its name, what it returns, what it takes."""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import semel
from tests.world import World, waits


@dataclass
class Box:
    size: int


@dataclass
class EntityMessage:
    text: str


def fetching(kind: type, value: Any) -> Callable[[], Any]:
    def fetch() -> kind:  # type: ignore[valid-type]
        return value

    return fetch


def traced(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


@traced
def pack() -> Box:
    return Box(1)


@traced
def write() -> list[EntityMessage]:
    return [EntityMessage("dear")]


@pytest.mark.parametrize("cached", [0, 1000])
async def test_each_that_a_factory_makes_has_the_type_it_was_made_for(world: World, cached: int) -> None:
    app, seen = world.app(), []
    made = [(Box, Box(1)), (EntityMessage, EntityMessage("x")), (int, 3), (str, "z"), (Box, Box(2))]

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        got = [await ctx.step(fetching(kind, value)) for kind, value in made]
        got += await asyncio.gather(*(ctx.step(fetching(kind, value)) for kind, value in made))
        await ctx.wait_signal("go")
        seen[:] = got

    async with world.worker(app, cached_workflows=cached):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        await handle.signal("go")
        await handle.result(timeout="60s")
    assert seen == [value for _, value in made] * 2


async def test_those_of_one_decorator_keep_their_names_and_types(world: World) -> None:
    app, seen = world.app(), []

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        seen.extend([await ctx.step(pack), await ctx.step(write), await ctx.step(pack)])

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        await handle.result(timeout="60s")
    assert seen == [Box(1), [EntityMessage("dear")], Box(1)]
    names = [event.name for event in await handle.history() if (event.what, event.kind) == ("asked", "step")]
    assert names == ["pack", "write", "pack"]


def greet(name: str = "you", *, retry: bool = False) -> str:
    return f"hello {name}{' again' if retry else ''}"


def note(tx: Any, name: str = "nobody", retry: int = 0) -> str:
    return f"{name} {retry}"


class Greeter:
    def __call__(self, name: str = "you") -> str:
        return f"hello {name}"


async def refusal(call: Any) -> str:
    try:
        await call
    except semel.InvalidValue as error:
        return str(error)
    return "accepted"


async def test_an_option_with_the_name_of_a_parameter_is_refused(world: World) -> None:
    app = world.app()

    @app.task
    def welcome(name: str = "you") -> str:
        return name

    @app.workflow
    async def flow(ctx: semel.Context) -> list[str]:
        return [
            await refusal(ctx.step(greet, name="ada")),
            await refusal(ctx.step(greet, "ada", retry=True)),
            await refusal(ctx.step(greet, "ada", retry=3)),
            await refusal(ctx.step(traced(greet), name="ada")),
            await refusal(ctx.step(Greeter(), name="ada")),
            await refusal(ctx.step(welcome, name="ada")),
            await refusal(ctx.transaction(note, name="ada")),
        ]

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        refused = await handle.result(timeout="60s")
    assert "retry=True: give a whole number" in refused.pop(1)
    assert all("a parameter of that name" in one and "functools.partial" in one for one in refused), refused


async def test_an_option_whose_parameter_has_its_value_is_an_option(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> list[str]:
        return [
            await ctx.step(greet, "ada"),
            await ctx.step(greet, "bob", name="second"),
            await ctx.step(functools.partial(greet, name="cid", retry=True), name="third", retry=2),
            await ctx.step(lambda: greet(name="dan"), name="fourth"),
            await ctx.step(Greeter(), "eve", name="fifth"),
            await ctx.transaction(note, "fay", name="sixth", retry=2),
        ]

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        assert await handle.result(timeout="60s") == [
            "hello ada", "hello bob", "hello cid again", "hello dan", "hello eve", "fay 2",
        ]  # fmt: skip
    names = [event.name for event in await handle.history() if event.what == "asked"]
    assert names == ["greet", "second", "third", "fourth", "fifth", "sixth"]


@pytest.mark.parametrize("retry", ["3", 2.5, True, [1], 0])
async def test_a_retry_that_is_none_is_refused(world: World, retry: Any) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        return await refusal(ctx.step(lambda: 1, retry=retry))

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        assert "give a whole number" in await handle.result(timeout="60s")
    with pytest.raises(semel.InvalidValue, match="give a whole number"):
        app.task(retry=retry)(greet)
