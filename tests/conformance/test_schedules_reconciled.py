"""`reconcile` finds what declarations, records and runs do not agree on, and repairs it only when it is told to."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import semel
from semel.contract.reconciliation import Difference
from tests.conformance.test_schedules import HOUR, Shop, first_slot
from tests.world import World, eventually


def words(found: Any) -> list[str]:
    return [f"{one.kind} {one.schedule}{' fixed' if one.fixed else ''}" for one in found]


async def found_at_last(app: semel.App, expected: list[str], **options: Any) -> list[Difference]:
    """What it finds once a cluster's list shows everything."""
    found: Any = None

    async def there() -> bool:
        nonlocal found
        found = await app.schedules.reconcile(**options)
        return words(found) == expected

    await eventually(there)
    return list(found)


def declare(world: World, *ids: str, every: str = "1h") -> semel.App:
    app = world.app()
    for id_ in ids:

        @app.on_schedule(id=id_, every=every, start_at=first_slot(world))
        @app.task(name=id_)
        async def tidy() -> None: ...

    return app


async def test_declarations_and_records_are_compared(world: World, caplog: pytest.LogCaptureFixture) -> None:
    old = declare(world, "a", "b", "c")
    await old.apply()
    assert await old.schedules.reconcile() == []
    begin = first_slot(world)
    new = world.app()

    @new.on_schedule(id="b", every="2h", start_at=begin)
    @new.task(name="b")
    async def changed() -> None: ...

    @new.on_schedule(id="d", every="2h", start_at=begin)
    @new.task(name="d")
    async def fresh() -> None: ...

    await new.schedules.put("mine", fresh, every="3h")
    expected = ["drifted b", "missing d", "orphaned a", "orphaned c"]
    assert words(await new.schedules.reconcile()) == expected
    assert words(await new.schedules.reconcile()) == expected, "nothing is changed"
    with caplog.at_level(logging.WARNING, "semel.schedules"):
        fixed = words(await new.schedules.reconcile(fix=True))
    assert fixed == ["drifted b fixed", "missing d fixed", "orphaned a", "orphaned c"]
    assert "reconcile: schedule d was missing: create" in caplog.text
    assert words(await new.schedules.reconcile()) == ["orphaned a", "orphaned c"]
    pruned = words(await new.schedules.reconcile(fix=True, prune=True))
    assert pruned == ["orphaned a fixed", "orphaned c fixed"]
    assert [one.id for one in await new.schedules.list()] == ["b", "d", "mine"], "what others created stays"


async def test_a_schedule_that_nobody_will_look_at_is_woken(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    await world.sql("update semel_schedule set due_at = null")
    assert words(await shop.app.schedules.reconcile()) == ["asleep daily"]
    assert words(await shop.app.schedules.reconcile(fix=True)) == ["asleep daily fixed"]
    assert await shop.app.schedules.reconcile() == []
    async with world.worker(shop.app):
        await world.advance("70m")
        await shop.ran(0)


async def test_a_cursor_in_the_future_is_set_back_and_nothing_runs_twice(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    async with world.worker(shop.app):
        await world.advance("61m")
        await shop.ran(0)
        await shop.has_ended(0)
    ahead = 10 * HOUR // (HOUR / 3_600_000_000)
    await world.sql(f"update semel_schedule set cursor = cursor + {ahead:.0f}")
    assert words(await shop.app.schedules.reconcile()) == ["ahead daily"]
    assert words(await shop.app.schedules.reconcile(fix=True)) == ["ahead daily fixed"]
    assert (await shop.app.schedules.get("daily")).cursor == shop.slot(0)
    async with world.worker(shop.app):
        await world.advance("1h")
        await shop.ran(0, 1)


async def test_an_execution_of_a_slot_without_a_record_gets_one(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    async with world.worker(shop.app):
        await world.advance("61m")
        await shop.ran(0)
        await shop.has_ended(0)
    (run,) = await shop.app.schedules.runs("daily")
    await world.sql("delete from semel_run")
    await found_at_last(shop.app, ["unrecorded daily"])
    await found_at_last(shop.app, ["unrecorded daily fixed"], fix=True)
    (again,) = await shop.app.schedules.runs("daily")
    assert (again.key, again.execution, again.scheduled_for) == (run.key, run.execution, shop.slot(0))
    assert await shop.app.schedules.reconcile() == []


async def test_a_slot_that_was_dropped_at_its_start_deadline_is_no_difference(world: World) -> None:
    shop = Shop(world)
    await shop.put(queue="away", start_deadline="20m")
    key = f"activity-daily:{shop.begin.isoformat()}"
    async with world.worker(shop.app, queues=["default"]):
        await world.advance("60m")
        await eventually(lambda: shop.app.find(key))
        await world.advance("21m")

        async def dropped() -> bool:
            return await shop.skipped() == [("deadline", 0, 0, 1)]

        await eventually(dropped)
    await world.listed()
    assert await shop.app.schedules.reconcile() == []
    assert await shop.app.schedules.reconcile(fix=True) == []
    assert (await shop.app.schedules.runs("daily"), await shop.skipped()) == ([], [("deadline", 0, 0, 1)])


async def test_a_run_whose_execution_is_gone_does_not_block_its_schedule(world: World) -> None:
    shop = Shop(world)
    await shop.put(overlap="buffer_one")
    shop.holds.clear()
    async with world.worker(shop.app):
        await world.advance("61m")
        await shop.ran(0)
        name = (await shop.app.schedules.get("daily")).running[0]
        shop.holds.set()
        await shop.has_ended(0)
    gone = name[:-1] + ("0" if name[-1] != "0" else "1")
    assert gone != name
    state = bytes((await world.sql("select state from semel_schedule"))[0][0]).replace(name.encode(), gone.encode())
    one = "$1" if world.engine == "postgres" else "?1"
    await world.sql(f"update semel_schedule set due_at = null, state = {one}", state)
    kinds = [one.kind for one in await shop.app.schedules.reconcile()]
    assert "lost" in kinds
    await shop.app.schedules.reconcile(fix=True)
    async with world.worker(shop.app):
        await world.advance("1h")
        await shop.ran(0, 1)
