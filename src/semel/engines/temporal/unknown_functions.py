"""Work whose function this worker does not have: it is handed back, so that a worker that has it gets it at once.

A task queue of Temporal cannot be asked for some functions only: during a rolling deploy a worker is given work of
functions that it does not have yet, or no longer. What it then does must cost that work nothing.

- The workflow of a *task* needs no function, so any worker runs it. Its activity is refused with an error that the
  server retries by itself: no attempt of the task is counted, and nothing is added to its history.
- The workflow task of a *workflow* or an *entity* is failed, and the server offers it again at once. The SDK reports
  the first failure in a row only and leaves the others to their timeout, which grows up to ten minutes. So this worker
  keeps those in mind and reports them itself as soon as there is a worker that has the function.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec import Struct
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingWorkflowTaskState, WorkflowTaskFailedCause
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeWorkflowExecutionRequest,
    GetWorkflowExecutionHistoryReverseRequest,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.converter import StorageDriverStoreContext
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails
from temporalio.workflow import Info

from semel.codec import decoder_of
from semel.engine.failure_log import log_failure
from semel.engine.protocol import WorkerState
from semel.engines.temporal import workers
from semel.engines.temporal.inside.attempts import UNKNOWN
from semel.engines.temporal.memo import MEMO, ExecutionMemo
from semel.engines.temporal.parking import POKE
from semel.engines.temporal.payloads import bytes_of
from semel.errors import EngineError

log = logging.getLogger("semel.worker")
LOOK_WITHIN: Final = 1.0
"""Seconds in which a worker finds out how often a workflow task was tried; the SDK gives it two."""
WORKERS_EVERY: Final = 1.0
"""Seconds for which a list of workers is believed."""
PAUSE: Final = 0.05
"""Seconds between two looks at what is kept in mind, while there is a worker that has the function."""
SOON: Final = 0.1
"""Seconds until a task is offered again while there is a worker that has it."""
LATEST: Final = 5.0
"""Seconds until a task is offered again at most."""
FIRST_WAIT: Final = 0.25
QUICK_TRIES: Final = 3
"""Tries of a workflow task for which the server does not raise its timeout."""
MOST_KEPT: Final = 1000
MOST_WARNED: Final = 1000
STARTED: Final = PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED
CAUSE: Final = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE

_read_card: Final = decoder_of(ExecutionMemo).decode


class _Held(Struct, frozen=True):
    """A workflow task that was given to this worker, and whose failure the SDK does not report."""

    workflow_id: str
    run_id: str
    name: str
    queue: str
    attempt: int
    last_event: int
    version: int
    due: float
    """When to report it although no worker is known to have the function, where the server keeps no list of workers."""


class UnknownWork:
    """What was given to one worker and is for others."""

    def __init__(self, client: Client, worker: str) -> None:
        self._client = client
        self._worker = worker
        self._event_loop = asyncio.get_running_loop()
        self._held: dict[str, _Held] = {}
        self._warned: set[tuple[str, str]] = set()
        self._arrived = asyncio.Event()
        self._workers: Sequence[WorkerState] | None = ()
        self._workers_until = 0.0
        self._namespace_id = ""
        self._listing = asyncio.create_task(self._list_workers())
        self._reporting = asyncio.create_task(self._report_all())

    def warn(self, kind: str, name: str, queue: str) -> None:
        """Say once for each function that it is left to others."""
        if (kind, name) not in self._warned and len(self._warned) < MOST_WARNED:
            self._warned.add((kind, name))
            log.warning(
                "%s %r on queue %r is not known to worker %s, which leaves it for a worker that has it",
                kind,
                name,
                queue,
                self._worker,
            )

    def activity(self) -> Callable[..., Any]:
        """The activity that is run for a task that is not known here. The server offers the task again."""

        async def unknown(args: Sequence[RawValue]) -> None:
            info = activity.info()
            self.warn("task", info.activity_type, info.task_queue)
            wait = SOON
            if not self._has(info.activity_type, info.task_queue):
                wait = min(LATEST, FIRST_WAIT * 2.0 ** min(info.attempt - 1, 10))
            raise ApplicationError(
                f"task {info.activity_type!r} is not known to this worker",
                type=UNKNOWN,
                next_retry_delay=timedelta(seconds=wait),
                category=ApplicationErrorCategory.BENIGN,
            )

        return activity.defn(dynamic=True)(unknown)

    def _has(self, name: str, queue: str) -> bool:
        """Is there a worker that has a function, as far as is known? A list that is old is read anew, for next time."""
        if time.monotonic() >= self._workers_until and self._listing.done():
            self._listing = asyncio.create_task(self._list_workers())
            log_failure(self._listing, log, "the list of workers could not be read")
        return any(
            name in (one.functions or ()) and (one.queues == "all" or queue in one.queues.split(","))
            for one in self._workers or ()
        )

    async def _list_workers(self) -> None:
        """Those that live; None: the server keeps no list of them, or does not answer."""
        try:
            self._workers = await workers.workers(self._client)
        except EngineError:
            self._workers = None
        self._workers_until = time.monotonic() + WORKERS_EVERY

    def refuse(self, info: Info, card: ExecutionMemo) -> None:
        """A workflow task is about to be failed. Called by the thread that runs workflow code."""
        asyncio.run_coroutine_threadsafe(self._look(info, card), self._event_loop).result(LOOK_WITHIN)

    async def _look(self, info: Info, card: ExecutionMemo) -> None:
        self.warn(card.kind, card.name, info.task_queue)
        execution = WorkflowExecution(workflow_id=info.workflow_id, run_id=info.run_id)
        ours, service = self._client.namespace, self._client.workflow_service
        found = await service.describe_workflow_execution(
            DescribeWorkflowExecutionRequest(namespace=ours, execution=execution)
        )
        task = found.pending_workflow_task
        if task.attempt <= 1 or task.state != STARTED or len(self._held) >= MOST_KEPT:
            return
        events = (
            await service.get_workflow_execution_history_reverse(
                GetWorkflowExecutionHistoryReverseRequest(namespace=ours, execution=execution, maximum_page_size=1)
            )
        ).history.events
        wait = min(LATEST, FIRST_WAIT * 2.0 ** min(task.attempt, 10))
        self._held[info.run_id] = _Held(
            info.workflow_id,
            info.run_id,
            card.name,
            info.task_queue,
            task.attempt,
            events[0].event_id,
            events[0].version,
            time.monotonic() + wait,
        )
        self._arrived.set()

    async def _report_all(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._held:
                try:
                    await self._report_wanted()
                except (RPCError, EngineError) as error:
                    log.warning("worker %s could not hand back what is not for it: %s", self._worker, error)
                await asyncio.sleep(PAUSE)

    async def _report_wanted(self) -> None:
        for held in list(self._held.values()):
            blind = self._workers is None and time.monotonic() >= held.due
            if self._has(held.name, held.queue) or blind:
                await self._report(held)

    async def _report(self, held: _Held) -> None:
        """Tell the server that a workflow task failed here: it offers it again at once.

        A signal that came meanwhile makes it count the tries anew, so that its timeout does not grow.
        """
        if self._held.get(held.run_id) is held:
            del self._held[held.run_id]
        if held.attempt >= QUICK_TRIES:
            with contextlib.suppress(RPCError):
                await self._client.get_workflow_handle(held.workflow_id, run_id=held.run_id).signal(POKE)
        request = RespondWorkflowTaskFailedRequest(
            namespace=self._client.namespace,
            identity=self._client.identity,
            cause=CAUSE,
            task_token=_task_token(await self._namespace(), held),
        )
        with contextlib.suppress(RPCError):  # its time was over, and others have it now
            await self._client.workflow_service.respond_workflow_task_failed(request)

    async def _namespace(self) -> str:
        if not self._namespace_id:
            found = await self._client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=self._client.namespace)
            )
            self._namespace_id = found.namespace_info.id
        return self._namespace_id

    async def close(self) -> None:
        """Hand back everything: whoever comes next may have the functions."""
        self._reporting.cancel()
        await asyncio.gather(self._reporting, self._listing, return_exceptions=True)
        held = list(self._held.values())
        await asyncio.gather(*(self._report(one) for one in held), return_exceptions=True)


class UnknownRunner(UnsandboxedWorkflowRunner):
    """Runs workflows outside of the sandbox; those of functions that are not here it refuses."""

    def __init__(self, work: UnknownWork) -> None:
        self._work = work

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """See WorkflowRunner."""
        if det.defn.name is not None:
            return super().create_instance(det)
        card = _card_in(det.info)
        if card is not None and card.kind == "task":
            return super().create_instance(det)
        return _Refused(self._work, det.info, card)


def _card_in(info: Info) -> ExecutionMemo | None:
    try:
        data = bytes_of(info.raw_memo[MEMO])
        return None if data is None else _read_card(data)
    except (KeyError, ValueError):
        return None


class _Refused(WorkflowInstance):
    """A workflow whose function is not here."""

    def __init__(self, work: UnknownWork, info: Info, card: ExecutionMemo | None) -> None:
        self._work = work
        self._info = info
        self._card = card

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """See WorkflowInstance."""
        completion = WorkflowActivationCompletion()
        if any(job.HasField("remove_from_cache") for job in act.jobs):
            completion.successful.SetInParent()
            return completion
        if self._card is not None:  # other people's workflows know nothing of our signals
            with contextlib.suppress(Exception):  # the server does not answer: then it waits for its timeout
                self._work.refuse(self._info, self._card)
        kind = "workflow" if self._card is None else self._card.kind
        failure = completion.failed.failure
        failure.message = f"{kind} {self._info.workflow_type!r} is not known to this worker"
        failure.application_failure_info.type = UNKNOWN
        return completion

    def get_serialization_context(self, command_info: Any) -> None:
        """See WorkflowInstance."""
        return

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        """See WorkflowInstance."""
        return StorageDriverStoreContext(target=None)

    def get_info(self) -> Info:
        """See WorkflowInstance."""
        return self._info


def _task_token(namespace_id: str, held: _Held) -> bytes:
    """What the server knows a workflow task by. The SDK keeps it to itself, so it is put together from its parts.

    The server compares every part with what it knows: a token of a task that is over, or is not what it says, changes
    nothing. Should a server make its tokens otherwise, it refuses this one, and the task waits for its timeout.
    """
    return (
        _text(1, namespace_id)
        + _text(2, held.workflow_id)
        + _text(3, held.run_id)
        + _number(4, held.last_event + 1)
        + _number(5, held.attempt)
        + (_number(11, held.version) if held.version > 0 else b"")
    )


def _text(field: int, value: str) -> bytes:
    data = value.encode()
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
