"""How executions are called on a cluster.

A workflow has its key for its id, so that people find it in Temporal's own tools; tasks and entities have a prefix,
since one key may stand for a task and for a workflow. Formats never change silently: a new one would make every old
run look new.
"""

from __future__ import annotations

from typing import Final

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
