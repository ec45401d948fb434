"""Prometheus can read the metrics of the SDK from every process that has an address for them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.request import urlopen

import pytest

import semel
from semel.testing.temporal_server import free_port
from tests.temporal_world import TemporalWorld
from tests.world import SOON, eventually

pytestmark = pytest.mark.slow


def configured(folder: Path, address: str) -> Path:
    path = folder / "semel-metrics.toml"
    path.write_text(f'[temporal]\nmetrics = "{address}"\n', encoding="utf-8")
    return path


async def test_they_are_read_over_http(cluster: TemporalWorld, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    app = cluster.app(config=configured(tmp_path, address))

    @app.task
    async def charge() -> str:
        return "done"

    def read() -> str:
        with urlopen(f"http://{address}/metrics", timeout=60) as page:
            return page.read().decode()

    async with app.worker():
        assert await (await app.enqueue(charge, task_id="t")).result(timeout=SOON) == "done"

        async def shown() -> bool:
            text = await asyncio.to_thread(read)
            return "temporal_request" in text and "temporal_workflow_completed" in text

        await eventually(shown)
    other = cluster.app(config=configured(tmp_path, address))
    assert await other.find("t") is not None  # the same process, and so the same runtime
    assert f'namespace="{cluster.namespace}"' in await asyncio.to_thread(read)


async def test_a_taken_address_is_told(cluster: TemporalWorld, tmp_path: Path) -> None:
    with pytest.raises(semel.ConfigError, match=r"temporal\.metrics="):
        await cluster.app(config=configured(tmp_path, cluster.url.split("/")[2])).list()
