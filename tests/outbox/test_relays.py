"""What relays promise: disjoint rows, marks under a lease only, bad rows in nobody's way, order where it is wanted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.engine.protocol import Engine
from semel.transactional.outbox import scripts
from semel.transactional.outbox.database import open_database
from semel.transactional.outbox.verbs import execute
from semel.transactional.recognise import recognise
from semel.transactional.statements import One
from tests.outbox.conftest import new_place
from tests.outbox.places import PLACES, Place
from tests.outbox.shop import OutboxShop
from tests.world import World, eventually


class Gone:
    """An engine that does not answer until it is told to; it counts how often it was asked."""

    def __init__(self, inner: Engine) -> None:
        self.inner = inner
        self.away = True
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def start(self, request: Any) -> Any:
        self.asked += 1
        if self.away:
            raise semel.EngineUnavailable("nobody there.")
        return await self.inner.start(request)

    async def start_many(self, requests: Any) -> Any:
        return [await self.start(request) for request in requests]


async def test_two_relays_take_different_rows(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    await shop.mail(*(f"m{n}" for n in range(40)))
    async with shop.relay(batch=10) as one, shop.relay(batch=10) as two:
        for _ in range(2):
            await asyncio.gather(one.step(), two.step())
        while await one.step():
            pass
    assert sorted(event.payload for event in shop.handled) == sorted(f"m{n}" for n in range(40))
    assert await place.statuses() == ["processed"] * 40


async def test_the_oldest_rows_come_first(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    await shop.mail(*(f"m{n}" for n in range(6)))
    async with shop.relay(batch=2, concurrency=1) as relay:
        while await relay.step():
            pass
    assert [event.payload for event in shop.handled] == [f"m{n}" for n in range(6)]


async def test_a_row_that_is_committed_late_is_not_skipped(world: World, postgres_place: Place) -> None:
    shop = OutboxShop(world, postgres_place)
    async with postgres_place.transaction() as late:
        await shop.app.outbox.add("mail.wanted", "late", connection=late)
        await shop.mail("early")
        await shop.relay_all()
        assert [event.payload for event in shop.handled] == ["early"]
    await shop.relay_all()
    assert [event.payload for event in shop.handled] == ["early", "late"]


async def test_who_has_lost_the_lease_marks_nothing(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    await shop.mail("m")
    database = open_database(place.url)
    types = '["mail.wanted"]'
    (row,) = (await database.run(scripts.claim("default", "slow", "old", 60, 10, types))).rows
    done = scripts.Marks(processed=[(row.event.id, None)])
    await place.due_now()  # its lease is over, and nobody has the row yet
    assert await database.run(scripts.mark("default", "old", done, 0)) == 0
    assert (await database.run(scripts.claim("default", "quick", "new", 60, 10, types))).rows
    for mark in (
        done,
        scripts.Marks(errors=[(row.event.id, 1.0, "late")]),
        scripts.Marks(failed=[(row.event.id, "late")]),
        scripts.Marks(put_off=[(row.event.id, 1.0, None)]),
    ):
        assert await database.run(scripts.mark("default", "old", mark, 0)) == 0
    assert await place.sql("select status, retry_count, leased_by from outbox_events") == [("pending", 0, "quick")]
    assert await database.run(scripts.mark("default", "new", done, 0)) == 1
    assert await place.statuses() == ["processed"]
    await database.close()


async def test_bad_rows_are_in_nobodys_way(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    await shop.mail(*["bad"] * 30, "good")
    async with shop.relay(batch=3) as relay:
        while await relay.step():
            pass
        assert [event.payload for event in shop.handled] == ["good"]
        assert await place.sql(
            "select max(retry_count), min(retry_count) from outbox_events where status = 'pending'"
        ) == [(1, 1)]
        for _ in range(9):
            await place.due_now()
            while await relay.step():
                pass
    failed = await shop.app.outbox.list(status="failed")
    assert [row.retry_count for row in failed] == [10] * 30
    assert failed[0].last_error == "ValueError: no such address"


async def test_garbage_is_an_error_of_its_row(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    for payload in ("[1]", "{}", '{"version":1}', '{"name":"ship","options":{"colour":1}}'):
        for kind in ("start", "send", "signal", "cancel", "publish", "task", "event"):
            await place.sql(f"insert into outbox_events (event_type, payload) values ('semel.{kind}', '{payload}')")
    await shop.order(1)
    await shop.relay_all()
    assert (await place.statuses())[-1] == "processed"
    rows = await shop.app.outbox.list(status="pending", limit=100)
    assert {row.retry_count for row in rows} == {1}
    assert all(row.last_error for row in rows)


async def test_an_ordered_row_waits_for_the_earlier_ones(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    with shop.app.outbox_options(order_key="order-7", max_retries=2):
        await shop.mail("bad", "second")
    with shop.app.outbox_options(order_key="order-8", on_failure="continue", max_retries=1):
        await shop.mail("bad", "passes")
    await shop.mail("free")
    await shop.relay_all()
    assert sorted(event.payload for event in shop.handled) == ["free", "passes"]
    await place.due_now()
    await shop.relay_all()  # the first one has failed for good, and holds the second
    assert await place.statuses() == ["failed", "pending", "failed", "processed", "processed"]
    await place.sql("update outbox_events set payload = '\"mended\"' where status = 'failed' and order_key = 'order-7'")
    (held,) = [row for row in await shop.app.outbox.list(status="failed") if row.order_key == "order-7"]
    await shop.app.outbox.redrive(held.id)
    await shop.relay_all()
    assert [event.payload for event in shop.handled][-2:] == ["mended", "second"]


async def test_an_engine_that_is_away_costs_no_tries(
    world: World, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "outage_pause", lambda failures: 1000.0 * failures)  # however slow the machine is
    await try_an_engine_that_is_away(world, place)


async def try_an_engine_that_is_away(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    for number in range(5):
        await shop.order(number)
    engine: Any = Gone(shop.app.engine)
    async with shop.relay(engine) as one, shop.relay(engine) as two, shop.relay(engine) as three:
        await one.step()
        first = engine.asked
        for relay in (one, two, three):
            assert await relay.step() == 0, "the engine is not tried before the pause is over"
        assert engine.asked == first
        for tries in range(1, 4):
            await place.due_now()
            await asyncio.gather(*(relay.step() for relay in (one, two, three)))
            assert engine.asked == first + tries, "one try of all relays"
        assert await place.sql("select failures from outbox_destinations") == [(4,)]
        assert await place.sql("select max(retry_count) from outbox_events") == [(0,)]
        assert await place.statuses() == ["pending"] * 5
        engine.away = False
        await place.due_now()
        while await two.step():
            pass
        assert await place.statuses() == ["processed"] * 5
        assert await place.sql("select * from outbox_destinations") == []
    assert await world.count() == 5


class Refusing(Gone):
    """An engine that answers everything with an error, as one without tables does; or what it is asked to start."""

    def __init__(self, inner: Engine, *, everything: bool) -> None:
        super().__init__(inner)
        self.everything = everything

    async def find(self, kind: str, key: str) -> Any:
        if self.away and self.everything:
            raise semel.MigrationNeeded("there are no tables.")
        return await self.inner.find(kind, key)

    async def start(self, request: Any) -> Any:
        if self.away:
            raise semel.MigrationNeeded("there are no tables.")
        return await self.inner.start(request)


async def test_an_engine_that_refuses_everything_costs_no_tries(world: World, sqlite_place: Place) -> None:
    shop = OutboxShop(world, sqlite_place)
    for number in range(3):
        await shop.order(number)
    engine: Any = Refusing(shop.app.engine, everything=True)
    async with shop.relay(engine) as relay:
        await relay.step()
        assert await sqlite_place.sql("select status, retry_count from outbox_events") == [("pending", 0)] * 3
        assert "there are no tables" in str(await sqlite_place.sql("select last_error from outbox_destinations"))
        engine.away = False
        await sqlite_place.due_now()
        while await relay.step():
            pass
    assert await sqlite_place.statuses() == ["processed"] * 3


async def test_an_engine_that_refuses_one_row_costs_that_row_a_try(world: World, sqlite_place: Place) -> None:
    shop = OutboxShop(world, sqlite_place)
    await shop.order(1)
    engine: Any = Refusing(shop.app.engine, everything=False)
    async with shop.relay(engine) as relay:
        await relay.step()
    assert await sqlite_place.sql("select status, retry_count from outbox_events") == [("pending", 1)]


async def test_a_relay_lives_while_it_is_busy_with_a_batch(
    world: World, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.transactional.outbox.relay.BEAT_EVERY", 0.02)
    shop = OutboxShop(world, place)
    called, free = asyncio.Event(), asyncio.Event()

    @shop.app.outbox_handler("slow")
    async def slow(event: semel.OutboxEvent) -> None:
        called.set()
        await free.wait()

    async with place.transaction() as connection:
        await shop.app.outbox.add("slow", connection=connection)
    async with shop.relay() as relay:
        step = asyncio.create_task(relay.step())
        await called.wait()
        await place.sql("delete from outbox_relays")
        await eventually(lambda: place.sql("select 1 from outbox_relays"))
        free.set()
        assert await step == 1
    assert await place.statuses() == ["processed"]


async def test_a_handler_that_takes_too_long_is_told_its_limit(world: World, sqlite_place: Place) -> None:
    shop = OutboxShop(world, sqlite_place)

    @shop.app.outbox_handler("slow")
    async def slow(event: semel.OutboxEvent) -> None:
        await asyncio.Event().wait()

    async with sqlite_place.transaction() as connection:
        await shop.app.outbox.add("slow", connection=connection)
    async with shop.app.relay(lease="1s"):
        await eventually(lambda: sqlite_place.sql("select 1 from outbox_events where last_error like '%longer lease%'"))


LOCK_WAITS = {
    "postgres": "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
    "mariadb": "select 1 from information_schema.innodb_trx where trx_state = 'LOCK WAIT'",
}


@pytest.mark.parametrize("kind", LOCK_WAITS)
async def test_of_relays_that_look_at_once_one_tries_the_engine(
    world: World, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    await look_at_once(world, await asyncio.to_thread(new_place, kind, tmp_path, request))


async def look_at_once(world: World, place: Place) -> None:
    """Both have seen that it is due, before either has said so. SQLite has one writer, and no such moment."""
    kind = next(kind for kind, one in PLACES.items() if type(place) is one)
    shop = OutboxShop(world, place)
    await shop.order(1)
    database = open_database(place.url)
    try:
        await database.run(scripts.mark("default", "t", scripts.Marks(unavailable="away"), 0))
        await place.sql("update outbox_destinations set retry_at = since")
        async with place.transaction() as first:
            given = await recognise(first)
            assert await execute(given, One("take_probe", ("default", 60.0)))
            second = asyncio.create_task(database.run(scripts.claim("default", "r", "token", 60, 10, "[]")))
            await eventually(lambda: place.sql(LOCK_WAITS[kind]))
        claimed = await second
        assert claimed.rows == []
        assert claimed.wait == scripts.PROBE_FOR
    finally:
        await database.close()


async def test_one_row_without_an_answer_does_not_stop_the_others(world: World, place: Place) -> None:
    """Also if it is the first one that the engine is tried with after it was away."""
    shop = OutboxShop(world, place)
    for number in range(4):
        await shop.order(number)
    engine: Any = Gone(shop.app.engine)
    answer = engine.start

    async def start(request: Any) -> Any:
        if request.key == "ship:0":
            raise semel.EngineUnavailable("not this one.")
        return await answer(request)

    engine.start = start
    async with shop.relay(engine) as relay:
        await relay.step()
        assert await place.sql("select failures from outbox_destinations") == [(1,)]
        engine.away = False

        async def through() -> bool:
            await place.sql("update outbox_destinations set retry_at = since")
            await relay.step()
            return (await place.statuses()).count("processed") == 3

        await eventually(through)
    assert await place.statuses() == ["pending", "processed", "processed", "processed"]
    assert await place.sql("select max(retry_count) from outbox_events") == [(0,)]


async def test_a_relay_without_the_function_leaves_the_row(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    await place.sql(
        "insert into outbox_events (event_type, payload) "
        """values ('semel.task', '{"name": "later"}'), ('other.kind', '1'), ('semel.start', '{"version": 99}')"""
    )
    await shop.relay_all()
    await place.due_now()
    await shop.relay_all()
    assert await place.sql("select status, retry_count from outbox_events") == [("pending", 0)] * 3
    reasons = [row.last_error for row in reversed(await shop.app.outbox.list())]
    assert reasons[:2] == ["a relay was there that lacks task 'later'", None], "nobody takes a type without a handler"
    assert "as this one is written" in str(reasons[2])

    @shop.app.task
    async def later() -> None: ...

    @shop.app.outbox_handler("other.kind")
    def other(event: semel.OutboxEvent) -> None:
        shop.handled.append(event)

    await place.due_now()
    await shop.relay_all()
    assert await place.statuses() == ["processed", "processed", "pending"]
    assert [event.payload for event in shop.handled] == [1]


async def test_a_relay_says_once_what_it_leaves_to_others(
    world: World, sqlite_place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    shop = OutboxShop(world, sqlite_place)
    await sqlite_place.sql(
        """insert into outbox_events (event_type, payload) values ('semel.task', '{"name": "later"}')"""
    )
    async with shop.relay() as relay:
        for _ in range(3):
            await sqlite_place.due_now()
            await relay.step()
    assert [one.getMessage() for one in caplog.records if "task 'later'" in one.getMessage()] == [
        "rows are left to other relays, and wait if there are none: this one does not know task 'later'"
    ]


async def test_carried_out_and_not_marked_it_is_carried_out_once(world: World, place: Place) -> None:
    """A relay dies between the start and its mark: the next one starts the same, also if its key has moved on."""
    shop = OutboxShop(world, place)
    handle = await shop.order(1)
    await place.sql(
        'insert into outbox_events (event_type, payload) values (\'semel.task\', \'{"name": "ship", '
        '"arguments": {"order": 2}}\')'
    )
    await shop.relay_all()
    async with world.worker(shop.app):
        assert await handle.result(timeout=60) == "shipped 1"
    again = await shop.app.enqueue(shop.ship, 1, task_id="ship:1", reuse="always")
    assert not again.duplicate
    for _ in range(2):
        await place.sql("update outbox_events set status = 'pending'")
        await place.due_now()
        await shop.relay_all()
    assert await place.statuses() == ["processed", "processed"]
    assert await world.count() == 3


async def test_a_failed_row_is_tried_again_when_asked(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    with shop.app.outbox_options(max_retries=1):
        await shop.mail("bad")
    await shop.relay_all()
    (row,) = await shop.app.outbox.list(status="failed")
    await shop.app.outbox.redrive(row.id)
    with pytest.raises(semel.NotRedrivable, match="pending"):
        await shop.app.outbox.redrive(row.id)
    with pytest.raises(semel.NotFound):
        await shop.app.outbox.redrive(12345)
    await shop.relay_all()
    assert await shop.app.outbox.redrive_failed() == 1
    assert (await shop.app.outbox.get(row.id)).retry_count == 0


async def test_processed_rows_are_cleaned_and_no_others(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    with shop.app.outbox_options(max_retries=1):
        await shop.mail("good", "bad")
    await shop.relay_all()
    await shop.mail("new")
    async with shop.relay(retention=0.0) as relay:
        await relay._clean()
        assert relay.counters.cleaned == 1
    assert await place.statuses() == ["failed", "pending"]
    with pytest.raises(semel.InvalidValue, match="never deleted"):
        await shop.app.outbox.purge("pending")
    assert await shop.app.outbox.purge("failed", older_than="1h") == 0
    assert await shop.app.outbox.purge("failed") == 1
    assert await place.statuses() == ["pending"]


async def test_doctor_is_red_while_rows_wait_and_no_relay_lives(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)

    async def look() -> dict[str, tuple[bool, str]]:
        return {one.what: (one.ok, one.detail) for one in await shop.app.doctor() if one.what.startswith("outbox")}

    assert (await look())["outbox"] == (True, "no row waits, 0 relays")
    await shop.mail("bad")
    ok, detail = (await look())["outbox"]
    assert not ok
    assert "no relay lives" in detail
    async with shop.app.relay():
        await eventually(lambda: place.sql("select 1 from outbox_events where retry_count > 0"))
        assert (await look())["outbox"][0]
    await place.sql("update outbox_events set status = 'failed', retry_count = 10")
    assert not (await look())["outbox failures"][0]


async def test_a_relay_outlives_a_handler_that_is_cancelled(world: World, sqlite_place: Place) -> None:
    shop = OutboxShop(world, sqlite_place)

    @shop.app.outbox_handler("strange")
    async def strange(event: semel.OutboxEvent) -> None:
        raise asyncio.CancelledError

    async with sqlite_place.transaction() as connection:
        await shop.app.outbox.add("strange", connection=connection)
    async with shop.app.relay() as (relay,):
        await eventually(lambda: sqlite_place.sql("select 1 from outbox_events where retry_count > 0"))
        assert relay.healthy


async def test_a_row_that_cannot_be_read_is_in_nobodys_way(world: World, sqlite_place: Place) -> None:
    """SQLite takes anything, and plain SQL writes anything."""
    shop = OutboxShop(world, sqlite_place)
    deep = "[" * 900 + "]" * 900
    for values in (
        "('semel.task', '{}', 'yesterday', 7)",
        f"('semel.start', '{deep}', 5, x'ff')",
        "('mail.wanted', '\"good\"', 'no time at all', null)",
    ):
        await sqlite_place.sql(f"insert into outbox_events (event_type, payload, created_at, key) values {values}")
    await shop.order(1)
    await shop.relay_all()
    assert [event.payload for event in shop.handled] == ["good"]
    assert (await sqlite_place.statuses())[-1] == "processed"
    assert len(await shop.app.outbox.list()) == 4
