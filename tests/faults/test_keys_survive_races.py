"""Faults 5, 15, 17, 32, 33 and the hundred duplicates: one execution under a key, whoever asks and whatever breaks."""

from __future__ import annotations

import asyncio
import random

import pytest

import semel
from semel.contract.fingerprint import fingerprint
from semel.contract.keys import effect_key
from semel.engine.requests import request
from semel.engines.journal.admit import insert
from semel.engines.journal.rows import row_of
from semel.engines.journal.script import ConnectionRole, Procedure
from semel.testing import Fault, Mode
from tests.faults.forks import Forks
from tests.faults.invariants import broken
from tests.faults.shop import Shop
from tests.faults.site import Site
from tests.world import World

pytestmark = pytest.mark.slow

BAD_KEYS = ["", "   ", "x" * 256, "a\0b", "\ud800", " a", "a\n", "\x1b[2J"]


@pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
async def test_a_bad_key_is_refused_at_the_door(world: World, key: str) -> None:
    """fault 5"""
    app = world.app()

    @app.task
    async def work(value: object = None) -> object:
        return value

    with pytest.raises(semel.InvalidKey):
        await app.enqueue(work, task_id=key)
    assert await app.list() == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\udc80", {"a": ["\ud800"]}, 1 << 70], ids=ascii)
async def test_a_bad_value_is_refused_as_input_and_fails_as_result(world: World, value: object) -> None:
    """fault 5: nothing half-written; a result that cannot be stored is a failure that is not tried again."""
    app = world.app()
    runs = []

    @app.task
    async def give(value: object) -> object:
        return value

    @app.task
    async def make() -> object:
        runs.append(1)
        return value

    with pytest.raises(semel.NotEncodable):
        await app.enqueue(give, value, task_id="k")
    assert await app.list() == []
    handle = await app.enqueue(make)
    async with world.worker(app):
        with pytest.raises(semel.ExecutionFailed, match="NotEncodable"):
            await handle.result(timeout="60s")
    assert len(runs) == 1


async def test_error_text_of_any_kind_can_be_stored(world: World) -> None:
    """fault 5"""
    app = world.app()

    @app.task(retry=1)
    async def fail(kind: int) -> None:
        raise ValueError(["a\0b", "\ud800", "\uffff" * 60_000][kind])

    handles = [await app.enqueue(fail, n) for n in range(3)]
    async with world.worker(app):
        for handle in handles:
            with pytest.raises(semel.ExecutionFailed, match="ValueError"):
                await handle.result(timeout="60s")


async def test_keys_that_differ_only_by_normalisation_are_one(world: World) -> None:
    """fault 5"""
    app = world.app()

    @app.task
    async def work() -> None: ...

    first = await app.enqueue(work, task_id="caf\u00e9")
    second = await app.enqueue(work, task_id="cafe\u0301")
    assert (second.id, second.duplicate) == (first.id, True)


async def test_of_five_racers_of_which_four_roll_back_one_is_in(site: Site) -> None:
    """fault 15"""
    slow_admit = Procedure(insert.script, ConnectionRole.ADMIT, atomic=False)
    shops = [Shop(site) for _ in range(5)]

    async def race(shop: Shop, wins: bool) -> None:
        asked = request(shop.app.settings, shop.charge, ("o",), {}, task_id="k")
        rows = [row_of(asked, await shop.engine._lanes.of(asked.options))]
        shop.store.tap = None if wins else FailAt("commit")
        try:
            await shop.store.run(slow_admit, "default", rows)
        except semel.EngineUnavailable:
            assert not wins

    for shop in shops:
        await shop.engine.open()
    await asyncio.gather(*(race(shop, wins=n == 3) for n, shop in enumerate(shops)))
    assert (await site.sql("select count(*) from semel_execution")) == [(1,)]
    assert (await site.sql("select count(*) from semel_ready")) == [(1,)]
    for shop in shops:
        await shop.app.close()


class FailAt:
    """Every such statement fails before it is executed."""

    def __init__(self, statement: str) -> None:
        self._statement = statement

    def before(self, statement: str) -> None:
        if statement == self._statement:
            raise semel.EngineUnavailable("rolled back")

    def after(self, statement: str) -> None: ...


@pytest.mark.parametrize("statement", range(1, 4))
async def test_a_caller_whose_reply_was_lost_learns_that_it_was_first(site: Site, statement: int) -> None:
    """fault 17: with and without a key, one execution, and not called a duplicate of itself."""
    async with Shop(site) as shop:
        await shop.app.enqueue(shop.charge, "before")
        for key in ("k-1", None):
            shop.store.tap = Fault(statement, Mode.ERROR)
            handle = await shop.app.enqueue(shop.charge, "o", task_id=key)
            shop.store.tap = None
            assert not handle.duplicate
            assert (await handle.describe()).key == key
        assert (await site.sql("select count(*) from semel_execution")) == [(3,)]


@pytest.mark.slow
def test_a_hundred_duplicates_from_four_processes_are_one_execution(site: Site, fork_server: Forks) -> None:
    call = ("tests.faults.crowd:duplicates", {"site": site.plain(), "times": 25})
    answers = fork_server.together(*[call] * 4)
    assert [code for code, _ in answers] == [0] * 4, answers
    assert len({id_ for _, said in answers for id_ in said[0]["ids"]}) == 1
    assert sum(said[0]["new"] for _, said in answers) == 1

    async def finish() -> list[str]:
        async with Shop(site) as shop:
            await shop.run_all()
            counted = (await shop.app.explain("one")).suppressed
            assert sum(one.count for one in counted) == 99
        return await broken(site, most=1, keys=["one"])

    assert asyncio.run(finish()) == []


@pytest.mark.slow
def test_batches_that_share_keys_in_any_order_all_get_in(site: Site, fork_server: Forks) -> None:
    """Two that wait for each other's keys: the database breaks the knot, nobody is told."""
    orders = [random.Random(seed).sample(range(300), 300) for seed in range(4)]
    calls = [("tests.faults.crowd:same_batch", {"site": site.plain(), "order": order}) for order in orders]
    answers = fork_server.together(*calls)
    assert [code for code, _ in answers] == [0] * 4, answers
    assert sum(said[0] for _, said in answers) == 300
    assert asyncio.run(site.sql("select count(*) from semel_execution")) == [(300,)]


async def test_an_id_used_again_after_its_window_never_gets_the_old_result(world: World) -> None:
    """fault 32: cleaned or not, stripped or not."""
    app = world.app()
    runs: list[int] = []

    @app.task(retention="10s", dedup_window="60s")
    async def count() -> int:
        runs.append(1)
        return len(runs)

    async with world.worker(app):
        assert await (await app.enqueue(count, task_id="k")).result(timeout="60s") == 1
        await world.advance("30s")
        await app.clean()
        stripped = await app.enqueue(count, task_id="k")
        assert stripped.duplicate
        with pytest.raises(semel.ResultExpired):
            await stripped.result(timeout="60s")
        await world.advance("60s")
        again = await app.enqueue(count, task_id="k")  # the cleaner has not come by
        assert not again.duplicate
        assert await again.result(timeout="60s") == 2
        await world.advance("90s")
        await app.clean()
        assert await (await app.enqueue(count, task_id="k")).result(timeout="60s") == 3


def test_formats_of_keys_are_pinned() -> None:
    """fault 33: a change of these strings would run everything once more."""
    assert effect_key("default", "task", "order-1", 0, "charge") == "semel1:default:task:order-1:charge"
    assert effect_key("default", "task", "order-1", 2, "charge") == "semel1:default:task:order-1:charge#3"
    assert effect_key("n", "task", "x" * 255, 0, "charge") == (
        "semel1:1b16b1df538ba12d:task:d22609da3ae3956ca4877056a8e580eed744a6f7d7cfa5b19dd88d52fcc0d435:charge"
    )
    assert fingerprint("charge", b'{"cents":9900,"order":"o-1"}').hex() == "e37afab17a726ece51245080911254b0"
