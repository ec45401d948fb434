"""Take away one guard of events at a time: a named check must notice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import semel
from semel.engine import subscription_definitions
from semel.engines.journal import event_scripts, events
from semel.engines.postgres import store
from semel.engines.sqlite import writer_thread
from tests.faults.conftest import new_site
from tests.faults.event_invariants import event_faults
from tests.faults.event_shop import EventShop, paid
from tests.faults.site import Site
from tests.faults.test_mutants import prepare

pytestmark = pytest.mark.proof
Check = Callable[[EventShop], Awaitable[None]]


class _NothingHappened(semel.EngineUnavailable):
    """Raised in the place of a Collision, which nobody expects."""


NOTICED = (AssertionError, TimeoutError, semel.SemelError)


async def each_event_has_its_runs(shop: EventShop) -> None:
    await shop.subscribe(bill=shop.bill, settle=shop.settle)
    await shop.app.publish_many([paid("a"), paid("b")])
    again = await shop.app.publish_many([paid("a"), paid("b")])
    assert all(one.duplicate and len(one.runs) == 2 for one in again)
    await shop.run_all()
    assert await event_faults(shop.site.sql, {"a": ["bill", "settle"], "b": ["bill", "settle"]}) == []


async def each_event_has_its_run(shop: EventShop) -> None:
    await shop.subscribe(bill=shop.bill)
    await shop.app.publish_many([paid("a"), paid("b")])
    await shop.run_all()
    assert await event_faults(shop.site.sql, {"a": ["bill"], "b": ["bill"]}) == []


async def who_routes_by_old_subscriptions_is_told(shop: EventShop) -> None:
    await shop.subscribe(bill=shop.bill)
    await shop.app.publish(paid("a"))
    async with EventShop(shop.site) as other:
        await other.subscribe(bill=other.bill, settle=other.settle)
    await shop.app.publish(paid("b"))
    assert await event_faults(shop.site.sql, {"a": ["bill"], "b": ["bill", "settle"]}) == []


async def who_delivers_by_old_subscriptions_is_told(shop: EventShop) -> None:
    await shop.subscribe(bill=shop.bill)
    await shop.app.publish(paid("a"), deliver_at=datetime.fromtimestamp(shop.site.time(), UTC) + timedelta(hours=1))
    async with EventShop(shop.site) as other:
        await other.subscribe(bill=other.bill, settle=other.settle)
    await shop.site.advance(3700)
    await (await shop.events()).tick()
    assert await event_faults(shop.site.sql, {"a": ["bill", "settle"]}) == []


async def an_event_waits_for_its_time(shop: EventShop) -> None:
    await shop.subscribe(bill=shop.bill)
    await shop.app.publish(paid("a"), deliver_at=datetime.fromtimestamp(shop.site.time(), UTC) + timedelta(hours=1))
    await (await shop.events()).tick()
    assert await shop.site.sql("select state from semel_event") == [("waiting",)]


async def deliveries_are_counted(shop: EventShop) -> None:
    await shop.subscribe(bill=shop.bill)
    for _ in range(4):
        await shop.app.publish(paid("a"))
    await (await shop.events()).write_counts()
    assert await shop.site.sql("select duplicates from semel_event") == [(3,)]


async def waiting_events_are_not_forgotten(shop: EventShop) -> None:
    await shop.app.publish(paid("old"))
    at = datetime.fromtimestamp(shop.site.time(), UTC) + timedelta(days=60)
    await shop.app.publish(paid("waiting"), deliver_at=at)
    await shop.site.advance(40 * 86400)
    await (await shop.events()).forget()
    assert await shop.site.sql("select id from semel_event") == [("waiting",)]


async def a_run_is_not_run_again(shop: EventShop) -> None:
    """Also if the event was forgotten, and its execution was not."""
    await shop.subscribe(bill=shop.bill)
    await shop.app.publish(paid("a"))
    await shop.run_all()
    await shop.site.script("delete from semel_event")
    await shop.app.publish(paid("a"))
    await shop.run_all()
    assert await shop.site.sql("select count(*) from semel_execution") == [(1,)]


async def a_lane_that_is_gone_is_made_anew(shop: EventShop) -> None:
    """A database that went back in time has lost it: no execution may be in a lane that nobody looks at."""
    await shop.subscribe(bill=shop.bill)
    await shop.app.publish(paid("a"))
    await shop.site.script("delete from semel_lane; delete from semel_ready; delete from semel_execution")
    await shop.app.publish(paid("b"))
    lost = "select count(*) from semel_execution where lane not in (select id from semel_lane)"
    assert await shop.site.sql(lost) == [(0,)]
    assert await shop.site.sql("select count(*) from semel_execution") == [(1,)]


async def a_taken_key_is_decided_about(shop: EventShop) -> None:
    """Somebody has started something under the key of a run: the event joins that, and the others run."""
    await shop.subscribe(bill=shop.bill)
    held = await shop.app.enqueue(shop.charge, "o-1", task_id="activity-bill:b")
    found = await shop.app.publish_many([paid("a"), paid("b"), paid("c")])
    assert [one.duplicate for one in found] == [False] * 3
    assert found[1].runs[0].id == held.id
    assert await shop.site.sql("select count(*) from semel_run") == [(2,)]
    assert await shop.site.sql("select count(*) from semel_execution") == [(3,)]


SQLITE = [
    ("publish_new: by the subscriptions of now", who_routes_by_old_subscriptions_is_told, "publish_new",
     "where namespace = ?1), 0) = ?2", "where namespace = ?1), 0) is not ?2 + 1"),
    ("publish_new: what an event ran is on record", each_event_has_its_run, "publish_new",
     "coalesce(s.activity, '')", "''"),
    ("publish_new: every run has its record", each_event_has_its_run, "publish_new", "(select changes()) > 0", "0"),
    ("publish_new: the lane is there", a_lane_that_is_gone_is_made_anew, "publish_new",
     "l.value not in (select id", "0 in (select id"),
    ("add_events: by the subscriptions of now", who_routes_by_old_subscriptions_is_told, "add_events",
     "where namespace = ?1), 0) = ?2", "where namespace = ?1), 0) is not ?2 + 1"),
    ("lock_events: by the subscriptions of now", who_delivers_by_old_subscriptions_is_told, "lock_events",
     "where namespace = ?1), 0) = ?2", "where namespace = ?1), 0) is not ?2 + 1"),
    ("add_events: what an event ran is on record", each_event_has_its_runs, "add_events", "value ->> 4", "''"),
    ("add_runs: every run has its record", each_event_has_its_runs, "add_runs", "where true", "where false"),
    ("due_events: only what is due", an_event_waits_for_its_time, "due_events", "deliver_at <= semel_now()", "1"),
    ("count_deliveries: added up", deliveries_are_counted, "count_deliveries", "duplicates + (o.value ->> 1)", "0"),
    ("forget_events: not those that wait", waiting_events_are_not_forgotten, "forget_events",
     "state <> 'waiting'", "1"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "check", "statement", "old", "new"), SQLITE, ids=[one[0] for one in SQLITE])
def test_a_missing_guard_of_events_is_noticed(
    name: str, check: Check, statement: str, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = prepare(tmp_path)
    if statement in ("add_events", "add_runs"):  # where one statement does not do
        monkeypatch.setattr(event_scripts, "are_plain", lambda plans: False)
    asyncio.run(passes(site, check))
    parts = writer_thread.statements()[statement]
    assert any(old in sql for sql, _ in parts), "the mutant does not fit the statement any more"
    monkeypatch.setitem(writer_thread.statements(), statement, [(sql.replace(old, new), count) for sql, count in parts])
    if statement == "due_events":  # the second guard of the same thing
        monkeypatch.setattr(events, "_is_due", lambda known, plan: True)
    with pytest.raises(NOTICED):
        asyncio.run(passes(site, check))


async def test_a_key_that_is_taken_does_not_keep_the_events_beside_it_from_running(site: Site) -> None:
    async with EventShop(site) as shop:
        await a_taken_key_is_decided_about(shop)


def test_without_counts_a_taken_key_would_leave_an_event_without_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite passes over what it cannot insert: the counts have to be looked at."""
    site = prepare(tmp_path)
    asyncio.run(passes(site, a_taken_key_is_decided_about))
    monkeypatch.setattr(event_scripts, "Collision", _NothingHappened)
    with pytest.raises(NOTICED):
        asyncio.run(passes(site, a_taken_key_is_decided_about))


def test_without_the_policy_of_keys_an_event_would_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = prepare(tmp_path)
    asyncio.run(passes(site, a_run_is_not_run_again))
    real = subscription_definitions.options_of

    def lenient(settings: Any, own: Any, on_duplicate: Any, reuse: Any, *more: Any) -> Any:
        return real(settings, own, on_duplicate, "always", *more)

    monkeypatch.setattr(subscription_definitions, "options_of", lenient)
    with pytest.raises(AssertionError):
        asyncio.run(passes(site, a_run_is_not_run_again))


async def one_routes_at_a_time(shop: EventShop) -> None:
    """Somebody else delivers an event: it is waited for, and then not delivered again."""
    await shop.subscribe(bill=shop.bill)
    await shop.app.publish(paid("a"), deliver_at=datetime.fromtimestamp(shop.site.time(), UTC) + timedelta(hours=1))
    await shop.site.advance(3700)
    other = await asyncpg.connect(shop.site.url)
    try:
        async with other.transaction():
            await other.fetch("select * from semel_event for update")
            looking = asyncio.create_task((await shop.events()).tick())
            done, _ = await asyncio.wait([looking], timeout=1)
            assert not done
            await other.execute("update semel_event set state = 'unmatched'")
        assert await asyncio.wait_for(looking, 60) == 0
    finally:
        await other.close()
    assert await shop.site.sql("select count(*) from semel_run") == [(0,)]


def test_without_the_lock_two_would_deliver_at_once(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = new_site("postgres", tmp_path, request)
    asyncio.run(passes(site, one_routes_at_a_time))
    queries = dict(store.load_queries("semel.engines.postgres"))
    assert "for update of e" in queries["lock_events"]
    queries["lock_events"] = queries["lock_events"].replace("for update of e", "")
    monkeypatch.setattr(store, "load_queries", lambda package: queries)
    with pytest.raises(NOTICED):
        asyncio.run(passes(site, one_routes_at_a_time))


async def passes(site: Site, check: Check) -> None:
    await site.reset()
    async with EventShop(site) as shop:
        await check(shop)
