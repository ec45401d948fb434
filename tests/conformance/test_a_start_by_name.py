"""A request can be made from a name and stored arguments, without the function, and means the same."""

from __future__ import annotations

from typing import Any

import pytest

import semel
from semel.contract.decision import Admit, Join, Reason, Refuse
from semel.engine.requests import options_by_name, options_of, request, request_by_name
from semel.engine.start_request import StartRequest
from semel.errors import InvalidKey, InvalidValue, NotDecodable, NotEncodable
from tests.world import SOON, World


def shop(world: World) -> tuple[semel.App, Any, Any]:
    app = world.app()

    @app.task
    async def charge(order: str, cents: int = 100) -> str:
        return f"{order}: {cents}"

    @app.workflow
    async def process(ctx: semel.Context, order: str) -> str:
        return order

    return app, charge, process


def named(app: semel.App, payload: bytes, key: str | None = "k", **more: Any) -> StartRequest:
    return request_by_name(app.settings, options_by_name(app.settings, "task", "charge"), payload, key=key, **more)


async def test_it_runs_and_is_shared_by_who_asks_with_the_function(world: World) -> None:
    app, charge, process = shop(world)
    admission = await app.engine.start(named(app, b'{"order": "o-1"}'))
    assert isinstance(admission.decision, Admit)
    handle = await app.enqueue(charge, "o-1", task_id="k")
    assert (handle.id, handle.duplicate) == (admission.id, True)
    flow = options_by_name(app.settings, "workflow", "process")
    begun = await app.engine.start(request_by_name(app.settings, flow, b'{"order":"o-2"}', key="w"))
    async with world.worker(app):
        assert await handle.result(timeout=SOON) == "o-1: 100"
        assert await (await app.start_workflow(process, "o-2", workflow_id="w")).result(timeout=SOON) == "o-2"
    assert (await app.get(begun.id)).key == "w"
    assert await world.count() == 2


async def test_a_default_that_is_given_counts_for_nothing_once_the_function_is_known(world: World) -> None:
    app, charge, _ = shop(world)
    first = await app.enqueue(charge, "o-1", task_id="k")
    given = b'{"cents": 100, "order": "o-1"}'
    assert isinstance((await app.engine.start(named(app, given, shape=charge.shape))).decision, Join)
    refused = (await app.engine.start(named(app, given))).decision
    assert isinstance(refused, Refuse)
    assert refused.reason is Reason.INPUT_DIFFERS
    assert await world.count() == 1
    assert (await app.engine.start(named(app, b'{"order":"o-1"}'))).id == first.id


async def test_with_the_options_of_the_function_it_is_the_same_request(world: World) -> None:
    app, charge, _ = shop(world)
    own = request(app.settings, charge, ("o-1",), {}, task_id="k")
    options = options_of(app.settings, charge, "return", "failed_only", None, None, None, None)
    again = request_by_name(app.settings, options, own.payload, key="k")
    again.id, again.shape = own.id, own.shape
    assert again == own
    assert options_by_name(app.settings, "task", "charge") == options


async def test_what_it_was_asked_for_with_is_checked(world: World) -> None:
    app, charge, _ = shop(world)
    with pytest.raises(NotDecodable, match="JSON object"):
        named(app, b"[1]")
    with pytest.raises(NotEncodable, match="cents"):
        named(app, b'{"order":"o-1","cents":"many"}', shape=charge.shape)
    with pytest.raises(InvalidKey):
        request_by_name(app.settings, options_by_name(app.settings, "workflow", "process"), b"{}", key=None)
    with pytest.raises(InvalidValue, match="kind"):
        options_by_name(app.settings, "entity", "Cart")


@pytest.mark.parametrize("many", [False, True])
async def test_who_asked_for_it_is_kept(world: World, many: bool) -> None:
    app, _, process = shop(world)
    parent = await app.start_workflow(process, "o-1", workflow_id="w")
    start = named(app, b'{"order":"o-1"}', key=None)
    start.parent = parent.id
    start = StartRequest.from_bytes(start.to_bytes())
    admitted = (await app.engine.start_many([start]))[0] if many else await app.engine.start(start)
    found = await app.engine.get(admitted.id)
    assert found is not None
    assert found.parent_id == parent.id
