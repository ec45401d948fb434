"""Workflows as people have them who have used Temporal before Semel, and a worker of theirs."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from semel.contract import DedupWindow

QUEUE = "their-queue"


@dataclass
class Tenant:
    name: str
    plan: str = "free"


@activity.defn
async def make_schema(name: str) -> str:
    if name == "bad":
        raise ApplicationError("there is such a schema", type="SchemaExists", non_retryable=True)
    return f"schema_{name}"


@workflow.defn
class TenantProvisioningWorkflow:
    def __init__(self) -> None:
        self.approved: list[Any] = []
        self.closed = False

    @workflow.run
    async def run(self, tenant: Tenant, seats: int = 1, waits: bool = False) -> dict[str, Any]:
        if tenant.plan not in ("free", "gold"):
            raise ValueError(f"there is no plan {tenant.plan!r}")  # to Temporal no end: it is stuck
        schema = await workflow.execute_activity(
            make_schema,
            tenant.name,
            start_to_close_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )
        if waits:
            await workflow.wait_condition(lambda: self.closed)
        return {"schema": schema, "plan": tenant.plan, "seats": seats, "approved": self.approved}

    @workflow.signal
    def approve(self, by: dict[str, str]) -> None:
        self.approved.append(by["who"])

    @workflow.signal
    def close(self) -> None:
        self.closed = True


@workflow.defn
class RewardsWorkflow:
    """Messages come more than once; a window remembers their keys, also through continue-as-new."""

    @workflow.init
    def __init__(self, points: int = 0, seen: dict[str, Any] | None = None) -> None:
        self.points = points
        self.seen = DedupWindow("3d") if seen is None else DedupWindow.from_json(seen)
        self.turned = False
        self.ended = False

    @workflow.run
    async def run(self, points: int = 0, seen: dict[str, Any] | None = None) -> dict[str, int]:
        await workflow.wait_condition(lambda: self.turned or self.ended)
        if self.turned:
            workflow.continue_as_new(args=[self.points, self.seen.to_json()])
        return {"points": self.points, "duplicates": self.seen.hits}

    @workflow.signal
    def add_points(self, message: dict[str, Any]) -> None:
        if self.seen.push(message["key"], workflow.now()):
            self.points += message["points"]

    @workflow.signal
    def turn(self) -> None:
        self.turned = True

    @workflow.signal
    def end(self) -> None:
        self.ended = True


@asynccontextmanager
async def their_worker(client: Client, **options: Any) -> AsyncIterator[None]:
    """A worker that knows nothing of Semel."""
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=[TenantProvisioningWorkflow, RewardsWorkflow],
        activities=[make_schema],
        identity=f"theirs-{uuid.uuid4()}",
        **options,
    ):
        yield
