"""Which workers there are: each tells the cluster now and then that it lives."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.enums.v1 import WorkerStatus
from temporalio.api.worker.v1 import PluginInfo, WorkerHeartbeat
from temporalio.api.workflowservice.v1 import ListWorkersRequest, RecordWorkerHeartbeatRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from semel.engine.protocol import WorkerState
from semel.engines.temporal.calls import translate_error
from semel.errors import EngineError

SDK: Final = "semel"
"""How our workers are told from those that the SDK reports."""
FUNCTIONS: Final = "semel:functions"
"""Among the plugins of a worker: it tells which functions it has."""
PREFIX: Final = "semel:function="
MOST_FUNCTIONS: Final = 2000
"""A worker with more of them does not tell their names."""
BEATS: Final = 3
"""Heartbeats within a lease."""
_RUNNING: Final = WorkerStatus.WORKER_STATUS_RUNNING


class Presence:
    """One worker, as the cluster knows of it. Nobody's work depends on it: it is for people to see."""

    def __init__(
        self, client: Client, id: int, name: str, queues: str, lease: timedelta, functions: Mapping[str, str]
    ) -> None:
        self._client = client
        self._lease = lease
        self._beat = WorkerHeartbeat(
            worker_instance_key=str(id),
            worker_identity=name,
            task_queue=queues,
            sdk_name=SDK,
            start_time=_stamp(time.time()),
            plugins=_plugins(functions),
        )
        self._beat.elapsed_since_last_heartbeat.CopyFrom(_duration(lease / BEATS))

    async def tell(self, *, ends: bool = False) -> None:
        """It lives, or it goes. A server that keeps no list of workers is not told."""
        self._beat.status = WorkerStatus.WORKER_STATUS_SHUTDOWN if ends else _RUNNING
        self._beat.heartbeat_time.CopyFrom(_stamp(time.time()))
        request = RecordWorkerHeartbeatRequest(
            namespace=self._client.namespace, identity=self._beat.worker_identity, worker_heartbeat=[self._beat]
        )
        try:
            await self._client.workflow_service.record_worker_heartbeat(request, retry=False)
        except RPCError as error:
            if error.status is not RPCStatusCode.UNIMPLEMENTED:
                raise translate_error(error) from error


async def workers(client: Client) -> list[WorkerState]:
    """Those that have told of themselves within their lease."""
    found: list[WorkerState] = []
    token, now = b"", datetime.now(UTC)
    while True:
        request = ListWorkersRequest(namespace=client.namespace, page_size=100, next_page_token=token)
        try:
            answer = await client.workflow_service.list_workers(request, retry=True)
        except RPCError as error:
            if error.status is RPCStatusCode.UNIMPLEMENTED:
                raise EngineError(
                    "this Temporal server keeps no list of workers: it needs 1.29 or newer. Temporal's own web "
                    "interface shows who polls a queue."
                ) from error
            raise translate_error(error) from error
        beats = [info.worker_heartbeat for info in answer.workers_info]
        states = [_state(beat) for beat in beats if beat.sdk_name == SDK and beat.status == _RUNNING]
        found += [state for state in states if state.expires_at > now]
        token = answer.next_page_token
        if not token:
            return sorted(found, key=lambda state: (state.started_at, state.id))


def _state(beat: WorkerHeartbeat) -> WorkerState:
    lease = beat.elapsed_since_last_heartbeat.ToTimedelta() * BEATS
    return WorkerState(
        int(beat.worker_instance_key),
        beat.worker_identity,
        beat.task_queue,
        beat.start_time.ToDatetime(tzinfo=UTC),
        beat.heartbeat_time.ToDatetime(tzinfo=UTC) + lease,
        _functions(beat),
        _homes(beat),
    )


def _plugins(functions: Mapping[str, str]) -> list[PluginInfo]:
    """Functions and where their code is, as a worker's plugins and their versions; of very many, none."""
    if len(functions) > MOST_FUNCTIONS:
        return []
    return [PluginInfo(name=FUNCTIONS)] + [
        PluginInfo(name=PREFIX + name, version=home) for name, home in sorted(functions.items())
    ]


def _functions(beat: WorkerHeartbeat) -> frozenset[str] | None:
    names = [plugin.name for plugin in beat.plugins]
    if FUNCTIONS not in names:
        return None
    return frozenset(name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX))


def _homes(beat: WorkerHeartbeat) -> dict[str, str]:
    ours = [plugin for plugin in beat.plugins if plugin.name.startswith(PREFIX) and plugin.version]
    return {plugin.name.removeprefix(PREFIX): plugin.version for plugin in ours}


def _stamp(at: float) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(datetime.fromtimestamp(at, UTC))
    return stamp


def _duration(span: timedelta) -> Duration:
    duration = Duration()
    duration.FromTimedelta(span)
    return duration
