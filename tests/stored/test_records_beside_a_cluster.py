"""Keys in a records database of an earlier release still stand, beside a cluster that has forgotten their runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import semel
from semel.testing.temporal_server import TemporalServer
from tests.stored import record, shop
from tests.stored.kept import Kept, restored_sqlite


async def test_a_key_outlives_its_release(kept: Kept, temporal_server: TemporalServer, tmp_path: Path) -> None:
    ahead = kept.ahead("temporal")
    app = semel.App(
        temporal_server.url(record.NAMESPACE), config=None, auto_migrate=True, clock=lambda: time.time() + ahead,
        records=f"sqlite:///{restored_sqlite(kept, tmp_path, 'records')}",
    )  # fmt: skip
    app.tasks = shop.app.tasks
    async with app:
        again = await app.enqueue(shop.invoice, "o-1", task_id="invoice:o-1")
        assert again.duplicate
        assert await again.result(timeout="60s") == "invoice o-1"
        with pytest.raises(semel.KeyConflict):
            await app.enqueue(shop.invoice, "o-2", task_id="invoice:o-1")
        told = await app.explain("invoice:o-1")
        assert [(e.status, e.name) for e in told.executions] == [("completed", "invoice")]
