"""Keys of an earlier release still stand for what they stood for: duplicates share its results and run nothing."""

from __future__ import annotations

from typing import Any

import pytest

import semel
from tests.stored import shop
from tests.stored.kept import RestoredWorld
from tests.stored.story import BOX, found
from tests.world import eventually


async def test_duplicates_of_tasks_share_what_was_stored(world: RestoredWorld) -> None:
    app = world.program()
    again = await app.enqueue(shop.charge, "o-1", task_id="charge:o-1")
    assert again.duplicate
    assert await again.result(timeout="5s") == {"order": "o-1", "cents": 100}
    with pytest.raises(semel.TaskAlreadyCompleted):
        await app.enqueue(shop.charge, "o-1", task_id="charge:o-1", on_duplicate="raise")
    with pytest.raises(semel.KeyConflict) as conflict:
        await app.enqueue(shop.charge, "o-1", 300, task_id="charge:o-1")
    assert conflict.value.differences == {"cents": (100, 300)}
    with pytest.raises(semel.TaskAlreadyExists):
        await app.enqueue(shop.call_carrier, "o-1", task_id="call:o-1", on_duplicate="raise")
    assert (await app.enqueue(shop.pick, "o-1", task_id="pick:o-1")).duplicate
    assert await (await app.enqueue(shop.measure, BOX, task_id="measure:done")).result(timeout="5s") == [BOX]
    assert await counts(app, "charge:o-1") == {"replayed": 3, "input_differs": 3}
    await world.advance("2h")
    await app.clean()
    shred = await app.enqueue(shop.shred, "o-1", task_id="shred:o-1")
    with pytest.raises(semel.ResultExpired):
        await shred.result(timeout="5s")
    assert shop.RAN == []


async def counts(app: semel.App, key: str, kind: str = "task") -> dict[str, int]:
    """Duplicates that did not run, by reason."""
    return {str(one.reason): one.count for one in (await app.explain(key, kind=kind)).suppressed}


async def test_duplicates_of_workflows_share_what_was_stored(world: RestoredWorld) -> None:
    app = world.program()
    again = await app.start_workflow(shop.process, "done", workflow_id="process:done")
    assert again.duplicate
    dice = await again.published("dice")
    assert await again.result(timeout="5s") == {
        "did": ["pack done", 900, "note of done", "ship done"], "approved": True, "dice": dice,
    }  # fmt: skip
    with pytest.raises(semel.KeyConflict):
        await app.start_workflow(shop.process, "other", workflow_id="process:done")
    assert (await app.start_workflow(shop.family, workflow_id="family")).duplicate
    shared = await app.enqueue(shop.charge, "waits", 900, task_id="payment:waits")
    assert (shared.duplicate, await shared.result(timeout="5s")) == (True, {"order": "waits", "cents": 900})


async def test_what_failed_frees_its_key_and_can_be_redriven(world: RestoredWorld) -> None:
    app = world.program()
    shop.MENDED.add("decline")
    with pytest.raises(semel.ExecutionFailed, match="ValueError: declined o-1") as error:
        await (await found(app, "decline:o-1")).result(timeout="5s")
    assert "raise ValueError" in error.value.traceback
    with pytest.raises(semel.ExecutionTimedOut):
        await (await found(app, "dawdle")).result(timeout="5s")
    with pytest.raises(semel.ExecutionCancelled):
        await (await found(app, "note:cancelled")).result(timeout="5s")
    with pytest.raises(semel.ExecutionFailed, match="too much for o-1"):
        await (await found(app, "ask:o-1")).result(timeout="5s")
    with pytest.raises(semel.ExecutionFailed, match="too much for a workflow"):
        await (await found(app, "refused", "workflow")).result(timeout="5s")
    async with world.worker(app, queues=["default"]):
        fresh = await app.enqueue(shop.decline, "o-1", task_id="decline:o-1")
        assert (fresh.duplicate, await fresh.result(timeout="60s")) == (False, "accept o-1")
        redriven = await app.redrive((await found(app, "decline:again")).id)
        assert await redriven.result(timeout="60s") == "accept o-1"
        third = await app.enqueue(shop.charge, "o-2", task_id="charge:twice", reuse="always")
        await third.result(timeout="60s")
    assert (await third.describe()).generation == 2
    assert len((await app.explain("decline:again")).executions) == 3


async def test_messages_of_entities_are_still_known(world: RestoredWorld) -> None:
    app = world.program()
    rest, closed = app.entity(shop.Account, "rest"), app.entity(shop.Account, "closed")
    assert await rest.query("balance") == {"cents": 101, "lines": ["salary", ""]}
    assert [(one.handler, one.dedup_key, one.arguments) for one in await rest.failed()] == [
        ("order", "o1", {}), ("spend", "s1", {"cents": 500}),
    ]  # fmt: skip
    shop.MENDED.add("spend")
    async with world.worker(app, queues=["default"]):
        assert await rest.ask("add", 100, "salary", dedup_key="k1", timeout="60s") == 100, "the answer of then"
        with pytest.raises(semel.KeyConflict):
            await rest.ask("add", 8, dedup_key="k1", timeout="60s")
        (spent,) = await rest.redrive(next(one.number for one in await rest.failed() if one.handler == "spend"))
        assert spent.arguments == {"cents": 500}
        await eventually(lambda: balance_is(rest, -399))
        assert await closed.ask("add", 5, dedup_key="c1", timeout="60s") == 5, "its keys outlive its end"
        assert await closed.ask("add", 2, timeout="60s") == 2, "its state does not"
    assert shop.RAN == ["add 2 to closed"]
    assert await counts(app, rest.key, "entity") == {"seen": 2, "message_differs": 2}


async def balance_is(ref: Any, cents: int) -> bool:
    return bool((await ref.query("balance"))["cents"] == cents)
