"""How long a namespace has to keep, for what is declared."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from semel.contract.retention import TASK_RETENTION, WORKFLOW_RETENTION, keeping
from semel.define.entity import Entity
from semel.define.registry import Definition
from semel.settings import QueueSettings, Settings


def longest(definitions: Iterable[Definition], settings: Settings, *, windows: bool = True) -> tuple[timedelta, str]:
    """The longest that something has to be kept after its end, and whose that is: "workflow 'order'".

    A result is promised for its retention and a key for its window, so the longer of both counts. Queues that are
    declared count too, since any task may be sent there. With nothing declared: as long as workflows by default.
    Not `windows`: keys are remembered elsewhere, so only retentions count.
    """
    needs = [(_kept(one, settings, windows), f"{one.kind} {one.name!r}") for one in definitions]
    for name, queue in settings.queues.items():
        given = [span for span in (queue.retention, queue.dedup_window if windows else None) if span is not None]
        needs += [(span, f"queue {name!r}") for span in given]
    return max(needs, key=lambda need: need[0], default=(WORKFLOW_RETENTION, "a workflow with no retention of its own"))


def _kept(one: Definition, settings: Settings, windows: bool) -> timedelta:
    queue = settings.queues.get(one.queue, QueueSettings())
    if isinstance(one, Entity):  # what it knew of message keys is in the workflow that has ended, and nowhere else
        return one.kept(queue.retention).window
    default = TASK_RETENTION if one.kind == "task" else WORKFLOW_RETENTION
    keep = keeping((one.retention, one.dedup_window), (queue.retention, queue.dedup_window), (default, None))
    return max(keep.retention, keep.window) if windows else keep.retention
