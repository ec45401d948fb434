"""The same request sent again gives the same execution: after a lost reply, or by a relay that crashed before its note.

Also when it has ended meanwhile, when the key was used again since, and whatever `reuse` says.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import semel
from semel.contract.decision import Admit
from semel.engine.ids import made_at
from semel.engine.requests import request, workflow_request
from semel.engine.start_request import StartRequest
from tests.world import SOON, World

REUSE = ["failed_only", "reject", "always"]


def shop(world: World) -> tuple[semel.App, Any, Any]:
    app = world.app()

    @app.task(retry=1)
    async def charge(order: str) -> str:
        if order.startswith("bad"):
            raise ValueError(order)
        return order

    @app.workflow
    async def process(ctx: semel.Context, order: str) -> str:
        return order

    return app, charge, process


async def sent(app: semel.App, start: StartRequest) -> str:
    admission = await app.engine.start(start)
    assert isinstance(admission.decision, Admit)
    return admission.id


def made_by_a_clock(start: StartRequest, *, minutes: int) -> StartRequest:
    """A request as a machine makes it whose clock differs: ids begin with the time."""
    made = made_at(start.id)
    assert made is not None
    return msgspec.structs.replace(start, id=f"{made + minutes * 60_000:012x}{start.id[12:]}")


async def end(app: semel.App, id: str) -> None:
    outcome = await app.engine.outcome(id, SOON)
    assert outcome is not None


@pytest.mark.parametrize("reuse", REUSE)
@pytest.mark.parametrize("order", ["o-1", "bad-1"])
async def test_of_a_task_with_a_key(world: World, reuse: str, order: str) -> None:
    app, charge, _ = shop(world)
    start = request(app.settings, charge, (order,), {}, task_id="k", reuse=reuse)
    first = await sent(app, start)
    assert await sent(app, start) == first
    async with world.worker(app):
        await end(app, first)
        assert await sent(app, start) == first
    assert await world.count() == 1


@pytest.mark.parametrize("reuse", REUSE)
async def test_of_a_workflow(world: World, reuse: str) -> None:
    app, _, process = shop(world)
    start = workflow_request(app.settings, process, ("o-1",), {}, workflow_id="w", reuse=reuse)
    first = await sent(app, start)
    async with world.worker(app):
        await end(app, first)
        assert await sent(app, start) == first
    assert await world.count() == 1


async def test_of_a_task_without_a_key(world: World) -> None:
    app, charge, _ = shop(world)
    start = request(app.settings, charge, ("o-1",), {}, task_id=None)
    first = await sent(app, start)
    assert await sent(app, start) == first
    async with world.worker(app):
        await end(app, first)
        assert await sent(app, start) == first
    assert await world.count() == 1


@pytest.mark.parametrize(("reuse", "order"), [("always", "o-1"), ("failed_only", "bad-1")])
async def test_also_where_its_run_followed_another_and_was_followed(world: World, reuse: str, order: str) -> None:
    app, charge, _ = shop(world)
    starts = [request(app.settings, charge, (order,), {}, task_id="k", reuse=reuse) for _ in range(3)]
    async with world.worker(app):
        ids = []
        for start in starts:
            ids.append(await sent(app, start))
            await end(app, ids[-1])
        assert len(set(ids)) == 3
        for start, id_ in zip(starts, ids, strict=True):
            assert await sent(app, start) == id_
    assert await world.count() == 3
    assert [one.id for one in (await app.explain("k")).executions] == ids[::-1]


@pytest.mark.parametrize("minutes", [[10, 5, 0], [0, 5, 10], [5, 0, 10]])
async def test_whatever_the_clocks_of_the_machines_say(world: World, minutes: list[int]) -> None:
    app, charge, _ = shop(world)
    starts = [
        made_by_a_clock(request(app.settings, charge, ("o-1",), {}, task_id="k", reuse="always"), minutes=ahead)
        for ahead in minutes
    ]
    async with world.worker(app):
        ids = []
        for start in starts:
            ids.append(await sent(app, start))
            await end(app, ids[-1])
        assert [await sent(app, start) for start in starts] == ids
    assert await world.count() == 3


@pytest.mark.parametrize("lives", [True, False])
async def test_also_where_a_new_request_would_join_or_be_refused(world: World, lives: bool) -> None:
    app, charge, _ = shop(world)
    first, again = [request(app.settings, charge, ("bad-1",), {}, task_id="k") for _ in range(2)]
    other = request(app.settings, charge, ("o-2",), {}, task_id="k", reuse="always")
    ids = []
    async with world.worker(app):
        for start in (first, again):
            ids.append(await sent(app, start))
            await end(app, ids[-1])
    ids.append(await sent(app, other))
    if not lives:
        async with world.worker(app):
            await end(app, ids[-1])
    assert [await sent(app, start) for start in (first, again, other)] == ids
    assert await world.count() == 3


async def test_also_where_it_was_redriven_or_reset(world: World) -> None:
    app, charge, process = shop(world)
    task = request(app.settings, charge, ("bad-1",), {}, task_id="k")
    flow = workflow_request(app.settings, process, ("o-1",), {}, workflow_id="w")
    async with world.worker(app):
        ids = [await sent(app, start) for start in (task, flow)]
        for id_ in ids:
            await end(app, id_)
        await end(app, (await app.redrive(ids[0])).id)
        await end(app, (await (await app.get(ids[1])).reset("row:0")).id)
        follower = await sent(app, request(app.settings, charge, ("bad-1",), {}, task_id="k"))
        await end(app, follower)
    assert [await sent(app, start) for start in (task, flow)] == ids
    assert await world.count() == 5


async def test_also_where_its_key_is_remembered_for_long(world: World) -> None:
    app = world.app()

    @app.task(retry=1, retention="20d", dedup_window="90d")
    async def charge(order: str) -> str:
        if order.startswith("bad"):
            raise ValueError(order)
        return order

    given = [("bad-1", "reject"), ("bad-1", "failed_only"), ("o-1", "always")]
    starts = [request(app.settings, charge, (order,), {}, task_id="k", reuse=reuse) for order, reuse in given]
    ids: list[str] = []
    async with world.worker(app):
        for start in starts:
            ids.append(await sent(app, start))
            await end(app, ids[-1])
            assert [await sent(app, before) for before in starts[: len(ids)]] == ids
    assert await world.count() == 3


async def test_many_at_once_of_which_some_are_in(world: World) -> None:
    app, charge, _ = shop(world)
    starts = [request(app.settings, charge, (f"o-{n}",), {}, task_id=f"k-{n}" if n % 2 else None) for n in range(20)]
    early = [await sent(app, start) for start in starts[:7]]
    late = [admission.id for admission in await app.engine.start_many(starts)]
    assert late[:7] == early
    assert await world.count() == 20
