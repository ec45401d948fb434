"""What a running task can know of itself."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import TypeVar

from semel.contract.keys import effect_key as _effect_key
from semel.errors import OutsideTask

T = TypeVar("T")


@dataclass(slots=True)
class Running:
    """The execution that runs here: `semel.current()`."""

    id: str
    key: str | None
    name: str
    kind: str
    namespace: str
    queue: str
    attempt: int
    max_attempts: int
    generation: int
    token: int
    """The fencing token of this claim: no other claim has ever had it. Tokens have no order."""
    cancelled: bool = False
    """Someone asked to cancel it. Async tasks are interrupted; sync ones look here now and then."""
    progress: str | None = None
    stopping: bool = False
    """The worker is stopping and has given up waiting for this task."""
    parent_workflow_id: str | None = None
    """The execution id of the workflow that asked for it."""
    workflow_id: str | None = None
    """Of a step: the id of its workflow, or of its entity."""
    _root: str | None = field(default=None, repr=False)
    """Without a key: the first execution of a chain of redrives."""
    _note: Callable[[Running], None] | None = field(default=None, repr=False)

    def heartbeat(self, progress: object = None) -> None:
        """Say how far it is. Cheap: the worker writes it down with its next heartbeat."""
        self.progress = None if progress is None else _storable(str(progress)[:1000])
        if self._note is not None:
            self._note(self)

    def effect_key(self, name: str) -> str:
        """The key to hand to the outside world for the effect `name`, the same on every attempt."""
        if self.key is not None:
            return _effect_key(self.namespace, self.kind, self.key, self.generation, name)
        # A kind of its own, so that nobody's business key can be taken for an id.
        return _effect_key(self.namespace, f"{self.kind}-id", self._root or self.id, self.generation, name)


def _storable(text: str) -> str:
    """Text that every database can hold: a note must not cost its worker a heartbeat."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


_running: ContextVar[Running] = ContextVar("semel_running")


def current_or_none() -> Running | None:
    """The execution that runs here; None where none does."""
    return _running.get(None)


def current() -> Running:
    """The execution that runs here. Raises OutsideTask where none does."""
    running = _running.get(None)
    if running is None:
        raise OutsideTask(
            "no task runs here. current() and effect_key() are for the body of a task that a worker runs; "
            "in a test, use semel.testing.running(...)."
        )
    return running


def effect_key(name: str) -> str:
    """The idempotency key for an outside effect of this task.

    It is made of the business key (`task_id`) and `name`, and stays the same through retries, crashes and a new run
    after a failure. Two different effects in one task need two names.
    """
    return current().effect_key(name)


def call_within(running: Running, call: Callable[[], T]) -> T:
    """Call a function with `running` as the current execution, which it is for nobody else in this thread."""
    context = copy_context()
    context.run(enter, running)
    return context.run(call)


def enter(running: Running) -> None:
    """Make `running` the current execution of this context."""
    _running.set(running)
