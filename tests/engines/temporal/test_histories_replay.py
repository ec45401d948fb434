"""Histories that clusters hold replay with today's code; changed code is found out, also by its inputs alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory

import semel
from semel.engine.protocol import Replayed
from semel.engines.temporal.replay import replay
from tests.engines.temporal import bakery
from tests.engines.temporal.record import HISTORIES, KEPT, OLDER

ALL = KEPT | OLDER


async def replayed(app: semel.App, name: str) -> Replayed:
    path = HISTORIES / f"{name}.json"
    history = WorkflowHistory.from_json(ALL[name], await asyncio.to_thread(path.read_text))
    return (await replay(history, app.tasks, app.settings, "bakery")).told


@pytest.mark.parametrize("name", ALL)
async def test_what_is_recorded_replays(name: str) -> None:
    again = await replayed(bakery.app, name)
    assert again.ok, again


def test_nothing_of_the_machine_is_in_them() -> None:
    files = sorted(HISTORIES.glob("*.json"))
    assert {file.stem for file in files} == set(ALL)
    for path in files:
        assert path.stat().st_size < 60_000
        assert str(Path.home()) not in path.read_text()


def changed(**changes: Any) -> semel.App:
    """The bakery with something else in it."""
    app = semel.App("temporal://127.0.0.1:7233", config=None)

    @app.task(name="bake", retry=2)
    async def bake(what: str, minutes: int = 1) -> str: ...

    @app.task(name="fry", retry=2)
    async def fry(what: str, minutes: int = 1) -> str: ...

    @app.workflow(name="icing")
    async def icing(ctx: semel.Context, colour: str) -> str: ...

    @app.workflow(name="cake")
    async def cake(ctx: semel.Context, name: str) -> list[str]:
        ctx.publish("stage", "flour")
        grams = await ctx.step(bakery.weigh, changes.get("weighed", "flour"), 500)
        base = await ctx.execute_task(fry if changes.get("fries") else bake, name, grams + changes.get("more", 0))
        await ctx.sleep(changes.get("rest", "100ms"))
        ctx.search_attributes["name"] = name
        shared = await ctx.execute_task(bake, "soufflé", changes.get("minutes", 1), task_id=f"soufflé-{name}")
        top = await ctx.start_workflow(icing, changes.get("colour", "pink"), workflow_id=f"{name}-icing")
        await top.signal("stir", changes.get("stirred", 3))
        if ctx.patched("cherries") and changes.get("reversed"):
            await asyncio.gather(ctx.execute_task(bake, "cherries"), ctx.step(bakery.weigh, "cherries", 20))
        else:
            await asyncio.gather(ctx.step(bakery.weigh, "cherries", 20), ctx.execute_task(bake, "cherries"))
        return [base, shared, await top.result(), await ctx.wait_signal("eaten", timeout="1h")]

    return app


@pytest.mark.parametrize(
    ("change", "says", "does"),
    [
        ({"fries": True}, "task 'bake'", "task 'fry'"),
        ({"more": 1}, "task 'bake'", "task 'bake'"),
        ({"weighed": "sugar"}, "step 'weigh'", "step 'weigh'"),
        ({"rest": "1h"}, "timer", "timer"),
        ({"minutes": 2}, "task 'bake'", "task 'bake'"),
        ({"colour": "blue"}, "workflow 'icing'", "workflow 'icing'"),
        ({"stirred": 4}, "signal 'stir'", "signal 'stir'"),
        ({"reversed": True}, "step 'weigh'", "task 'bake'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_changed_code_is_told(change: dict[str, Any], says: str, does: str) -> None:
    again = await replayed(changed(**change), "cake")
    assert says in again.expected, again
    assert does in again.found, again
    assert "cannot go on" in again.error
