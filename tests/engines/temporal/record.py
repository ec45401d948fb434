"""Makes the histories of `bakery` anew: python -m tests.engines.temporal.record

Only when the bakery itself has changed, or before 1.0 the way in which Semel runs on Temporal: what is in there is what
clusters hold, and code that cannot replay it would park the workflows of everyone who updates.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import socket
import tempfile
from pathlib import Path
from typing import Any

from temporalio.client import Client

import semel
from semel.testing.temporal_server import TemporalServer, temporal_server
from tests.engines.temporal import bakery
from tests.world import waits

HISTORIES = Path(__file__).parent / "histories"
KEPT = {
    "dough": "dough",
    "cake": "cake", "icing": "tart-icing", "batch": "batch", "burnt": "burnt", "bake": "task:soufflé-tart",
    "oven": "entity:Oven/main",
}  # fmt: skip
"""Ids by the name of the file."""
OLDER = {"dough-before": "dough"}
"""Histories that older code made and that are never made anew: this one let a timer beat the signal before it."""


async def record(server: TemporalServer) -> None:
    """Run all of it, and write down what the server has."""
    app = semel.App(server.url("bakery"), config=None, auto_migrate=True)
    app.tasks = bakery.app.tasks
    async with app:
        await prove_dough(app)
    async with app, app.worker():
        cake = await app.start_workflow(bakery.cake, "tart", workflow_id="cake")
        await cake.signal("eaten", "yes")
        await cake.result(timeout="30s")
        batch = await app.start_workflow(bakery.batch, 1, workflow_id="batch")
        await batch.result(timeout="30s")
        burnt = await app.start_workflow(bakery.burnt, workflow_id="burnt")
        await asyncio.gather(burnt.result(timeout="30s"), return_exceptions=True)
        oven = app.entity(bakery.Oven, "main")
        for loaves in (2, 3):
            await oven.ask("put", loaves, timeout="30s")
        client = await Client.connect(server.address, namespace="bakery")
        for name, id_ in KEPT.items():
            history = await client.get_workflow_handle(id_).fetch_history()
            plain = anonymous(json.loads(history.to_json()))
            (HISTORIES / f"{name}.json").write_text(json.dumps(plain, indent=1) + "\n")


async def prove_dough(app: semel.App) -> None:
    """A signal in time, and a worker that comes back when the timer has gone off too."""
    async with app.worker():
        dough = await app.start_workflow(bakery.dough, workflow_id="dough")
        await waits(dough)
    await dough.signal("knead", "well")
    await asyncio.sleep(3)
    async with app.worker():
        await dough.result(timeout="30s")


def anonymous(value: Any) -> Any:
    """Without what tells of the machine it was made on: its name, and where its files are."""
    match value:
        case dict():
            return {key: "" if key == "stackTrace" else _data(one) if key == "data" else anonymous(one)
                    for key, one in value.items()}  # fmt: skip
        case list():
            return [anonymous(one) for one in value]
        case str():
            return value.replace(f"{os.getpid()}@{socket.gethostname()}", "1@bakery")
        case _:
            return value


def _data(encoded: Any) -> Any:
    if not isinstance(encoded, str):
        return anonymous(encoded)
    data = re.sub(rb'"traceback":"(\\.|[^"\\])*"', b'"traceback":""', base64.b64decode(encoded))
    return base64.b64encode(data).decode()


def main() -> None:
    """All of them."""
    with tempfile.TemporaryDirectory() as folder, temporal_server(Path(folder)) as server:
        asyncio.run(record(server))


if __name__ == "__main__":
    main()
