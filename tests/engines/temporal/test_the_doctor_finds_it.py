"""`semel doctor` on a Temporal server: what is well, what is not, and why a workflow does not get on."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from semel.engine.protocol import Finding
from semel.engines.temporal import doctor, stuck_workflows
from semel.engines.temporal.connect import Target, connect
from semel.engines.temporal.doctor import examine
from semel.engines.temporal.namespace import migrate
from semel.testing.temporal_server import TemporalServer
from tests.world import eventually

_numbers = itertools.count(1)
MONTH = timedelta(days=30)


@workflow.defn(sandboxed=False)
class Broken:
    """Its code is wrong: Temporal tries it for ever."""

    @workflow.run
    async def run(self) -> None:
        raise ValueError("the price is missing")


@workflow.defn(sandboxed=False)
class Patient:
    @workflow.run
    async def run(self) -> None:
        await workflow.sleep(3600)


async def ready(server: TemporalServer) -> Client:
    client = await connect(Target(server.address, f"doctor-{next(_numbers)}"))
    await migrate(client, MONTH)
    return client


@asynccontextmanager
async def serving(client: Client, queue: str) -> AsyncIterator[None]:
    async with Worker(client, task_queue=queue, workflows=[Broken, Patient]):
        yield


def named(findings: list[Finding], what: str) -> Finding:
    (one,) = [finding for finding in findings if finding.what == what]
    return one


async def test_all_is_well(temporal_server: TemporalServer) -> None:
    client = await ready(temporal_server)
    findings = await examine(client, MONTH, time.time)
    assert [finding for finding in findings if not finding.ok] == []
    assert "1.32" in named(findings, "server").detail
    assert named(findings, "namespace").detail == f"{client.namespace} keeps for 30d, 30d needed"
    assert named(findings, "search attribute").detail == (
        "SemelAttributes (KeywordList), SemelScheduledFor (Datetime), scope (Keyword), incidentKey (Keyword)"
    )
    assert re.fullmatch(r"this machine is [01]\.\d s off the server's clock", named(findings, "clock").detail)
    assert named(findings, "workflows").detail == "none stuck of 0 that run"


async def test_what_is_missing_or_too_short_is_named(temporal_server: TemporalServer) -> None:
    client = await connect(Target(temporal_server.address, "doctor-none"))
    assert named(await examine(client, MONTH, time.time), "namespace").detail.endswith("run semel migrate")
    client = await ready(temporal_server)
    short = named(await examine(client, timedelta(days=90), time.time), "namespace")
    assert not short.ok
    assert short.detail.startswith(f"{client.namespace} keeps for 30d, 90d needed: run semel migrate")


@pytest.mark.parametrize("ahead", [-60.0, 60.0])
async def test_a_clock_that_is_wrong_is_told(temporal_server: TemporalServer, ahead: float) -> None:
    client = await ready(temporal_server)
    clock = named(await examine(client, MONTH, lambda: time.time() + ahead), "clock")
    assert not clock.ok
    assert re.match(r"this machine is (59|60|61)\.\d s off", clock.detail)


async def test_an_old_server_is_told(temporal_server: TemporalServer) -> None:
    assert not doctor._version("1.20.3").ok
    assert doctor._version("1.24.0").ok
    assert doctor._version("some build").ok


async def test_a_stuck_workflow_is_found_with_the_reason(temporal_server: TemporalServer) -> None:
    client = await ready(temporal_server)
    async with serving(client, "q"):
        await client.start_workflow(Patient.run, id="waits", task_queue="q")
        await client.start_workflow(Broken.run, id="order-1", task_queue="q")
        findings = await until_found(client)
    found = named(findings, "stuck workflow")
    assert not found.ok
    assert found.detail.startswith("order-1 (Broken), try ")
    assert found.detail.endswith("workflow worker unhandled failure: ValueError: the price is missing")
    assert named(findings, "workflows") == Finding(False, "workflows", "1 stuck of 2 that run")
    assert named(findings, "queue q").detail == "1 ask for workflow tasks, 0 for activities; 0 waiting"


async def test_one_that_the_server_reports_is_found_among_many(
    temporal_server: TemporalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck_workflows, "MOST_SEEN", 1)
    client = await ready(temporal_server)
    async with serving(client, "q"):
        await client.start_workflow(Broken.run, id="order-1", task_queue="q")
        await client.start_workflow(Patient.run, id="newer", task_queue="q")
        await client.start_workflow(Patient.run, id="newest", task_queue="q")
        findings = await until_found(client, "3 that run, of which 2 were looked at")
    assert named(findings, "stuck workflow").detail.startswith("order-1 (Broken)")


async def until_found(client: Client, words: str = "2 that run") -> list[Finding]:
    """Visibility and retries take a moment."""

    async def found() -> list[Finding] | None:
        findings = await examine(client, MONTH, time.time)
        there = any(f.what == "stuck workflow" for f in findings) and words in findings[-1].detail
        return findings if there else None

    findings: list[Finding] = await eventually(found)
    return findings


async def test_a_queue_that_nobody_serves_is_told(temporal_server: TemporalServer) -> None:
    client = await ready(temporal_server)
    await client.start_workflow(Patient.run, id="alone", task_queue="deserted")

    async def told() -> list[Finding]:
        return [f for f in await examine(client, MONTH, time.time) if f.what == "queue deserted"]

    found = await eventually(told)
    assert not found[0].ok
    assert found[0].detail.endswith("start a worker for it")
    declared = await examine(client, MONTH, time.time, queues=["mail"])
    assert named(declared, "queue mail").ok
