"""What became of a task of Django's: from the engine, or from the outbox before a relay has taken it."""

from __future__ import annotations

from typing import Any, Final

from django.db import connections, transaction

from semel.codec import decode_plain
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo, Execution
from semel.django.registered_tasks import find_task
from semel.django.task_api import TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from semel.errors import InvalidKey, NotFound, ResultExpired
from semel.sync_verbs import SyncHandle
from semel.transactional.outbox.events import OutboxStatus
from semel.transactional.outbox.recorded_start import RecordedStart, find_start_sync

ID_LENGTH: Final = 32
STATUSES: Final = {
    Status.PENDING: TaskResultStatus.READY,
    Status.RUNNING: TaskResultStatus.RUNNING,
    Status.WAITING: TaskResultStatus.RUNNING,
    Status.COMPLETED: TaskResultStatus.SUCCESSFUL,
    Status.FAILED: TaskResultStatus.FAILED,
    Status.CANCELLED: TaskResultStatus.FAILED,
    Status.TIMED_OUT: TaskResultStatus.FAILED,
}
ENDED_OTHERWISE: Final = {
    Status.CANCELLED: ErrorInfo("semel.ExecutionCancelled", "it was cancelled."),
    Status.TIMED_OUT: ErrorInfo("semel.ExecutionTimedOut", "it took too long."),
}


def read_result(backend: Any, result_id: str) -> Any:
    """The result with this id: the key of the task, or without one the id of its execution."""
    handle = _handle_of(backend, result_id)
    if handle is not None:
        return _from_engine(backend, result_id, handle)
    with transaction.atomic(using=backend.database):
        start = find_start_sync(connections[backend.database], backend.app.settings.namespace, result_id)
    if start is None:
        raise _missing(result_id, "it was rolled back, is not committed yet, or is past its retention")
    return _from_outbox(backend, result_id, start)


def _handle_of(backend: Any, result_id: str) -> SyncHandle[Any] | None:
    try:
        found: SyncHandle[Any] | None = backend.app.sync.find(result_id, kind="task")
        return backend.app.sync.get(result_id) if found is None and len(result_id) >= ID_LENGTH else found
    except (InvalidKey, NotFound):
        return None


def _from_engine(backend: Any, result_id: str, handle: SyncHandle[Any]) -> Any:
    execution = handle.describe()
    given = handle.input()
    if given is None or execution.expired:
        raise _missing(result_id, "it is past its retention")
    made = TaskResult(
        task=_task_of(backend, result_id, execution.name),
        id=result_id,
        status=STATUSES[execution.status],
        enqueued_at=execution.created_at,
        started_at=execution.started_at,
        finished_at=execution.finished_at,
        last_attempted_at=execution.started_at,
        args=given["args"],
        kwargs=given["kwargs"],
        backend=backend.alias,
        errors=_errors_of(execution),
        worker_ids=[execution.worker or "semel"] * execution.attempt,
    )
    if execution.status is Status.COMPLETED:
        try:
            object.__setattr__(made, "_return_value", handle.output())
        except ResultExpired:
            raise _missing(result_id, "it is past its retention") from None
    return made


def _from_outbox(backend: Any, result_id: str, start: RecordedStart) -> Any:
    given = decode_plain(start.request.payload)
    failed = start.status is OutboxStatus.FAILED
    return TaskResult(
        task=_task_of(backend, result_id, start.request.options.name),
        id=result_id,
        status=TaskResultStatus.FAILED if failed else TaskResultStatus.READY,
        enqueued_at=start.created_at,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=given["args"],
        kwargs=given["kwargs"],
        backend=backend.alias,
        errors=[_error_of(ErrorInfo("semel.SemelError", start.last_error or ""))] if failed else [],
        worker_ids=[],
    )


def _errors_of(execution: Execution) -> list[Any]:
    error = execution.error or ENDED_OTHERWISE.get(execution.status)
    return [] if error is None else [_error_of(error)]


def _error_of(error: ErrorInfo) -> Any:
    path = error.type if "." in error.type else f"builtins.{error.type}"
    return TaskError(exception_class_path=path, traceback=error.traceback or str(error))


def _task_of(backend: Any, result_id: str, name: str) -> Any:
    found = find_task(backend.app, name)
    if found is None:
        raise _missing(result_id, f"it is of {name!r}, which this process has not imported as a task")
    return found.task


def _missing(result_id: str, why: str) -> Exception:
    error: Exception = TaskResultDoesNotExist(f"no result {result_id!r}: {why}.")
    return error
