"""Take away one guard of gathered and limited events at a time: a named check must notice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from semel.contract.events import OutcomeState
from semel.engines.postgres import store
from semel.engines.sqlite import writer_thread
from tests.faults.conftest import new_site
from tests.faults.event_flow_operations import void
from tests.faults.event_invariants import event_faults
from tests.faults.event_shop import EventShop, paid
from tests.faults.test_event_mutants import NOTICED, Check, passes
from tests.faults.test_mutants import prepare

pytestmark = pytest.mark.proof


async def outcomes(shop: EventShop) -> dict[str, str]:
    """What became of each event."""
    return dict(await shop.site.sql("select event, state from semel_event_outcome"))


async def a_window_has_all_its_events(shop: EventShop) -> None:
    await shop.gather(debounce="1m")
    for id in "abc":
        await shop.app.publish(paid(id))
    await shop.site.advance(61)
    await (await shop.events()).tick()
    await shop.run_all()
    assert await event_faults(shop.site.sql, {id: ["index"] for id in "abc"}) == []
    assert await shop.site.sql("select count(*) from semel_run") == [(1,)]


async def a_window_waits_for_its_time(shop: EventShop) -> None:
    await shop.gather(batch={"size": 5, "wait": "1m"}, throttle="1/min")
    await shop.app.publish(paid("a"))
    await (await shop.events()).tick()
    assert await outcomes(shop) == {"a": "gathered"}


async def a_throttled_run_waits_and_starts_once(shop: EventShop) -> None:
    await shop.gather(throttle="1/min")
    await shop.app.publish_many([paid("a"), paid("b")])
    await (await shop.events()).tick()
    assert await outcomes(shop) == {"a": "started", "b": "queued"}
    await shop.site.advance(61)
    for _ in range(2):
        await (await shop.events()).tick()
    await shop.run_all()
    assert await event_faults(shop.site.sql, {"a": ["index"], "b": ["index"]}) == []
    assert await shop.site.sql("select count(*) from semel_run") == [(2,)]


async def what_waits_is_not_forgotten(shop: EventShop) -> None:
    await shop.gather(debounce="60d")
    await shop.app.publish(paid("a"))
    await shop.site.advance(40 * 86400)
    await (await shop.events()).forget()
    assert await outcomes(shop) == {"a": "gathered"}
    assert await shop.site.sql("select count(*) from semel_event") == [(1,)]
    assert await shop.site.sql("select count(*) from semel_event_flow") == [(1,)]


async def only_older_events_are_cancelled(shop: EventShop) -> None:
    await shop.gather(cancel_on="invoice.void", throttle="2/min")
    await shop.app.publish_many([paid(id) for id in "ab"])
    await shop.app.publish(void())
    await shop.app.publish(paid("d"))
    await (await shop.events()).tick()
    await shop.site.advance(120)
    await (await shop.events()).tick()
    await shop.run_all()
    assert await event_faults(shop.site.sql, {id: ["index"] for id in ("a", "b", "d")}) == []
    states = dict(await shop.site.sql("select key, status from semel_execution where key like 'activity-%'"))
    assert states == {
        "activity-index:a": "cancelled", "activity-index:b": "cancelled", "activity-index:d": "completed"
    }  # fmt: skip


async def paused_events_run_after_it(shop: EventShop) -> None:
    await shop.gather(batch={"size": 2, "wait": "1m"})
    await shop.app.publish(paid("a"))
    await shop.app.events.pause("index")
    await shop.site.advance(120)
    await (await shop.events()).tick()
    assert await outcomes(shop) == {"a": "gathered"}
    await shop.app.publish(paid("b"))
    assert await outcomes(shop) == {"a": "gathered", "b": OutcomeState.PAUSED.value}
    await shop.app.events.resume("index")
    await shop.site.advance(120)
    await (await shop.events()).tick()
    await shop.run_all()
    assert await event_faults(shop.site.sql, {"a": ["index"], "b": ["index"]}) == []
    assert await shop.site.sql("select paused_at from semel_subscription") == [(None,)]


async def a_window_closes_after_a_pause(shop: EventShop) -> None:
    await shop.gather(debounce="1m")
    await shop.app.publish(paid("a"))
    await shop.app.events.pause("index")
    await shop.site.advance(120)
    await (await shop.events()).tick()
    assert await outcomes(shop) == {"a": "gathered"}
    await shop.app.events.resume("index")
    await (await shop.events()).tick()
    assert await outcomes(shop) == {"a": "started"}


SQLITE = [
    ("save_event_flows: the window is stored", a_window_has_all_its_events, "save_event_flows",
     "set state = excluded.state", "set state = state"),
    ("save_event_flows: somebody looks when it is due", a_window_has_all_its_events, "save_event_flows",
     "due_at = excluded.due_at", "due_at = null"),
    ("add_outcomes: what became of an event is on record", a_window_has_all_its_events, "add_outcomes",
     "where true", "where false"),
    ("change_outcomes: the run of an event is on record", a_window_has_all_its_events, "change_outcomes",
     "run = o.value ->> 5", "run = null"),
    ("lock_due_event_flows: only what is due", a_throttled_run_waits_and_starts_once, "lock_due_event_flows",
     "due_at <= semel_now()", "due_at is not null"),
    ("drop_event_flows: a throttled run starts once", a_throttled_run_waits_and_starts_once, "drop_event_flows",
     "f.namespace = ?1", "f.namespace is null"),
    ("forget_events: not those that wait in a flow", what_waits_is_not_forgotten, "forget_events",
     "p.state in ('gathered', 'queued', 'paused')", "0"),
    ("forget_event_flows: not those that are due", what_waits_is_not_forgotten, "forget_event_flows",
     "due_at is null", "1"),
    ("cancellable_outcomes: only older events", only_older_events_are_cancelled, "cancellable_outcomes",
     "(happened_at, arrival) < (?4, ?5)", "1"),
    ("paused_outcomes: they run afterwards", paused_events_run_after_it, "paused_outcomes",
     "p.state = 'paused'", "p.state = 'resumed'"),
    ("due_event_flows: windows close afterwards", a_window_closes_after_a_pause, "due_event_flows",
     "due_at is null", "due_at is null and 0"),
    ("resume_subscription: it is not paused any more", paused_events_run_after_it, "resume_subscription",
     "set paused_at = null", "set paused_at = paused_at"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "check", "statement", "old", "new"), SQLITE, ids=[one[0] for one in SQLITE])
def test_a_missing_guard_of_flows_of_events_is_noticed(
    name: str, check: Check, statement: str, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = prepare(tmp_path)
    asyncio.run(passes(site, check))
    parts = writer_thread.statements()[statement]
    assert any(old in sql for sql, _ in parts), "the mutant does not fit the statement any more"
    monkeypatch.setitem(writer_thread.statements(), statement, [(sql.replace(old, new), count) for sql, count in parts])
    if statement == "lock_due_event_flows":  # it is only looked for if something is due
        other = writer_thread.statements()["find_due_event_flows"]
        monkeypatch.setitem(
            writer_thread.statements(), "find_due_event_flows", [(sql.replace(old, new), count) for sql, count in other]
        )
    with pytest.raises(NOTICED):
        asyncio.run(asyncio.wait_for(passes(site, check), 60))


def test_a_window_that_is_not_due_is_not_closed(tmp_path: Path) -> None:
    asyncio.run(passes(prepare(tmp_path), a_window_waits_for_its_time))


async def one_gathers_at_a_time(shop: EventShop) -> None:
    """Somebody else adds an event to a window: it is waited for, and its event is not overwritten."""
    await shop.gather(batch={"size": 10, "wait": "1m"})
    await shop.app.publish(paid("a"))
    other = await asyncpg.connect(shop.site.url)
    try:
        async with other.transaction():
            await other.fetch("select * from semel_event_flow for no key update")
            adding = asyncio.create_task(shop.app.publish(paid("b")))
            done, _ = await asyncio.wait([adding], timeout=1)
            await other.execute("update semel_event_flow set state = ''")
        await asyncio.wait_for(adding, 30)
        assert not done
    finally:
        await other.close()
    (state,) = await shop.site.sql("select state from semel_event_flow")
    assert b'"a"' not in bytes(state[0]), "it was read before the other had changed it"


def test_without_the_lock_two_publishers_would_overwrite_each_other(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = new_site("postgres", tmp_path, request)
    asyncio.run(passes(site, one_gathers_at_a_time))
    queries = dict(store.load_queries("semel.engines.postgres"))
    assert "for update of f" in queries["lock_event_flows"]
    queries["lock_event_flows"] = queries["lock_event_flows"].replace("for update of f", "")
    monkeypatch.setattr(store, "load_queries", lambda package: queries)
    with pytest.raises(NOTICED):
        asyncio.run(passes(site, one_gathers_at_a_time))
