"""Search attributes: one list of `name=value` for all of a workflow's own, and for Semel's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from semel.engines.temporal.card import OURS, Card, marks
from semel.engines.temporal.migrating import ATTRIBUTE

ATTRIBUTES: Final = SearchAttributeKey.for_keyword_list(ATTRIBUTE)


def attributes_of(card: Card, own: Mapping[str, str] | None = None) -> TypedSearchAttributes:
    """What an execution is found by: Semel's marks, and what its code has set."""
    values = [*marks(card), *(f"{name}={value}" for name, value in sorted((own or {}).items()))]
    return TypedSearchAttributes([SearchAttributePair(ATTRIBUTES, values)])


def read(data: bytes) -> dict[str, str]:
    """What its code has set."""
    values = msgspec.json.decode(data)
    pairs = (value.partition("=") for value in (values if isinstance(values, list) else [values]))
    return {name: value for name, _, value in pairs if not name.startswith(OURS)}
