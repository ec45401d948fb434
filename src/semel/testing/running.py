"""Call the body of a task in a unit test as if a worker ran it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from semel.define.context import Running, _running
from semel.engine.ids import new_id


@contextmanager
def running(
    key: str | None = None,
    *,
    id: str | None = None,
    name: str = "task",
    namespace: str = "default",
    queue: str = "default",
    attempt: int = 1,
    max_attempts: int = 3,
    generation: int = 0,
) -> Iterator[Running]:
    """Within the block `semel.current()` and `semel.effect_key()` answer; outside of it they do not.

    `with semel.testing.running("order-1") as execution: charge("order-1")`. Set `execution.cancelled = True` to see
    what the task does when someone asks it to stop; `execution.progress` holds its last heartbeat.
    """
    execution = Running(
        new_id() if id is None else id,
        key,
        name,
        "task",
        namespace,
        queue,
        attempt,
        max_attempts,
        generation,
        token=attempt,
    )
    token = _running.set(execution)
    try:
        yield execution
    finally:
        _running.reset(token)
