"""Races of events that are gathered: an event that cancels against a window that closes; the order of locks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from semel.engine.event_flow import EventFlow, FlowId
from semel.engines.journal import event_flow_scripts as flow_scripts
from semel.engines.journal.script import Script
from semel.engines.postgres import store
from tests.faults.conftest import new_site
from tests.faults.event_flow_operations import void
from tests.faults.event_invariants import event_faults
from tests.faults.event_shop import EventShop, paid
from tests.faults.site import Site
from tests.faults.test_event_mutants import NOTICED, passes
from tests.world import eventually

ROUNDS = 12


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_an_event_that_cancels_and_a_window_that_closes_agree(site: Site) -> None:
    """Either the window closes first, and its run is cancelled, or its event is dropped: never both, never neither."""
    ends: set[str] = set()
    for number in range(ROUNDS):
        ends.add(await race(site, early=number % 3 == 1, late=number % 3 == 2))
    assert ends <= {"dropped", "started"}
    assert len(ends) == 2, f"both ends were seen, whoever was first: {ends}"


async def race(site: Site, *, early: bool, late: bool) -> str:
    """What became of the event. `early`: the cancellation surely comes first; `late`: the window closes before it."""
    await site.reset()
    async with EventShop(site) as shop, EventShop(site) as other:
        await shop.gather(debounce="1m", cancel_on="invoice.void")
        await other.gather(debounce="1m", cancel_on="invoice.void")
        await shop.app.publish(paid("a"))
        await site.advance(61)
        other.site.skew = shop.site.skew

        async def cancel() -> None:
            if late:
                await close()
            await other.app.publish(void())
            await (await other.events()).tick()

        async def close() -> None:
            await (await shop.events()).tick()

        if early:
            await cancel()
        await asyncio.gather(cancel(), *([] if late else [close()]))
        await (await shop.events()).tick()
        await shop.run_all()
        assert await event_faults(site.sql, {"a": ["index"], "void": ["index"]}) == []
    ((state, run, reason),) = await site.sql("select state, run, reason from semel_event_outcome where event = 'a'")
    runs = await site.sql("select key, status from semel_execution where key like 'activity-index:%'")
    if state == "dropped":
        assert runs == [], "what was dropped has no run"
        assert "cancel_on" in reason
    else:
        assert [key for key, _ in runs] == [run]
        assert runs[0][1] == "cancelled", "and what has run was cancelled"
        assert site.ledger.effects() == []
    return str(state)


# The order of locks, on PostgreSQL.


async def one_lock_at_a_time(shop: EventShop, first: str, second: str, do: Callable[[], Awaitable[Any]]) -> None:
    """While somebody else holds the flow that comes first, what is done here waits, and holds none that comes later."""
    row = "select 1 from semel_event_flow where kind || ':' || key = $1 for update"
    async with connected(shop) as other:
        async with other.transaction():
            assert await other.fetch(row, first)
            doing = asyncio.ensure_future(do())
            await eventually(lambda: is_blocked(shop, doing))
            assert await other.fetch(f"{row} nowait", second)
        await asyncio.wait_for(doing, 60)


async def is_blocked(shop: EventShop, doing: asyncio.Future[Any]) -> bool:
    """Does somebody wait for a lock? What is done here must not be over meanwhile."""
    assert not doing.done(), "it did not wait"
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    return bool((await shop.site.sql(waiting))[0][0])


@asynccontextmanager
async def connected(shop: EventShop) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(shop.site.url)
    try:
        yield connection
    finally:
        await connection.close()


async def keys_are_locked_in_one_order(shop: EventShop) -> None:
    await shop.gather(batch={"size": 10, "wait": "1m", "key": "data.cents"})
    await shop.app.publish_many([paid("a", 1), paid("b", 2)])
    publish = lambda: shop.app.publish_many([paid("d", 2), paid("c", 1)])  # noqa: E731
    await one_lock_at_a_time(shop, "batch:1", "batch:2", publish)


async def what_gathers_is_locked_before_what_limits(shop: EventShop) -> None:
    await shop.gather(batch={"size": 2, "wait": "1m"}, throttle="5/min")
    await shop.app.publish_many([paid("a"), paid("b"), paid("c")])
    await one_lock_at_a_time(shop, "batch:", "throttle:", lambda: shop.app.publish(paid("d")))


async def a_flow_that_is_locked_holds_up_no_other(shop: EventShop) -> None:
    await shop.gather(debounce={"wait": "1m", "key": "data.cents"})
    await shop.app.publish_many([paid("a", 1), paid("b", 2)])
    await shop.site.advance(61)
    async with connected(shop) as other, other.transaction():
        await other.fetch("select 1 from semel_event_flow where key = '1' for update")
        assert await asyncio.wait_for((await shop.events()).tick(), 20) == 1
        states = dict(await shop.site.sql("select event, state from semel_event_outcome"))
        assert states == {"a": "gathered", "b": "started"}
    assert await (await shop.events()).tick() == 1


async def what_comes_while_a_pause_ends_is_not_kept_for_ever(shop: EventShop) -> None:
    """Who publishes believes that the activity is paused, while somebody else resumes it at this moment."""
    await shop.gather(batch={"size": 2, "wait": "1m"})
    await shop.app.events.pause("index")
    await shop.app.publish(paid("a"))
    async with connected(shop) as other:
        async with other.transaction():
            await other.fetch("select 1 from semel_event_flow where kind = 'pause' for update")
            publishing = asyncio.create_task(shop.app.publish(paid("b")))
            await eventually(lambda: is_blocked(shop, publishing))
            # What the last transaction of a resume does.
            await other.execute("delete from semel_event_flow where kind = 'pause'")
            await other.execute("update semel_event_outcome set state = 'started', run = 'r' where event = 'a'")
            await other.execute("update semel_subscription set paused_at = null")
            await other.execute("update semel_router set stamp = stamp + 1")
        await asyncio.wait_for(publishing, 60)
    states = dict(await shop.site.sql("select event, state from semel_event_outcome"))
    assert states["b"] == "gathered", "it is taken in as by an activity that is not paused"


def without_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_scripts, "sorted", lambda ids: sorted(ids, reverse=True), raising=False)
    replace_query(monkeypatch, "lock_event_flows", "order by f.kind, f.activity, f.key", "")


def limits_first(monkeypatch: pytest.MonkeyPatch) -> None:
    real = flow_scripts.lock_flows

    def lock(namespace: str, flow: EventFlow, ids: Iterable[FlowId]) -> Script[None]:
        wanted = list(ids)
        if any(one.kind == "batch" for one in wanted):
            yield from real(namespace, flow, [FlowId("throttle", "index", "")])
        yield from real(namespace, flow, wanted)

    monkeypatch.setattr(flow_scripts, "lock_flows", lock)


def wait_for_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_query(monkeypatch, "lock_due_event_flows", "for update skip locked", "for update")


def believe_in_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(namespace: str, flow: EventFlow, activities: Iterable[str]) -> Iterator[Any]:
        yield from flow_scripts.lock_flows(namespace, flow, [FlowId("pause", one, "") for one in activities])

    monkeypatch.setattr(flow_scripts, "_lock_pauses", load)


def replace_query(monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str) -> None:
    queries = dict(store.load_queries("semel.engines.postgres"))
    assert old in queries[name], "the mutant does not fit the statement any more"
    queries[name] = queries[name].replace(old, new)
    monkeypatch.setattr(store, "load_queries", lambda package: queries)


@pytest.mark.proof
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("check", "mutate"),
    [
        (keys_are_locked_in_one_order, without_order),
        (what_gathers_is_locked_before_what_limits, limits_first),
        (a_flow_that_is_locked_holds_up_no_other, wait_for_locks),
        (what_comes_while_a_pause_ends_is_not_kept_for_ever, believe_in_pauses),
    ],
)
def test_a_missing_guard_of_locks_is_noticed(
    check: Any,
    mutate: Callable[[pytest.MonkeyPatch], None],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = new_site("postgres", tmp_path, request)
    asyncio.run(passes(site, check))
    mutate(monkeypatch)
    with pytest.raises((*NOTICED, asyncpg.LockNotAvailableError)):
        asyncio.run(asyncio.wait_for(passes(site, check), 120))
