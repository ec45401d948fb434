"""The state of an entity: the annotated attributes of its class, to JSON and back."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from typing import Any, Generic, TypeVar

import msgspec

from semel.codec import decode_plain, encode, is_plain, object_reader, unreadable
from semel.errors import DefinitionError, NotDecodable, NotEncodable, phrase

S = TypeVar("S")


class State(Generic[S]):
    """How the attributes of `cls` are stored. The class becomes a dataclass, if it is none.

    Every attribute has a default, so that an entity can begin, and so that state from before an attribute was added
    can be read. What cannot be written and read back is refused here, with DefinitionError.
    """

    def __init__(self, cls: type[S], who: str) -> None:
        _refuse_odd_classes(cls, who)
        if "__dataclass_fields__" not in vars(cls):
            _make_dataclass(cls, who)
        self.cls = cls
        self.who = who
        kinds = _hints(cls, who)
        self._fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(typing.cast(Any, cls))
        for field in self._fields:
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise DefinitionError(
                    f"{who}: {field.name!r} has no default, and an entity begins with defaults alone. "
                    f"Write `{field.name}: … = …`, or field(default_factory=…)."
                )
        self._names = frozenset(field.name for field in self._fields)
        self._plain = tuple(name for name in self._names if is_plain(kinds[name]))
        try:
            self._reader = object_reader("State", [(f.name, kinds[f.name], _default(f)) for f in self._fields])
        except TypeError as error:
            raise DefinitionError(f"{who}: its attributes cannot be read from JSON: {error}") from error
        if bad := unreadable(self._reader):
            raise DefinitionError(
                f"{who}: a {bad} cannot be read from JSON. Keep an id, a dataclass or plain data instead."
            )
        self._try_out()

    def fresh(self) -> S:
        """A new entity: every attribute has its default."""
        return self.cls()

    def encode(self, state: S, limit: int) -> bytes:
        """Canonical JSON, proved to be readable again. Raises NotEncodable, or PayloadTooLarge over `limit` bytes."""
        data = self._write(state, limit)
        try:
            self._reader.decode(data)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise NotEncodable(
                f"{self.who}: an attribute does not fit its annotation: {phrase(error)}. Nobody could read the "
                "state back."
            ) from error
        return data

    def decode(self, data: bytes) -> S:
        """The state as an object. Attributes that were added since have their defaults.

        Raises NotDecodable where something stored would be lost: it was written by newer code, or a field was removed.
        """
        try:
            values = self._reader.decode(data)
            state = self.cls(**{f.name: getattr(values, f.name) for f in self._fields if f.init})
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise NotDecodable(
                f"{self.who}: the stored state does not fit the class: {phrase(error)}. {_MEND}"
            ) from error
        for field in self._fields:
            if not field.init:
                setattr(state, field.name, getattr(values, field.name))
        # Unknown fields deeper down are passed over by the reader, and would be gone with the next write.
        again = encode({name: getattr(values, name) for name in self._names}, "state", limit=1 << 62)
        if again != data and (lost := _lost(decode_plain(data), decode_plain(again), "state")):
            raise NotDecodable(f"{self.who}: the stored state has {lost}, which the class does not know. {_MEND}")
        return state

    def _write(self, state: S, limit: int) -> bytes:
        others = getattr(state, "__dict__", {}).keys() - self._names
        if others and (undeclared := sorted(filter(self._is_undeclared, others))):
            raise NotEncodable(
                f"{self.who}: the attribute {undeclared[0]!r} was set and is not declared, so it would be lost. "
                "Declare it in the class with annotation and default, or begin its name with '_' if it may be lost."
            )
        try:
            values = {name: getattr(state, name) for name in self._names}
        except AttributeError as error:
            raise NotEncodable(
                f"{self.who}: the attribute {error.name!r} was deleted. Set it to None instead."
            ) from None
        for name in self._plain:
            encode(values[name], f"state.{name}", plain=True, limit=limit)
        return encode(values, "state", limit=limit)

    def _is_undeclared(self, name: str) -> bool:
        if name.startswith("_"):
            return False
        return not isinstance(inspect.getattr_static(self.cls, name, None), functools.cached_property)

    def _try_out(self) -> None:
        """Write and read the defaults once: what does not work now never will."""
        try:
            state = self.fresh()
        except (TypeError, AttributeError) as error:
            raise DefinitionError(
                f"{self.who}: {self.cls.__name__}() does not work: {phrase(error)}. An entity begins without "
                "arguments, and its handlers set attributes: leave out __slots__, and give every parameter of __init__ "
                "a default."
            ) from error
        try:
            self.decode(self.encode(state, 1 << 62))
        except (NotEncodable, NotDecodable) as error:
            why = error.message.removeprefix(f"{self.who}: ")
            raise DefinitionError(f"{self.who}: its defaults cannot be stored: {why}") from error


_MEND = (
    "Was it written by newer code, or was a field renamed or removed? Keep old fields, give new ones a default, and "
    "deploy readers before writers."
)


def _refuse_odd_classes(cls: object, who: str) -> None:
    if not isinstance(cls, type):
        raise DefinitionError(f"{who}: {cls!r} is not a class. An entity is a class with state and handlers.")
    made = "__dataclass_fields__" in vars(cls)
    if made and vars(cls)["__dataclass_params__"].frozen:
        raise DefinitionError(f"{who} is frozen, and its handlers change its attributes: leave out frozen=True.")
    own = [base for base in cls.__mro__[:-1] if "__init__" in vars(base) and "__dataclass_fields__" not in vars(base)]
    if own:
        raise DefinitionError(
            f"{who}: {own[0].__name__} has an __init__, which is not run when state is read back. Annotate the "
            "attributes and give them defaults; put what has to be derived into __post_init__."
        )
    for base in cls.__mro__[1:-1]:
        if inspect.get_annotations(base) and "__dataclass_fields__" not in vars(base) and not _is_protocol(base):
            raise DefinitionError(
                f"{who}: {base.__name__}, from which it inherits, has annotated attributes and is no dataclass, so "
                "they would be lost. Put @dataclass on it."
            )
    annotated = {name for base in cls.__mro__ for name in inspect.get_annotations(base)}
    for name, value in vars(cls).items():
        if name not in annotated and not name.startswith("_") and not name.isupper() and _is_value(value):
            raise DefinitionError(
                f"{who}: {name!r} has no annotation, so it is no state and would be lost. Write `{name}: "
                f"{type(value).__name__} = {value!r}`, or `{name}: ClassVar = …` for a constant."
            )


def _is_protocol(cls: type) -> bool:
    return bool(getattr(cls, "_is_protocol", False))


def _is_value(value: object) -> bool:
    return not callable(value) and not hasattr(type(value), "__get__")


def _make_dataclass(cls: type, who: str) -> None:
    try:
        dataclasses.dataclass(cls)
    except ValueError as error:  # a mutable default
        raise DefinitionError(
            f"{who}: {phrase(error)}. Write `field(default_factory=list)`, from dataclasses."
        ) from error
    except TypeError as error:  # one without a default behind one with
        raise DefinitionError(
            f"{who}: {phrase(error)}. Every attribute needs a default: an entity begins with them."
        ) from error


def _hints(cls: type, who: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"{who}: the annotation {error.name!r} is not known at run time. Import it outside of "
            "`if TYPE_CHECKING:`, since it is needed to read stored state."
        ) from error


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return msgspec.field(default_factory=field.default_factory)
    return msgspec.field(default_factory=lambda: field.default)


def _lost(stored: Any, kept: Any, path: str) -> str | None:
    """The path of the first field that was stored and is not kept."""
    if isinstance(stored, dict) and isinstance(kept, dict):
        for key, value in stored.items():
            if key not in kept:
                return f"{path}.{key}"
            if lost := _lost(value, kept[key], f"{path}.{key}"):
                return lost
    if isinstance(stored, list) and isinstance(kept, list) and len(stored) == len(kept):
        for index, pair in enumerate(zip(stored, kept, strict=True)):
            if lost := _lost(*pair, f"{path}[{index}]"):
                return lost
    return None
