"""Keys of events: the part of an event by which runs are grouped, such as `data.user_id`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from semel.errors import InvalidValue, phrase
from semel.triggers.envelope import EventEnvelope
from semel.triggers.filters import VARIABLES, FilterInput, compile_expression

EVENT_KEY_LENGTH: Final = 255
"""A key that is longer stands by its hash."""

_PATH: Final = re.compile(r"[a-z]+(?:\.[A-Za-z_][A-Za-z0-9_]*)*")


@dataclass(frozen=True, slots=True)
class KeyResult:
    """The key of an event as text, or the problem why it has none."""

    key: str | None
    problem: str | None = None


class EventKey:
    """Reads the key of events: by a path, which needs no further library, or by an expression of CEL."""

    __slots__ = ("_expression", "_path", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._path = tuple(text.split(".")) if _is_path(text) else None
        self._expression = None if self._path else compile_expression(text, "key")

    @property
    def needs_input(self) -> bool:
        """Is it an expression, which reads an event as filters do?"""
        return self._expression is not None

    def __repr__(self) -> str:
        return f"EventKey({self.text!r})"

    def read(self, event: EventEnvelope, given: FilterInput | None = None) -> KeyResult:
        """The key of an event. Never raises: what cannot be read is a problem."""
        if self._expression is not None:
            value, problem = self._expression.evaluate(given or FilterInput(event))
        else:
            value, problem = _follow(event, self._path or ())
        if problem is not None:
            return KeyResult(None, f"key {self.text!r}: {problem}")
        if isinstance(value, bool):
            value = str(value).lower()
        if not isinstance(value, str | int) or value == "":
            shown = "null" if value is None else f"a {type(value).__name__}" if value != "" else "blank"
            return KeyResult(None, f"key {self.text!r}: it is {shown}, not a text or a whole number")
        key = str(value)
        if len(key) > EVENT_KEY_LENGTH:
            key = f"sha256:{hashlib.sha256(key.encode(errors='surrogatepass')).hexdigest()}"
        return KeyResult(key)


def check_event_key(text: object, what: str = "key") -> str:
    """A key expression, or InvalidValue that says what is wrong with it."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidValue(f"{what}={text!r}: give a path such as 'data.user_id', or an expression of CEL.")
    try:
        EventKey(text)
    except InvalidValue as error:
        raise InvalidValue(f"{phrase(error)}.") from None
    return text


def _is_path(text: str) -> bool:
    return bool(_PATH.fullmatch(text)) and text.removeprefix("event.").partition(".")[0] in VARIABLES


def _follow(event: EventEnvelope, path: tuple[str, ...]) -> tuple[Any, str | None]:
    names = path[1:] if path[0] == "event" else path
    value: Any = getattr(event, "event_id" if names[0] == "id" else names[0])
    for name in names[1:]:
        if not isinstance(value, Mapping) or name not in value:
            return None, f"there is no field {name!r}"
        value = value[name]
    return value.isoformat() if hasattr(value, "isoformat") else value, None
