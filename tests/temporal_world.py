"""The same world on a real Temporal server: a namespace for each test, and a timeline by which its times are read."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio.api.workflowservice.v1 import CountWorkflowExecutionsRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

import semel
from semel.contract.durations import Duration, parse_duration
from semel.contract.times import micros
from semel.engines.temporal.cluster_time import read_times_with
from semel.engines.temporal.entity_history import keys_in
from semel.engines.temporal.executions import Reader
from semel.engines.temporal.namespace import migrate
from semel.engines.temporal.parking import POKE
from tests.world import SOON, World, eventually

SEEN_WITHIN = 0.15
"""The server's list of workflows lags behind by some milliseconds."""
MOST_COMPARED = 30
"""So many executions are compared with what the list says of them."""


class TemporalWorld(World):
    """A namespace of its own. What a test looks for in tables is not there: such tests are about journals."""

    a_moment = 1.0

    def __init__(self, url: str, namespace: str, records: str) -> None:
        super().__init__("temporal", url)
        self.namespace = namespace
        self.records = records
        self._namespaces: set[str] = set()
        """Those of apps that have one of their own."""
        self._client: Client | None = None
        self._moves: list[tuple[int, int]] = []
        """When time was moved, by the cluster's clock, and by how much: in microseconds."""
        read_times_with(self._read_time)

    def _read_time(self, at: int) -> int:
        """A time that the cluster tells, as it is in this world: the same whenever it is asked for, as replay needs."""
        return at + sum(by for since, by in self._moves if since <= at)

    def _move(self, by: timedelta) -> None:
        self._moves.append((time.time_ns() // 1000, micros(by)))
        self._skew += by.total_seconds()

    def app_options(self, **options: Any) -> dict[str, Any]:
        """See World. A namespace of an app is a namespace of the cluster, which other tests use, too."""
        options = {"auto_migrate": True, "records": self.records, **super().app_options(**options)}
        if "namespace" in options:
            options["namespace"] = f"{self.namespace}-{options['namespace']}"
            self._namespaces.add(options["namespace"])
        return options

    @asynccontextmanager
    async def worker(self, app: semel.App, **options: Any) -> AsyncIterator[Any]:
        """See World."""
        async with app.worker(**options) as worker:
            self._workers.append(worker)  # type: ignore[arg-type]
            yield worker

    async def advance(self, span: Duration) -> None:
        """Move the clocks of clients, and of every workflow that is open."""
        self._move(parse_duration(span))
        await self.listed()
        service = (await self.client()).service_client
        for namespace in (self.namespace, *self._namespaces):
            await self._poke(Client(service, namespace=namespace))
        self.look_at_schedules()

    async def _poke(self, client: Client) -> None:
        """Have whatever waits for a time look at the clock again."""
        with contextlib.suppress(RPCError):  # an app that has not been used has made no namespace
            async for one in client.list_workflows("ExecutionStatus = 'Running'"):
                with contextlib.suppress(RPCError):
                    await client.get_workflow_handle(one.id, run_id=one.run_id).signal(POKE)

    async def listed(self) -> None:
        """See World. A cluster's lists lag behind by some milliseconds, and by more while much is written."""
        before, end = -1, time.monotonic() + SOON
        while before != (now := await self._counted("")) or not await self._lists_agree():
            assert time.monotonic() < end, "the lists of the cluster still differ from its executions"
            before = now
            await asyncio.sleep(SEEN_WITHIN)

    async def _lists_agree(self) -> bool:
        """Are the newest executions of the list still there, and do they run or not, as it says?"""
        client = await self.client()
        async for one in client.list_workflows(limit=MOST_COMPARED):
            try:
                found = await client.get_workflow_handle(one.id, run_id=one.run_id).describe()
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                return False
            if found.status is not one.status:
                return False
        return True

    async def clean(self, app: semel.App) -> None:
        """See World. What has ended is cleaned once the list says so, and what was cleaned leaves the list later."""
        await self.listed()
        await app.clean()
        await self.listed()

    async def turn_back(self, span: Duration) -> None:
        """See World."""
        self._move(-parse_duration(span))

    async def count(self, table: str = "semel_execution") -> int:
        """How many executions there are."""
        if not table.startswith("semel_"):
            return int((await self.sql(f"select count(*) from {table}"))[0][0])
        if table != "semel_execution":
            raise LookupError(f"a cluster has no table {table}: mark the test with `journal`")
        return await self._count("ExecutionStatus != 'ContinuedAsNew'")

    async def work(self) -> int:
        """See World."""
        return await self._count("ExecutionStatus = 'Running'")

    async def traces(self) -> int:
        """See World."""
        return await self.count()

    async def _count(self, query: str) -> int:
        await self.listed()
        return await self._counted(query)

    async def _counted(self, query: str) -> int:
        client = await self.client()
        request = CountWorkflowExecutionsRequest(namespace=client.namespace, query=query)
        return (await client.workflow_service.count_workflow_executions(request)).count

    async def kept_keys(self) -> int:
        """See World."""
        await self.listed()
        client = await self.client()
        kept = 0
        reader = Reader(client, timedelta(days=30))
        async for one in client.list_workflows("ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH 'entity:'"):
            kept += len((await keys_in(reader, one.id, one.run_id))[0].rows)
        return kept

    async def at_rest(self) -> bool:
        """See World."""
        client = await self.client()
        async for one in client.list_workflows("ExecutionStatus = 'Running'"):
            found = (await client.get_workflow_handle(one.id).describe()).raw_description
            if found.pending_activities or found.HasField("pending_workflow_task"):
                return False
        return True

    async def left(self) -> int:
        """See World."""
        return await self.work()

    async def parts(self) -> int:
        """See World. A history goes with its execution."""
        return 0

    async def sql(self, text: str, *args: Any) -> list[tuple[Any, ...]]:
        """Look at the database beside the cluster: a workflow's transactions write there."""
        return await World("sqlite", self.records).sql(text, *args)

    async def cut_off(self, worker: Any) -> None:
        """See World."""
        raise LookupError("a cluster has no leases: mark the test with `journal`")

    async def takes_no_more(self, worker: Any) -> None:
        """See World. A poll that is under way may still bring a task, which is given back."""
        await eventually(lambda: all(poller.slots.closed for poller in worker._polled.values()))

    async def close(self) -> None:
        """See World."""
        await super().close()
        read_times_with(None)

    async def client(self) -> Client:
        """A client of the SDK, to look from outside."""
        if self._client is None:
            address = self.url.removeprefix("temporal://").partition("/")[0]
            self._client = await Client.connect(address, namespace=self.namespace)
            await migrate(self._client, timedelta(days=30))
        return self._client
