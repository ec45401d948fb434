"""What is wrong with data that does not fit a model: where it is, and what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from semel.errors import InvalidValue, phrase

M = TypeVar("M", bound=BaseModel)
Place = tuple[str | int, ...]

_KINDS: Final = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "a text",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}
"""What to write, by the type of the error."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: `place` is the path to it, as in `triggers[0].timezone`."""

    place: str
    message: str

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}" if self.place else self.message
        return text if text.endswith(("?", ".")) else f"{text}."


def validate(model: type[M], data: Any, what: str) -> M:
    """Make a model of data. Raises InvalidValue that begins with `what` and says all that is wrong."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = " ".join(map(str, list_problems(error, model)))
        raise InvalidValue(f"{what}: {problems}") from None


def list_problems(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Everything that is wrong with the data of a model, in the order of its fields."""
    found = error.errors(include_url=False)
    places = [one["loc"] for one in found]
    return [
        Problem(format_place(_without_tags(one["loc"])), phrase(_describe(one, model)))
        for one in found
        # A list whose entries are all wrong is not too short besides.
        if not (one["type"] == "too_short" and any(len(place) > len(one["loc"]) for place in _below(one, places)))
    ]


def format_place(place: Iterable[str | int]) -> str:
    """A path as people write it: `triggers[0].timezone`."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def suggest(name: str, known: Iterable[str]) -> str:
    """The nearest known name, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1)
    return f"Did you mean {near[0]!r}?" if near else f"Known are: {', '.join(names)}."


def _below(one: ErrorDetails, places: Iterable[Place]) -> Iterator[Place]:
    return (place for place in places if place[: len(one["loc"])] == one["loc"])


def _without_tags(place: Place) -> Place:
    """A place without the types of triggers, which Pydantic puts behind their index."""
    tags = {at + 2 for at, (name, index) in enumerate(pairwise(place)) if name == "triggers" and isinstance(index, int)}
    return tuple(part for at, part in enumerate(place) if at not in tags)


def _describe(one: ErrorDetails, model: type[BaseModel]) -> str:
    """What is wrong, in our words."""
    kind, given, context = one["type"], one["input"], one.get("ctx", {})
    if kind == "missing":
        return "it is missing"
    if kind == "extra_forbidden":
        return f"there is no such field. {suggest(str(one['loc'][-1]), _fields_at(model, one['loc'][:-1]))}"
    if kind in _KINDS:
        return f"{given!r} is not {_KINDS[kind]}"
    if kind == "literal_error":
        return f"{given!r}: use {context['expected']}"
    if kind == "union_tag_invalid":
        return f"type={context['tag']!r}: use one of {context['expected_tags']}"
    if kind == "union_tag_not_found":
        return "it has no type: say type='cron', 'interval', 'once' or 'event'"
    if kind == "too_short":
        return f"give at least {context['min_length']}"
    if kind == "too_long":
        return f"has {context['actual_length']} entries: give at most {context['max_length']}"
    if kind == "invalid-json-value":
        return f"{given!s} is a {type(given).__name__}, not a JSON value: write it as a text"
    return one["msg"]


def _fields_at(model: type[BaseModel], place: Place) -> Iterable[str]:
    """The names of the fields of the model at this place."""
    candidates = [model]
    for part in place:
        fields = [one.model_fields[part] for one in candidates if isinstance(part, str) and part in one.model_fields]
        tagged = [one for one in candidates if "type" in one.model_fields and one.model_fields["type"].default == part]
        if tagged:
            candidates = tagged
        elif fields:
            candidates = [inner for field in fields for inner in _models_in(field.annotation)]
    return {name for one in candidates for name in one.model_fields}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
