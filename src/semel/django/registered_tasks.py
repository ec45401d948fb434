"""Django's tasks as tasks of a `semel.App`: what a worker runs."""

from __future__ import annotations

import inspect
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.utils import timezone

import semel
from semel.app import App
from semel.define.task import Task as SemelDefinition
from semel.django.task_api import (
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)

_known: Final[dict[App, dict[str, RegisteredTask]]] = {}
_lock: Final = threading.Lock()
"""Django makes a backend for each thread."""


@dataclass(slots=True)
class RegisteredTask:
    """A task of Django's, and the task of the app that runs it."""

    task: Any
    semel_task: SemelDefinition[..., Any]


def find_task(app: App, path: str) -> RegisteredTask | None:
    """The task by the path of its function, if its module has been imported."""
    return _known.get(app, {}).get(path)


def register_task(backend: Any, task: Any) -> None:
    """Make a task known to the backend's app, once; a module that is loaded again replaces its functions."""
    path, app = task.module_path, backend.app  # it may be imported by this, which must not happen under the lock
    with _lock:
        known = _known.setdefault(app, {})
        if path not in known:
            run = _function_of(backend, path, task)
            define = app.task(
                name=path,
                queue=task.queue_name,
                priority=task.priority,
                retry=getattr(task, "retry", None),
                timeout=getattr(task, "timeout", None),
            )
            known[path] = RegisteredTask(task, define(run))
        elif known[path].task.func is not task.func:
            known[path].task = task


def _function_of(backend: Any, path: str, task: Any) -> Callable[..., Any]:
    """The function that a worker calls."""

    def run(args: list[Any], kwargs: dict[str, Any]) -> Any:
        close_old_connections()
        try:
            attempt = _Attempt(backend, path, args, kwargs)
            task_started.send_robust(type(backend), task_result=attempt.result)
            try:
                value = normalize_json(attempt.function(*attempt.args, **kwargs))
            except Exception as error:
                if attempt.note_failure(error):
                    task_finished.send_robust(type(backend), task_result=attempt.result)
                raise
            attempt.note_success(value)
            task_finished.send_robust(type(backend), task_result=attempt.result)
            return value
        finally:
            close_old_connections()

    async def run_async(args: list[Any], kwargs: dict[str, Any]) -> Any:
        await sync_to_async(close_old_connections)()
        attempt = _Attempt(backend, path, args, kwargs)
        await task_started.asend_robust(type(backend), task_result=attempt.result)
        try:
            value = normalize_json(await attempt.function(*attempt.args, **kwargs))
        except Exception as error:
            if attempt.note_failure(error):
                await task_finished.asend_robust(type(backend), task_result=attempt.result)
            raise
        attempt.note_success(value)
        await task_finished.asend_robust(type(backend), task_result=attempt.result)
        return value

    chosen = run_async if inspect.iscoroutinefunction(task.func) else run
    chosen.__module__, chosen.__name__, chosen.__qualname__, chosen.__doc__ = (
        task.func.__module__,
        task.func.__name__,
        task.func.__qualname__,
        task.func.__doc__,
    )
    return chosen


class _Attempt:
    """One try of a task, with what its context and the receivers of signals are given."""

    def __init__(self, backend: Any, path: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        running, now = semel.current(), timezone.now()
        found = find_task(backend.app, path)
        assert found is not None
        self._last = running.attempt >= running.max_attempts
        self.function = found.task.func
        self.result = TaskResult(
            task=found.task,
            id=running.key or running.id,
            status=TaskResultStatus.RUNNING,
            enqueued_at=None,
            started_at=now,
            finished_at=None,
            last_attempted_at=now,
            args=args,
            kwargs=kwargs,
            backend=backend.alias,
            errors=[],
            worker_ids=["semel"] * running.attempt,
        )
        self.args = [TaskContext(task_result=self.result), *args] if found.task.takes_context else args

    def note_success(self, value: Any) -> None:
        self._end(TaskResultStatus.SUCCESSFUL)
        object.__setattr__(self.result, "_return_value", value)

    def note_failure(self, error: Exception) -> bool:
        """Was it the last try?"""
        kind = type(error)
        text = "".join(traceback.format_exception(error))
        path = f"{kind.__module__}.{kind.__qualname__}"
        self.result.errors.append(TaskError(exception_class_path=path, traceback=text))
        if self._last:
            self._end(TaskResultStatus.FAILED)
        return self._last

    def _end(self, status: Any) -> None:
        object.__setattr__(self.result, "status", status)
        object.__setattr__(self.result, "finished_at", timezone.now())
