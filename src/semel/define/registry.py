"""The tasks of an app, by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from semel.define.task import Task
from semel.errors import DefinitionError, NotFound


class Registry:
    """Names are unique: a worker finds the function by the name that was stored."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[..., Any]] = {}

    def add(self, task: Task[..., Any]) -> None:
        """Register a task; another function under the same name is refused."""
        other = self._tasks.get(task.name)
        if other is not None and other.fn.__code__ is not task.fn.__code__:
            raise DefinitionError(
                f"two tasks are called {task.name!r}: {other.fn.__module__}.{other.fn.__qualname__} and "
                f"{task.fn.__module__}.{task.fn.__qualname__}. Give one of them name='…'."
            )
        self._tasks[task.name] = task

    def get(self, name: str) -> Task[..., Any] | None:
        """The task of that name, if this app has it."""
        return self._tasks.get(name)

    def __getitem__(self, name: str) -> Task[..., Any]:
        task = self._tasks.get(name)
        if task is None:
            near = difflib.get_close_matches(name, self._tasks, 1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(self._tasks) or 'none'}."
            raise NotFound(f"this app has no task {name!r}. {hint}")
        return task

    def __iter__(self) -> Iterator[Task[..., Any]]:
        return iter(self._tasks.values())

    def __len__(self) -> int:
        return len(self._tasks)
