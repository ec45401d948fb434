"""Wakes workflows that asked for it, and those whose code could not go on when it was last tried."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from temporalio.client import Client
from temporalio.service import RPCError

from semel.engine.failure_log import log_failure
from semel.engines.temporal import parking
from semel.engines.temporal.parking import POKE

log = logging.getLogger("semel.temporal")


class Waker:
    """Of one worker."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._errands: set[asyncio.Task[None]] = set()
        parking.serve(client.namespace, self._poke)

    def _poke(self, id: str, run: str) -> None:
        self._loop.call_soon_threadsafe(self._send, id, run)

    def _send(self, id: str, run: str) -> None:
        task = asyncio.create_task(self._wake(id, run))
        log_failure(task, log, f"workflow {id} could not be woken")
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _wake(self, id: str, run: str) -> None:
        with contextlib.suppress(RPCError):
            await self._client.get_workflow_handle(id, run_id=run).signal(POKE)

    async def close(self) -> None:
        """Wait for what is under way."""
        parking.leave(self._client.namespace, self._poke)
        if self._errands:
            await asyncio.wait(list(self._errands))
