"""What cannot work as an entity is refused when the class is written, with what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

import semel
from semel.define.entity import Entity

if TYPE_CHECKING:
    from somewhere import Unknown


class Opaque:
    """Nothing that JSON could carry."""


@dataclass
class Holder:
    """Something that holds itself, and what cannot be stored."""

    more: list[Holder]
    thing: Opaque | None = None


class Old:
    """State that nobody would store."""

    count: int = 0


def with_handler(**members: Any) -> type:
    """A class with one handler and these members; `x: int` is given as `x=int`, in `annotations`."""

    @semel.handler
    async def touch(self: Any, ctx: Any) -> None: ...

    annotations = members.pop("annotations", {})
    return type("Thing", (), {"touch": touch, "__annotations__": annotations, "__module__": __name__, **members})


def post_init(self: Any, seed: int) -> None: ...


def required(self: Any, seed: int) -> None: ...


CLASSES: dict[str, Callable[[], Any]] = {
    "'points' has no default, and an entity begins with defaults": lambda: with_handler(annotations={"points": int}),
    "Every attribute needs a default": lambda: with_handler(a=1, annotations={"a": int, "b": int}),
    "mutable default .* field": lambda: with_handler(tags=[], annotations={"tags": list}),
    "'points' has no annotation, so it is no state .* Write `points: int = 0`": lambda: with_handler(points=0),
    "Thing has an __init__": lambda: with_handler(__init__=required),
    r"Thing\(\) does not work: .*leave out __slots__": lambda: with_handler(
        __slots__=(), points=field(default_factory=int), annotations={"points": int}
    ),
    "is frozen": lambda: dataclass(frozen=True)(with_handler()),
    "cannot be stored.*does not fit its annotation": lambda: with_handler(points=None, annotations={"points": int}),
    "cannot be stored.*state.thing is a Opaque": lambda: with_handler(thing=Opaque(), annotations={"thing": Any}),
    "'Unknown' is not known at run time": lambda: with_handler(thing=None, annotations={"thing": "Unknown"}),
    "cannot be read from JSON": lambda: with_handler(thing=0, annotations={"thing": set[int] | list[int]}),
    "a Opaque cannot be read": lambda: with_handler(thing=None, annotations={"thing": Opaque | None}),
    "Old, from which it inherits, has annotated attributes": lambda: type("New", (Old, with_handler()), {}),
    "is not a class": lambda: lambda: None,
}


@pytest.mark.parametrize("words", CLASSES)
def test_classes(words: str) -> None:
    with pytest.raises(semel.DefinitionError, match=f"(?s)entity 'thing': .*{words}|entity 'thing' {words}"):
        Entity(CLASSES[words](), name="thing")


def test_a_class_that_nothing_can_reach() -> None:
    class Silent:
        @semel.query
        def status(self) -> int:
            return 1

    with pytest.raises(semel.DefinitionError, match="entity 'Silent' has no handler"):
        Entity(Silent)


def test_methods_that_cannot_be_what_they_are_marked_as() -> None:
    def plain(self: Any, ctx: Any) -> None: ...

    async def waiting(self: Any) -> None: ...

    async def yielding(self: Any, ctx: Any) -> Any:
        yield 1

    def generator(self: Any) -> Any:
        yield 1

    for decorate, fn, words in (
        (semel.handler, plain, "plain is a handler method: make it an `async def`"),
        (semel.handler("add"), plain, "make it an `async def`"),
        (semel.handler, yielding, "make it an `async def`"),
        (semel.idle("1d"), plain, "plain is an idle method: make it an `async def`"),
        (semel.query, waiting, "a query, which only reads: make it a plain `def`"),
        (semel.query, generator, "is a generator"),
        (semel.handler, 5, "5 is not a method"),
        (semel.handler, staticmethod(waiting), "is not a method"),
        (semel.handler("dedup_key"), waiting, "'dedup_key' is an option"),
        (semel.handler("dedup-key"), waiting, "'dedup-key' is an option"),
    ):
        with pytest.raises(semel.DefinitionError, match=words):
            decorate(fn)  # type: ignore[operator]
    with pytest.raises(semel.InvalidValue, match="handler name='add points'"):
        semel.handler("add points")(waiting)
    semel.handler()(waiting)
    with pytest.raises(semel.DefinitionError, match="is marked as handler already: it cannot be idle as well"):
        semel.idle("1d")(waiting)


@pytest.mark.parametrize("after", ["0", 0])
def test_idle_needs_a_positive_duration(after: Any) -> None:
    with pytest.raises(semel.DefinitionError, match="give a positive duration such as '365d'"):
        semel.idle(after)
    with pytest.raises(semel.DefinitionError, match="needs to know after how long"):
        semel.idle(lambda self, ctx: None)  # type: ignore[arg-type]
    with pytest.raises(semel.InvalidValue, match="idle='soon'"):
        semel.idle("soon")


def members() -> dict[str, dict[str, Any]]:
    async def no_context(self: Any, points: int) -> None: ...

    async def alone(self: Any) -> None: ...

    async def late(self: Any, points: int, ctx: Any) -> None: ...

    async def named(self: Any, *, ctx: Any) -> None: ...

    async def reserved(self: Any, ctx: Any, dedup_key: str) -> None: ...

    async def unknown(self: Any, ctx: Any, thing: Unknown) -> None: ...

    async def unreadable(self: Any, ctx: Any, thing: Callable[[], None]) -> None: ...

    async def more(self: Any, ctx: Any, points: int = 0) -> None: ...

    async def fine(self: Any, ctx: Any) -> None: ...

    async def also(self: Any, ctx: Any) -> None: ...

    def asks(self: Any, ctx: Any) -> int: ...

    def asks_for(self: Any, thing: set[int] | list[int]) -> int: ...

    def deep(self: Any, things: dict[str, list[Holder]]) -> int: ...

    def nothing() -> int: ...

    def status(self: Any, at: datetime) -> int: ...

    def handled(fn: Any) -> dict[str, Any]:
        return {"it": semel.handler(fn)}

    return {
        r"handler 'no-context': its second parameter is 'points', .* write \(self, ctx, …\)": handled(no_context),
        r"handler 'alone' takes .* it needs \(self, ctx, …\)": handled(alone),
        "handler 'late': its second parameter is 'points'": handled(late),
        "handler 'named' takes": handled(named),
        "'dedup_key', which is an option .* 'the_dedup_key'": handled(reserved),
        "handler 'unknown': the annotation 'Unknown' is not known": handled(unknown),
        "handler 'unreadable' takes a Callable, which cannot be read from JSON": handled(unreadable),
        "query 'deep' takes a Opaque, which cannot": {"it": semel.query(deep)},
        r"idle 'more': .* takes \(self, ctx\) and no more": {"it": semel.idle("1d")(more)},
        "two idle methods, 'fine' and 'also'": {"a": semel.idle("1d")(fine), "b": semel.idle("2d")(also)},
        "query 'asks': a query has no ctx": {"it": semel.query(asks)},
        "query 'asks-for': its annotations cannot be read": {"it": semel.query(asks_for)},
        r"query 'nothing' takes \(\) .*it needs \(self, …\)": {"it": semel.query(nothing)},
        "'touch' and 'status' are both called 'touch'.*@semel.query": {"it": semel.query("touch")(status)},
    }


MEMBERS = members()


@pytest.mark.parametrize("words", MEMBERS)
def test_members(words: str) -> None:
    with pytest.raises(semel.DefinitionError, match=f"(?s)entity 'Thing'.*{words}"):
        Entity(with_handler(**MEMBERS[words]))


def test_a_static_method_is_no_handler() -> None:
    class Thing:
        @staticmethod
        @semel.handler
        async def touch(self: Any, ctx: Any) -> None: ...

    with pytest.raises(semel.DefinitionError, match="'touch' is a staticmethod: a handler is a plain method"):
        Entity(Thing)


def test_a_required_value_of_post_init() -> None:
    from dataclasses import InitVar

    thing = with_handler(__post_init__=post_init, annotations={"seed": InitVar[int]})
    with pytest.raises(semel.DefinitionError, match=r"Thing\(\) does not work"):
        Entity(thing)


@pytest.mark.parametrize(
    "options",
    [{"window": "0"}, {"window": "soon"}, {"max_keys": 0}, {"max_keys": "many"}, {"queue": "a b"}, {"name": "a b"},
     {"retention": "soon"}],
)  # fmt: skip
def test_options(options: dict[str, Any]) -> None:
    with pytest.raises(semel.InvalidValue, match=next(iter(options))):
        Entity(with_handler(), **options)


@pytest.mark.parametrize("id", [None, "", 7])
def test_an_id_that_is_none(id: Any) -> None:
    app = semel.App("sqlite:///:memory:", config=None)

    @app.entity
    class Cart:
        @semel.handler
        async def add(self, ctx: semel.EntityContext) -> None: ...

    with pytest.raises(semel.InvalidKey, match="entity id"):
        app.entity(Cart, id)
