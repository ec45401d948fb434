"""A backend for Django's tasks: `enqueue` inside `atomic()` belongs to the transaction.

    TASKS = {
        "default": {
            "BACKEND": "semel.django.task_backend.SemelBackend",
            "OPTIONS": {"app": "shop.durable.app", "database": "default"},
        }
    }

`app` is the `semel.App`, or where it is to be found; `database` is an alias of DATABASES. If the app's engine is in
that very database, the execution itself is written there; otherwise, and on Temporal, a row of the outbox.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from semel.app import App
from semel.django.registered_tasks import find_task, register_task
from semel.django.task_api import BaseTaskBackend, Task, TaskResult, TaskResultStatus, normalize_json, task_enqueued
from semel.django.task_results import read_result

OPTIONS = ("app", "database")


@dataclass(frozen=True, slots=True, kw_only=True)
class SemelTask(Task):
    """A task of Django's with what Semel has beyond it: `send_mail.using(task_id="mail:7").enqueue(7)`."""

    task_id: str | None = None
    """The key. With it the task runs once, and is the id of its result."""
    retry: int | None = None
    """How often it is tried in all; only with the decorator: `@task(retry=5)`."""
    timeout: str | None = None
    """How long a try may take, such as "30s"; only with the decorator."""

    def using(self, *, task_id: str | None = None, **changes: Any) -> SemelTask:
        """The task with other options."""
        changed: SemelTask = Task.using(self, **changes)
        return changed if task_id is None else replace(changed, task_id=task_id)


class SemelBackend(BaseTaskBackend):
    """Runs Django's tasks as tasks of a `semel.App`, each under the path of its function."""

    task_class = SemelTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        unknown = sorted(set(self.options) - set(OPTIONS))
        if unknown:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: no option {unknown[0]!r}. There are: {', '.join(OPTIONS)}.")
        if "app" not in self.options:
            raise ImproperlyConfigured(
                f'TASKS[{alias!r}]: which app runs the tasks? Say so: "OPTIONS": {{"app": "shop.durable.app"}}.'
            )
        self.database: str = self.options.get("database", DEFAULT_DB_ALIAS)

    @cached_property
    def app(self) -> App:
        """The app that runs the tasks."""
        given = self.options["app"]
        found = import_string(given.replace(":", ".")) if isinstance(given, str) else given
        if not isinstance(found, App):
            raise ImproperlyConfigured(f"TASKS[{self.alias!r}]: app={given!r} is no semel.App.")
        return found

    def check(self, **kwargs: Any) -> Iterable[Any]:
        """What `manage.py check` says of the settings."""
        try:
            _ = self.app
        except (ImportError, ImproperlyConfigured) as error:
            yield checks.Error(f"TASKS[{self.alias!r}]: {error}", id="semel.E001")
        if self.database not in connections.settings:
            there = ", ".join(connections.settings)
            yield checks.Error(
                f"TASKS[{self.alias!r}]: there is no database {self.database!r}. There are: {there}.", id="semel.E002"
            )

    def validate_task(self, task: Any) -> None:
        """Refuse what cannot run, and make the task known to the app: `@task` calls this."""
        super().validate_task(task)
        register_task(self, task)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Ask for one run. Inside `atomic()` it is part of the transaction, elsewhere a transaction of its own.

        TypeError: the arguments do not fit the function, or are no JSON.
        """
        self.validate_task(task)
        registered = find_task(self.app, task.module_path)
        assert registered is not None
        given = _checked_arguments(task, args, kwargs)
        options = {
            "task_id": getattr(task, "task_id", None),
            "queue": task.queue_name,
            "priority": task.priority,
            "run_at": _aware(task.run_after),
        }
        with self._transaction() as connection:
            handle = self.app.sync.enqueue(registered.semel_task, *given, connection=connection, **options)
        result = TaskResult(
            task=task,
            id=handle.key or handle.id,
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=given[0],
            kwargs=given[1],
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """How a run stands, by the id of its result. TaskResultDoesNotExist: rolled back, or past its retention."""
        return read_result(self, result_id)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """The transaction that is open on the database, or one of its own."""
        connection = connections[self.database]
        if connection.in_atomic_block or not connection.get_autocommit():
            yield connection
            return
        if not hasattr(connection, "transaction_mode"):
            with transaction.atomic(using=self.database):
                yield connection
            return
        # SQLite: one that begins with a read cannot write any more once somebody else has.
        before, connection.transaction_mode = connection.transaction_mode, "IMMEDIATE"
        try:
            with transaction.atomic(using=self.database):
                yield connection
        finally:
            connection.transaction_mode = before


def _checked_arguments(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as JSON. TypeError: they are none, or do not fit the function."""
    context = (None,) if task.takes_context else ()
    inspect.signature(task.func).bind(*context, *args, **kwargs)
    return normalize_json(list(args)), normalize_json(dict(kwargs))


def _aware(at: datetime | None) -> datetime | None:
    """Without USE_TZ times have no zone, and are meant in that of the project."""
    return timezone.make_aware(at) if at is not None and timezone.is_naive(at) else at
