"""Whoever asks under the key gets the result, as the annotation says."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import pytest

import semel
from tests.world import World


@dataclass
class Receipt:
    order: str
    total: Decimal
    at: datetime


RECEIPT = Receipt("o-1", Decimal("99.00"), datetime(2026, 3, 1, tzinfo=UTC))


def define(app: semel.App) -> semel.Task[..., Receipt]:
    @app.task
    async def charge(receipt: Receipt) -> Receipt:
        assert receipt == RECEIPT
        return receipt

    return charge


async def test_two_apps_get_the_same_typed_result(world: World) -> None:
    here, there = world.app(), world.app()
    charge, same = define(here), define(there)
    one = await here.enqueue(charge, RECEIPT, task_id="k")
    two = await there.enqueue(same, RECEIPT, task_id="k")
    assert (two.id, two.duplicate) == (one.id, True)
    async with world.worker(here):
        assert await two.result(timeout="60s") == RECEIPT
        assert await one.result(timeout="60s") == RECEIPT
        late = await there.find("k")
        assert late is not None
        assert await late.result(timeout="60s") == RECEIPT


async def test_an_app_without_the_task_gets_plain_data(world: World) -> None:
    app, stranger = world.app(), world.app()
    handle = await app.enqueue(define(app), RECEIPT)
    async with world.worker(app):
        await handle.result(timeout="60s")
    seen = await (await stranger.get(handle.id)).result(timeout="60s")
    assert seen == {"order": "o-1", "total": "99.00", "at": "2026-03-01T00:00:00Z"}


async def test_input_and_output_as_plain_data(world: World) -> None:
    app = world.app()
    handle = await app.enqueue(define(app), RECEIPT)
    plain = {"order": "o-1", "total": "99.00", "at": "2026-03-01T00:00:00Z"}
    assert await handle.input() == {"receipt": plain}
    async with world.worker(app):
        assert await handle.output(timeout="60s") == plain
    with pytest.raises(semel.InvalidValue, match="only an entity has a state"):
        await handle.state()
