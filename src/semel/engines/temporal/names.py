"""How executions are called on a cluster, and their search attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from semel.engines.temporal.memo import OURS, ExecutionMemo, marks
from semel.errors import InvalidKey

TASK: Final = "task:"
ENTITY: Final = "entity:"


def workflow_id(kind: str, key: str) -> str:
    """The id in Temporal of what runs under a key."""
    match kind:
        case "task":
            return TASK + key
        case "entity":
            return ENTITY + key
        case _:
            for prefix in (TASK, ENTITY):
                if key.startswith(prefix):
                    raise InvalidKey(
                        f"workflow_id={key!r} begins with {prefix!r}, which on Temporal is kept for "
                        f"{'tasks' if prefix == TASK else 'entities'}: use another one."
                    )
            return key


def kind_of(id: str) -> str:
    """What an id in Temporal stands for."""
    return "task" if id.startswith(TASK) else "entity" if id.startswith(ENTITY) else "workflow"


def execution_id(run: str, id: str) -> str:
    """An execution as Semel calls it: its first run, and its id in Temporal."""
    return f"{run}@{id}"


def split(execution: str) -> tuple[str, str] | None:
    """(first run, id in Temporal), or None: no execution of a cluster is called so."""
    run, at, id_ = execution.partition("@")
    return (run, id_) if at and run and id_ else None


ATTRIBUTE = "SemelAttributes"
"""The search attribute that holds all of a workflow's own, as `name=value`."""
ATTRIBUTES: Final = SearchAttributeKey.for_keyword_list(ATTRIBUTE)


def attributes_of(card: ExecutionMemo, own: Mapping[str, str] | None = None) -> TypedSearchAttributes:
    """What an execution is found by: Semel's marks, and what its code has set."""
    values = [*marks(card), *(f"{name}={value}" for name, value in sorted((own or {}).items()))]
    return TypedSearchAttributes([SearchAttributePair(ATTRIBUTES, values)])


def read(data: bytes) -> dict[str, str]:
    """What its code has set."""
    values = msgspec.json.decode(data)
    pairs = (value.partition("=") for value in (values if isinstance(values, list) else [values]))
    return {name: value for name, _, value in pairs if not name.startswith(OURS)}
