"""How executions are called on a cluster, and their search attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    SearchAttributeUpdate,
    TypedSearchAttributes,
)

from semel.engines.temporal.memo import OURS, ExecutionMemo, marks
from semel.errors import InvalidKey
from semel.triggers.ids import is_run_id, parse_run_id

TASK: Final = "task:"
ENTITY: Final = "entity:"
LONGEST_ID: Final = 1000
"""Bytes of a workflow id that a cluster takes, unless it is configured otherwise."""


def workflow_id(kind: str, key: str) -> str:
    """The id in Temporal of what runs under a key. A run of a schedule has its key as its id, also if it is a task.

    InvalidKey: the cluster cannot keep it.
    """
    id_ = _workflow_id(kind, key)
    if not id_.isascii() and (size := len(id_.encode())) > LONGEST_ID:
        raise InvalidKey(
            f"the key {key[:40] + '…'!r} takes {size:,} bytes in Temporal, which keeps {LONGEST_ID:,} of an id: use a "
            "shorter one, or fewer characters outside of ASCII."
        )
    return id_


def _workflow_id(kind: str, key: str) -> str:
    match kind:
        case "task":
            return key if is_run_id(key) else TASK + key
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


SCHEDULED_FOR = "SemelScheduledFor"
"""The search attribute of a run of a schedule: its slot, a time."""
SLOT: Final = SearchAttributeKey.for_datetime(SCHEDULED_FOR)


KEYWORDS: Final = {name: SearchAttributeKey.for_keyword(name) for name in ("scope", "incidentKey")}
"""What workflows of several kinds are correlated by has a search attribute of its own, beside the list of all."""


def slot_of(key: str) -> datetime | None:
    """The slot of a run of a schedule, by its key."""
    parsed = parse_run_id(key)
    return None if parsed is None else parsed[1]


def attributes_of(card: ExecutionMemo, own: Mapping[str, str] | None = None) -> TypedSearchAttributes:
    """What an execution is found by: Semel's marks, and what its code has set."""
    values = [*marks(card), *(f"{name}={value}" for name, value in sorted((own or {}).items()))]
    return TypedSearchAttributes([SearchAttributePair(ATTRIBUTES, values)])


def updates_of(
    card: ExecutionMemo, own: Mapping[str, str], changed: Iterable[str], also: Sequence[str] = ()
) -> list[SearchAttributeUpdate[Any]]:
    """Search attributes to write after the code has `changed` some of its own. `also`: further marks of Semel's."""
    updates: list[SearchAttributeUpdate[Any]] = [ATTRIBUTES.value_set([*attributes_of(card, own)[ATTRIBUTES], *also])]
    for name in sorted(KEYWORDS.keys() & set(changed)):
        key = KEYWORDS[name]
        updates.append(key.value_set(own[name]) if name in own else key.value_unset())
    return updates


def read(data: bytes) -> dict[str, str]:
    """What its code has set."""
    values = msgspec.json.decode(data)
    pairs = (value.partition("=") for value in (values if isinstance(values, list) else [values]))
    return {name: value for name, _, value in pairs if not name.startswith(OURS)}
