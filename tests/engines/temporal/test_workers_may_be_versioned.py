"""A worker of a deployment serves once its version is made the current one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.deployment.v1 import WorkerDeploymentInfo
from temporalio.api.workflowservice.v1 import (
    DescribeWorkerDeploymentRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError

import semel
from semel.testing.temporal_server import TemporalServer
from semel.testing.temporal_server import temporal_server as run_server
from tests.temporal_world import TemporalWorld
from tests.world import SOON, eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    """A server whose namespaces have workers of its own: deployments are workflows of theirs."""
    with run_server(tmp_path_factory.mktemp("versioned")) as server:
        yield server


def shop(cluster: TemporalWorld, folder: Path, build: str, versioning: str = "auto_upgrade") -> tuple[semel.App, Any]:
    path = folder / f"{build}.toml"
    path.write_text(
        f'[temporal]\ndeployment = "shop"\nbuild_id = "{build}"\nversioning = "{versioning}"\n', encoding="utf-8"
    )
    app = cluster.app(config=path)

    @app.task
    async def charge(order: str) -> str:
        return f"{order} by {build}"

    @app.workflow
    async def process(ctx: semel.Context, order: str) -> str:
        await ctx.wait_signal("go")
        return await ctx.execute_task(charge, order)

    return app, process


async def make_current(client: Client, build: str) -> None:
    """As `temporal worker deployment set-current-version` does."""

    async def deployment() -> WorkerDeploymentInfo:
        request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name="shop")
        try:
            return (await client.workflow_service.describe_worker_deployment(request)).worker_deployment_info
        except RPCError:
            return WorkerDeploymentInfo()

    async def known() -> bool:
        return build in {one.deployment_version.build_id for one in (await deployment()).version_summaries}

    await eventually(known)
    await client.workflow_service.set_worker_deployment_current_version(
        SetWorkerDeploymentCurrentVersionRequest(
            namespace=client.namespace, deployment_name="shop", build_id=build, ignore_missing_task_queues=True
        ),
        timeout=timedelta(seconds=20),
    )


async def build_of(client: Client, id: str) -> str:
    described = await client.get_workflow_handle(id).describe()
    return described.raw_description.workflow_execution_info.versioning_info.deployment_version.build_id


@pytest.mark.parametrize(("versioning", "build"), [("auto_upgrade", "two"), ("pinned", "one")])
async def test_the_current_version_serves(cluster: TemporalWorld, tmp_path: Path, versioning: str, build: str) -> None:
    """What waits moves on with the deployment, or stays with the build that it began on."""
    client = await cluster.client()
    one, process = shop(cluster, tmp_path, "one", versioning)
    two, _ = shop(cluster, tmp_path, "two", versioning)

    async def begins_on(build: str) -> str | None:
        """The build that a new one begins on: queues hear of a new current version one after the other."""
        probe = await one.start_workflow(process, "o-1", workflow_id=f"probe-{time.monotonic_ns()}")

        async def begun() -> bool:
            return await build_of(client, probe.key or "") != ""

        await eventually(begun)
        return probe.key if await build_of(client, probe.key or "") == build else None

    async with one.worker():
        await make_current(client, "one")
        old: str = await eventually(lambda: begins_on("one"))
        async with two.worker():
            await make_current(client, "two")
            await eventually(lambda: begins_on("two"))
            handle = await one.find(old, kind="workflow")
            assert handle is not None

            async def moved() -> bool:
                await handle.signal("tick")
                return await build_of(client, old) == build

            await eventually(moved)
            await handle.signal("go")
            assert (await handle.result(timeout=SOON)).startswith("o-1 by ")
            assert await build_of(client, old) == build


async def test_half_a_version_is_refused(cluster: TemporalWorld, tmp_path: Path) -> None:
    path = tmp_path / "half.toml"
    path.write_text('[temporal]\nbuild_id = "1"\n', encoding="utf-8")
    app = cluster.app(config=path)
    with pytest.raises(semel.ConfigError, match="deployment is missing"):
        async with app.worker():
            pass
