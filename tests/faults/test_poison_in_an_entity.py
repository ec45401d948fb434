"""Fault 7 for entities: a message that kills its workers fails alone. State, keys and the messages behind it stay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

import semel
from semel.engines.journal.leases import TRIES_WITHOUT
from semel.entity_ref import MAX_WORKER_CRASHES
from tests.faults.forks import Forks
from tests.faults.poisoned import DEAD, Diary, diary
from tests.faults.shop import Shop
from tests.faults.site import Site

pytestmark = pytest.mark.slow
T = TypeVar("T")


def within(site: Site, do: Callable[[Shop, semel.Ref[Diary]], Awaitable[T]]) -> T:
    """Do something in a process without a worker."""

    async def run() -> T:
        async with Shop(site) as shop:
            return await do(shop, diary(shop))

    return asyncio.run(run())


def work(site: Site, fork_server: Forks, most: int = 60) -> int:
    """Workers, one after the other, until one comes to an end; how many died."""
    for deaths in range(most):
        code, said = fork_server.run("tests.faults.poisoned:worker", site=site.plain())
        asyncio.run(site.advance(60))
        if code == 0:
            return deaths
        assert code == DEAD, said
    raise AssertionError(f"{most} workers died")


@pytest.mark.parametrize("poison", ["die", "die-in-a-step", "die-after-a-transaction"])
def test_it_fails_alone(site: Site, fork_server: Forks, poison: str) -> None:
    async def prepare(shop: Shop, ref: semel.Ref[Diary]) -> None:
        await ref.send("note", "a", dedup_key="a")
        await ref.send(poison, dedup_key="poison")
        await ref.send("note", "b", dedup_key="b")
        await ref.send("note", "c")
        await ref.send(poison)
        await ref.send("note", "d", dedup_key="d")

    async def look(shop: Shop, ref: semel.Ref[Diary]) -> Any:
        handle = await shop.app.find(ref.key, kind="entity")
        assert handle is not None
        async with shop.app.worker():
            assert await ref.ask("note", "b", dedup_key="b", timeout="60s") == 2
            failed = [(one.handler, one.dedup_key, one.error.type) for one in await ref.failed()]
            return failed, (await ref.state()).lines, await handle.attributes(), await handle.status()

    within(site, prepare)
    died = work(site, fork_server)
    failed, lines, attributes, status = within(site, look)
    assert lines == ["a", "b", "c", "d"]
    assert failed == [(poison, None, "semel.WorkerLost"), (poison, "poison", "semel.WorkerLost")]
    assert attributes == {}
    assert status == semel.Status.WAITING
    assert 2 * MAX_WORKER_CRASHES <= died <= 2 * MAX_WORKER_CRASHES + 2
    assert asyncio.run(site.sql("select count(*) from till"))[0][0] in (0, 2)


def test_what_was_left_running_is_given_up(site: Site, fork_server: Forks) -> None:
    async def prepare(shop: Shop, ref: semel.Ref[Diary]) -> None:
        for name, *args in (("note", "a"), ("leave",), ("note", "b")):
            await ref.send(name, *args)

    within(site, prepare)
    assert MAX_WORKER_CRASHES <= work(site, fork_server) <= MAX_WORKER_CRASHES + 2
    assert within(site, lambda _, ref: ref.state()).lines == ["a", "b"]


def test_one_that_cannot_even_be_read_is_parked(site: Site, fork_server: Forks) -> None:
    async def prepare(shop: Shop, ref: semel.Ref[Diary]) -> None:
        await ref.send("note", "a")
        await ref.send("spoil")

    async def again(shop: Shop, ref: semel.Ref[Diary]) -> None:
        await ref.send("note", "b", dedup_key="b")

    async def look(shop: Shop, ref: semel.Ref[Diary]) -> semel.Execution:
        handle = await shop.app.find(ref.key, kind="entity")
        assert handle is not None
        return await handle.describe()

    within(site, prepare)
    assert work(site, fork_server) == 0
    within(site, again)
    assert work(site, fork_server) == MAX_WORKER_CRASHES + TRIES_WITHOUT
    assert work(site, fork_server) == 0  # a new worker alone is no reason to try it again
    found = within(site, look)
    assert found.status == semel.Status.WAITING
    assert found.error is not None
    assert found.error.type == "semel.WorkerLost"
    assert "its state and its messages stay" in found.error.message
    assert asyncio.run(site.sql("select count(*) from semel_inbox"))[0][0] == 1
