"""`admit_many` begins new keys without looking them up first: what is decided about each is what `admit` decides."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from semel.contract.decision import Admit
from semel.engine.requests import request
from semel.engine.start_request import StartRequest
from semel.engines.journal.admit import Wanted, admit, admit_many
from semel.engines.journal.script import ConnectionRole, Procedure, Script, SqlQuery, procedure
from tests.world import World

Told = list[tuple[str, str, int]]
GONE = 4711
"""The number of a lane that there is not."""


async def decide_all(world: World, namespace: str, script: Procedure[..., Any]) -> tuple[Told, list[Any]]:
    """What a script says to requests of every sort, and what is in the tables afterwards."""
    app = world.app(namespace=namespace)

    @app.task
    async def charge(n: int) -> int:
        return n

    @app.task(retry=7)
    async def refund(n: int) -> int:
        return n

    @app.task(concurrency_key=lambda n: str(n))
    async def ship(n: int) -> int:
        return n

    ended = [await app.enqueue(charge, 1, task_id=key) for key in ("ended", "followed")]
    over = await app.enqueue(charge, 1, task_id="over")
    async with world.worker(app):
        for handle in (*ended, over):
            await handle.result(timeout="30s")
    again = await app.enqueue(charge, 1, task_id="followed", reuse="always")
    await app.enqueue(charge, 1, task_id="live")
    store, settings = app.engine._store, app.settings

    def ask(task: Any, key: str | None, n: int = 1, **options: Any) -> StartRequest:
        return request(settings, task, (n,), {}, task_id=key, **options)

    sent = [ask(charge, "sent"), ask(charge, None)]
    lanes = {task.name: await app.engine._lanes.of(ask(task, "x").options) for task in (charge, refund, ship)}
    await store.run(admit, namespace, [Wanted(one, lanes["charge"]) for one in sent])
    new = [ask(task, f"{task.name}-{n}", n) for n in range(8) for task in (charge, refund)]
    alone = [ask(ship, "ship", 3), ask(charge, "later", delay="1h"), ask(charge, None)]
    alone += [replace(ask(charge, "child"), parent=again.id)]
    old = [ask(charge, "ended"), ask(charge, "over", reuse="always"), ask(charge, "live"), ask(charge, "live", 2)]
    known = [*sent, replace(ask(charge, "followed"), id=ended[1].id)]
    twice = [ask(charge, "charge-3", 3), ask(refund, "charge-4", 4)]
    asked = [*new[:5], *old, *new[5:], *twice, *known, *alone]
    wanted = [Wanted(one, lanes[one.options.name]) for one in asked]
    wanted += [Wanted(ask(charge, f"nowhere-{n}"), GONE) for n in range(6)]
    decided = await store.run(script, namespace, wanted)
    names = {id: str(key) for id, key in await rows(world, "select id, key from semel_execution", namespace)}
    told = [
        ("none", "", 0)
        if one is None
        else ("admit", names.get(one.decision.supersedes or "", ""), one.decision.generation)
        if isinstance(one.decision, Admit)
        else (type(one.decision).__name__, names[one.decision.prior.id], one.decision.prior.generation)
        for one in decided
    ]
    columns = "name, key, generation, current, status, max_attempts, concurrency_key, run_at is null, input"
    kept = await rows(world, f"select {columns} from semel_execution", namespace)
    return told, sorted(map(repr, kept))


async def rows(world: World, query: str, namespace: str) -> list[Any]:
    return await world.sql(f"{query} where namespace = '{namespace}'")


async def test_many_requests_are_decided_as_each_would_be(world: World) -> None:
    one_by_one, kept = await decide_all(world, "one", admit)
    together, kept_together = await decide_all(world, "many", admit_many)
    assert together == one_by_one
    assert kept_together == kept
    assert {name for name, _, _ in together} == {"admit", "Join", "Replay", "Refuse", "none"}


async def test_a_taken_key_does_not_fail_the_transaction_around_it(world: World) -> None:
    app = world.app()

    @app.task
    async def charge(n: int) -> int:
        return n

    await app.enqueue(charge, 3, task_id="k-3")
    asked = [request(app.settings, charge, (n,), {}, task_id=f"k-{n}") for n in range(10)]
    lane = await app.engine._lanes.of(asked[0].options)

    @procedure(ConnectionRole.CONTROL)
    def larger() -> Script[list[Any]]:
        before = yield SqlQuery("find_lane", ("default", "default", 0, "", False, False))
        decided = yield from admit_many.script("default", [Wanted(one, lane) for one in asked])
        after = yield SqlQuery("find_lane", ("default", "default", 0, "", False, False))
        assert list(before) == list(after)
        return decided

    decided = await app.engine._store.run(larger)
    assert [isinstance(one.decision, Admit) for one in decided] == [n != 3 for n in range(10)]
    assert await world.count() == await world.work() == 10


@pytest.mark.parametrize("count", [0, 1, 4, 5])
async def test_few_requests_are_all_begun(world: World, count: int) -> None:
    app = world.app()

    @app.task
    async def charge(n: int) -> int:
        return n

    asked = [request(app.settings, charge, (n,), {}, task_id=f"k-{n}") for n in range(count)]
    await app.migrate()
    wanted = [Wanted(one, await app.engine._lanes.of(one.options)) for one in asked]
    decided = await app.engine._store.run(admit_many, "default", wanted)
    assert [isinstance(one.decision, Admit) for one in decided if one is not None] == [True] * count
    assert await world.count() == await world.work() == count
