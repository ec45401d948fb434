"""Each event runs each activity that wants it once, however often it is delivered; the rest leaves its reason."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import semel
from semel.contract.events import EventState, MatchKind
from semel.contract.runs import Why
from semel.triggers.ids import event_part
from tests.world import World, eventually

HOUR = timedelta(hours=1)


def paid(id: str, cents: int = 900, **more: Any) -> semel.EventEnvelope:
    """An invoice was paid."""
    return semel.EventEnvelope(
        event_id=id, **{"source": "/shop", "type": "invoice.paid", "data": {"cents": cents}, **more}
    )


class Shop:
    """A task that runs for invoices that were paid, and notes them."""

    def __init__(self, world: World, app: semel.App | None = None, **options: Any) -> None:
        self.world = world
        self.app = app or world.app()
        self.seen: list[tuple[str, semel.Run]] = []
        self.fails = False

        @self.app.on_event("invoice.paid", where="data.cents > 0", **options)
        @self.app.task(name="bill", retry=1)
        async def bill(event: semel.EventEnvelope, run: semel.Run) -> str:
            self.seen.append((event.event_id, run))
            if self.fails:
                raise ValueError("no paper")
            assert isinstance(event.data, dict)
            return f"{event.event_id} {event.data['cents']}"

        self.bill = bill

    async def open(self) -> Shop:
        await self.app.apply()
        return self


async def test_an_event_runs_once_under_its_exact_id(world: World) -> None:
    app = world.app()

    @app.on_event("invoice.paid", id="550e8400-e29b-41d4-a716-446655440000")
    @app.task
    async def bill(event: semel.EventEnvelope, run: semel.Run) -> str:
        return f"{run.key} {run.why} {run.event_id} {event.type}"

    assert [str(change) for change in await app.apply()] == ["create 550e8400-e29b-41d4-a716-446655440000"]
    receipt = await app.publish(paid("evt_abc123"))
    key = "activity-550e8400-e29b-41d4-a716-446655440000:evt_abc123"
    assert (receipt.event_id, receipt.duplicate, receipt.state) == ("evt_abc123", False, EventState.ROUTED)
    assert [run.key for run in receipt.runs] == [key]
    async with world.worker(app):
        assert await receipt.runs[0].result("60s") == f"{key} event evt_abc123 invoice.paid"
    again = await app.publish(paid("evt_abc123"))
    assert (again.duplicate, again.runs[0].id) == (True, receipt.runs[0].id)
    assert again.run_again == "semel events replay evt_abc123"
    found = await app.find(key)
    assert found is not None
    assert found.id == receipt.runs[0].id
    page = await app.events.get("evt_abc123")
    assert (page.info.duplicates, page.info.activities) == (1, ("550e8400-e29b-41d4-a716-446655440000",))
    assert [(run.why, run.generation, run.execution) for run in page.runs] == [(Why.EVENT, 0, found.id)]
    assert "delivered once more" in str(await app.explain(key))


async def test_same_id_other_content_is_refused_and_names_the_fields(world: World) -> None:
    shop = await Shop(world).open()
    await shop.app.publish(paid("one", 900))
    with pytest.raises(semel.KeyConflict, match=r"data\.cents: 900 -> 901") as refused:
        await shop.app.publish(paid("one", 901))
    assert refused.value.differences == {"data.cents": (900, 901)}
    with pytest.raises(semel.KeyConflict, match=r"data\.cents"):
        await shop.app.publish_many([paid("two", 1), paid("two", 2), paid("three")])
    page = await shop.app.events.get("two")
    assert page.event.data == {"cents": 1}, "the first one counts"
    assert (await shop.app.events.get("three")).info.state is EventState.ROUTED, "the others are in"


async def test_duplicates_in_one_list_are_one_run(world: World) -> None:
    shop = await Shop(world).open()
    receipts = await shop.app.publish_many([paid("a"), paid("b"), paid("a"), paid("a")])
    assert [one.duplicate for one in receipts] == [False, False, True, True]
    assert receipts[0].runs[0].id == receipts[2].runs[0].id != receipts[1].runs[0].id
    async with world.worker(shop.app):
        await receipts[0].runs[0].result("60s")
        await receipts[1].runs[0].result("60s")
    assert sorted(id for id, _ in shop.seen) == ["a", "b"]
    assert (await shop.app.events.get("a")).info.duplicates == 2


async def test_what_does_not_match_is_kept_with_its_reasons(world: World) -> None:
    app = world.app()

    @app.on_event("invoice.*", source="/shop*", where="data.cents > 0")
    @app.task
    async def bill() -> None: ...

    @app.on_event("order.placed")
    @app.task
    async def pack() -> None: ...

    await app.apply()
    free, elsewhere = await app.publish_many([paid("free", 0), paid("elsewhere", source="/other")])
    assert (free.state, free.runs, free.problem) == (EventState.UNMATCHED, (), None)
    assert elsewhere.state is EventState.UNMATCHED
    broken = await app.publish(paid("broken", data={"amount": 3}))
    assert broken.state is EventState.UNMATCHED
    assert broken.problem is not None
    assert "cents" in broken.problem, "a filter that cannot be evaluated fails closed and says so"
    kinds = {}
    for id in ("free", "elsewhere", "broken"):
        matches = (await app.events.get(id)).matches
        kinds[id] = {match.activity: match.kind for match in matches}
    assert {id: kind["bill"] for id, kind in kinds.items()} == {
        "free": MatchKind.FILTERED,
        "elsewhere": MatchKind.OTHER_SOURCE,
        "broken": MatchKind.PROBLEM,
    }
    assert kinds["free"]["pack"] is MatchKind.OTHER_TYPE
    assert [one.event_id for one in await app.events.list(state="unmatched")] != []


async def test_a_workflow_and_a_task_run_for_one_event(world: World) -> None:
    app = world.app()

    @app.on_event("invoice.paid", "invoice.settled")
    @app.workflow
    async def settle(ctx: semel.Context, event: semel.EventEnvelope) -> str:
        return f"settled {event.event_id}"

    @app.on_event("invoice.paid")
    @app.task
    async def count() -> str:
        return "counted"

    await app.apply()
    receipt = await app.publish(paid("evt"))
    async with world.worker(app):
        results = {run.name: await run.result("60s") for run in receipt.runs}
    assert results == {"settle": "settled evt", "count": "counted"}


HOSTILE = [
    "evt/with:colons/and#more?",
    "x" * 300,
    "2026-03-01T09:00:00+00:00",
    "manual:request",
    "evt:2026-03-01T09:00:00+00:00",
    "sha256:" + "a" * 64,
    "ü" * 200,
    "a,b",
]


async def test_hostile_ids_are_different_events(world: World) -> None:
    shop = await Shop(world).open()
    receipts = await shop.app.publish_many(map(paid, HOSTILE))
    assert [one.duplicate for one in receipts] == [False] * len(HOSTILE)
    assert len({one.runs[0].key for one in receipts}) == len(HOSTILE)
    assert [one.event_id for one in receipts] == [event_part(id) for id in HOSTILE]
    again = await shop.app.publish_many(map(paid, HOSTILE))
    assert [one.runs[0].id for one in again] == [one.runs[0].id for one in receipts]
    assert all(one.duplicate for one in again)
    for id in HOSTILE:
        assert (await shop.app.events.get(id)).event.event_id == id
    async with world.worker(shop.app):
        await eventually(lambda: len(shop.seen) == len(HOSTILE))
    assert sorted(id for id, _ in shop.seen) == sorted(HOSTILE)


async def test_the_same_id_from_two_sources_is_two_events(world: World) -> None:
    """An id of a CloudEvent counts within its source; one that has the form of a slot is no slot."""
    shop = await Shop(world).open()
    for id in ("1", "2026-03-01T09:00:00+00:00"):
        cloud = {"specversion": "1.0", "id": id, "type": "invoice.paid", "data": {"cents": 1}}
        events = [semel.EventEnvelope.from_cloudevent({**cloud, "source": source}) for source in ("/a", "/b", "/a")]
        receipts = await shop.app.publish_many(events)
        assert [one.duplicate for one in receipts] == [False, False, True]
        assert [one.runs[0].key for one in receipts[:2]] == [f"activity-bill:/a#{id}", f"activity-bill:/b#{id}"]


async def test_events_that_come_late_and_out_of_order_each_run_once(world: World) -> None:
    """Whatever an event is dated and whenever it comes: it counts, once, and nothing overtakes or replaces it."""
    shop = await Shop(world).open()
    now = world.now()
    times = {"new": now, "old": now - 400 * 24 * HOUR, "before": now - HOUR, "ahead": now + HOUR, "undated": None}
    events = [paid(id, time=time) for id, time in times.items()]
    receipts = [await shop.app.publish(event) for event in [*events, *reversed(events)]]
    assert [one.duplicate for one in receipts] == [False] * 5 + [True] * 5
    async with world.worker(shop.app):
        await eventually(lambda: len(shop.seen) >= 5)
    assert sorted(id for id, _ in shop.seen) == sorted(times)
    flagged = {id for id in times if (await shop.app.events.get(id)).info.future}
    assert flagged == {"ahead"}


async def test_concurrent_deliveries_are_one_run(world: World) -> None:
    shop = await Shop(world).open()
    others = [Shop(world) for _ in range(3)]
    apps = [shop.app, *(one.app for one in others)]
    deliveries = [app.publish(paid(f"e{number}")) for app in apps for number in range(10) for _ in range(3)]
    receipts = await asyncio.gather(*deliveries)
    first = [one.event_id for one in receipts if not one.duplicate]
    assert sorted(first) == sorted(f"e{number}" for number in range(10)), "each counts once"
    assert len({one.runs[0].key for one in receipts}) == 10
    assert len({one.runs[0].id for one in receipts}) == 10


async def test_a_subscription_that_changes_is_noticed_by_other_processes(world: World) -> None:
    """A process that has published before routes by what is published now, and not by what it remembers."""
    shop, other = await Shop(world).open(), world.app()
    assert (await shop.app.publish(paid("one"))).runs != ()

    @other.on_event("invoice.paid", id="late")
    @other.task
    async def count() -> None: ...

    await other.apply()
    receipt = await shop.app.publish(paid("two"))
    assert sorted(run.key or "" for run in receipt.runs) == ["activity-bill:two", "activity-late:two"]


async def test_an_event_is_delivered_later(world: World) -> None:
    shop = await Shop(world).open()
    at = world.now() + HOUR
    receipt = await shop.app.publish(paid("later"), deliver_at=at)
    assert (receipt.state, receipt.runs) == (EventState.WAITING, ())
    assert (await shop.app.publish(paid("later"), deliver_at=at)).duplicate
    async with world.worker(shop.app):
        await world.advance("30m")
        assert (await shop.app.events.get("later")).info.state is EventState.WAITING
        await world.advance("31m")
        await eventually(lambda: [id for id, _ in shop.seen] == ["later"])
    info = (await shop.app.events.get("later")).info
    assert (info.state, info.deliver_at, info.duplicates) == (EventState.ROUTED, at, 1)


async def test_an_event_of_the_future_is_flagged_and_runs(world: World) -> None:
    shop = await Shop(world).open()
    receipt = await shop.app.publish(paid("early", time=world.now() + 2 * HOUR))
    assert receipt.state is EventState.ROUTED
    assert (await shop.app.events.get("early")).info.future


async def test_events_are_refused_at_the_door(world: World) -> None:
    shop = await Shop(world).open()
    with pytest.raises(semel.InvalidValue, match="EventEnvelope"):
        await shop.app.publish({"id": "x"})  # type: ignore[arg-type]
    with pytest.raises(semel.PayloadTooLarge, match="event takes"):
        await shop.app.publish(paid("huge", data={"text": "x" * 1_100_000}))
    with pytest.raises(semel.InvalidValue, match="time zone"):
        await shop.app.publish(paid("naive"), deliver_at=world.now().replace(tzinfo=None))
    assert await shop.app.events.list() == []


async def test_an_event_that_cannot_be_run_for_is_parked_and_replayed(world: World) -> None:
    """It fits alone, and not beside the other arguments of the function."""
    app = world.app()

    @app.on_event("invoice.paid")
    @app.task(name="bill")
    async def bill(event: semel.EventEnvelope, note: str = "") -> int:
        return len(str(event.data))

    await app.apply()
    room = (1 << 20) - len(msgspec.json.encode(paid("big", data={"text": ""}).model_dump(exclude_none=True)))
    receipt = await app.publish(paid("big", data={"text": "x" * (room - 3)}))
    assert (receipt.state, receipt.runs) == (EventState.PARKED, ())
    assert receipt.problem is not None
    assert "bill" in receipt.problem
    assert any(one.what == "parked events" and not one.ok for one in await app.doctor())
    other = world.app()

    @other.on_event("invoice.paid", id="bill")
    @other.task(name="bill")
    async def slim() -> str:
        return "slim"

    await other.apply()
    replayed = await other.events.replay("big")
    assert replayed.state is EventState.ROUTED
    async with world.worker(other):
        assert await replayed.runs[0].result("60s") == "slim"


async def test_a_failed_run_is_replayed_as_the_next_generation(world: World) -> None:
    shop = await Shop(world).open()
    shop.fails = True
    receipt = await shop.app.publish(paid("evt"))
    async with world.worker(shop.app):
        with pytest.raises(semel.ExecutionFailed):
            await receipt.runs[0].result("60s")
        assert (await shop.app.publish(paid("evt"))).duplicate, "a redelivery does not run it again"
        shop.fails = False
        replayed = await shop.app.events.replay("evt")
        assert await replayed.runs[0].result("60s") == "evt 900"
        assert (await shop.app.events.replay("evt")).runs == (), "what completed is left alone"
        once_more = await shop.app.events.replay("evt", completed=True)
        assert await once_more.runs[0].result("60s") == "evt 900"
    (run,) = (await shop.app.events.get("evt")).runs
    assert (run.generation, run.why) == (2, Why.REPLAY)
    assert len(shop.seen) == 3


async def test_a_redelivery_after_a_failure_runs_where_the_activity_wants_it(world: World) -> None:
    shop = await Shop(world, reuse="failed_only").open()
    shop.fails = True
    receipt = await shop.app.publish(paid("evt"))
    async with world.worker(shop.app):
        with pytest.raises(semel.ExecutionFailed):
            await receipt.runs[0].result("60s")
        shop.fails = False
        again = await shop.app.publish(paid("evt"))
        assert again.duplicate
        assert again.runs[0].id != receipt.runs[0].id
        assert await again.runs[0].result("60s") == "evt 900"
        third = await shop.app.publish(paid("evt"))
        assert third.runs[0].id == again.runs[0].id
    assert len(shop.seen) == 2


async def test_an_activity_that_is_added_later_is_backfilled(world: World) -> None:
    app = world.app()
    await app.publish_many([paid("a"), paid("b", 0), paid("c"), paid("d", type="other")])
    shop = await Shop(world).open()
    assert await shop.app.events.backfill("bill", dry_run=True) == ["a", "c"]
    assert await shop.app.events.backfill("bill") == ["a", "c"]
    assert await shop.app.events.backfill("bill") == [], "each has its run"
    async with world.worker(shop.app):
        await eventually(lambda: sorted(id for id, _ in shop.seen) == ["a", "c"])
    assert {run.why for _, run in shop.seen} == {Why.BACKFILL}
    page = await shop.app.events.get("a")
    assert (page.info.state, page.info.activities) == (EventState.ROUTED, ("bill",))
    with pytest.raises(semel.NotFound, match="semel apply"):
        await shop.app.events.backfill("nobody")


async def test_events_are_kept_for_their_time(world: World) -> None:
    shop = await Shop(world).open()
    await shop.app.publish_many([paid("old"), paid("unwanted", 0)])
    waiting = await shop.app.publish(paid("waiting"), deliver_at=world.now() + 60 * 24 * HOUR)
    assert waiting.state is EventState.WAITING
    await world.advance("31d")
    await shop.app.publish(paid("new"))
    await (await shop.app.engine.events()).forget()  # type: ignore[attr-defined]
    assert {one.event_id for one in await shop.app.events.list()} == {"new", "waiting"}


async def test_apply_tells_owners_orphans_and_renames_apart(world: World) -> None:
    shop = await Shop(world).open()
    assert [str(one) for one in await shop.app.apply()] == ["keep bill"]
    renamed = Shop(world, id="invoices")
    plan = await renamed.app.apply(dry_run=True)
    assert [(one.kind.value, one.id, one.what) for one in plan] == [
        ("create", "invoices", "event"),
        ("orphan", "bill", "event"),
    ]
    assert "runs the same function as bill" in plan[0].detail
    assert [str(one) for one in await renamed.app.apply(prune=True)] == ["create invoices", "delete bill"]
    assert [one.id for one in await renamed.app.events.subscriptions()] == ["invoices"]


async def test_an_activity_runs_by_time_and_for_events(world: World) -> None:
    from semel.triggers import ActivityDefinition, CronTriggerConfig, EventTriggerConfig, TaskSpec

    app = world.app()
    seen: list[tuple[str, str | None]] = []

    @app.task
    async def collect(city: str, event: semel.EventEnvelope | None = None) -> None:
        seen.append((city, None if event is None else event.event_id))

    @app.task
    async def send(run: semel.Run) -> str:
        return run.key

    app.activity(
        ActivityDefinition(
            activity_id="report",
            triggers=[CronTriggerConfig(cron="0 3 * * *"), EventTriggerConfig(types="invoice.*")],
            tasks=[TaskSpec(task_type="collect", arguments={"city": "Oslo"}), TaskSpec(task_type="send")],
        )
    )
    assert [(str(one), one.what) for one in await app.apply()] == [
        ("create report", "schedule"),
        ("create report", "event"),
    ]
    receipt = await app.publish(paid("evt"))
    async with world.worker(app):
        assert await receipt.runs[0].result("60s") == [None, "activity-report:evt"]
    assert seen == [("Oslo", "evt")]


async def test_what_cannot_be_declared_is_refused(world: World) -> None:
    app = world.app()

    @app.task
    async def bill(cents: int) -> None: ...

    with pytest.raises(TypeError, match="which"):
        app.on_event()
    with pytest.raises(semel.SemelError, match="cents"):
        app.on_event("x", where="data.cents >")(bill)
    with pytest.raises(TypeError, match="cents"):
        app.on_event("invoice.paid")(bill)
    with pytest.raises(semel.DefinitionError, match="neither a task"):
        app.on_event("invoice.paid")(print)

    @app.on_event("invoice.paid")
    @app.task
    async def pack() -> None: ...

    with pytest.raises(semel.DefinitionError, match="two activities"):
        app.on_event("invoice.paid")(pack)
    with pytest.raises(semel.DefinitionError, match="':'"):
        app.on_event("invoice.paid", id="a:b")(pack)
    app.on_schedule("@daily")(pack)


async def test_a_source_has_rules_of_its_own(world: World) -> None:
    from semel.triggers.event_source import EventSource

    shop = await Shop(world).open()
    source = EventSource(name="shop", source="/shop*", max_future="1h", reuse="failed_only")
    early = await shop.app.publish(paid("early", time=world.now() + 3 * HOUR), source=source)
    assert (early.state, early.runs) == (EventState.PARKED, ())
    assert early.problem is not None
    assert "in the future" in early.problem
    with pytest.raises(semel.InvalidValue, match="/other"):
        await shop.app.publish(paid("elsewhere", source="/other"), source=source)
    shop.fails = True
    first = await shop.app.publish(paid("evt"), source=source)
    async with world.worker(shop.app):
        with pytest.raises(semel.ExecutionFailed):
            await first.runs[0].result("60s")
        shop.fails = False
        again = await shop.app.publish(paid("evt"), source=source)
        assert await again.runs[0].result("60s") == "evt 900"
        assert (await shop.app.events.replay("early")).state is EventState.ROUTED, "an operator may"


async def test_an_event_without_an_id_counts_for_an_hour(world: World) -> None:
    """It is named by its content: what looks the same after that is another event, and runs."""
    from semel.triggers.cloudevents import read_event

    shop = await Shop(world).open()

    def come() -> Any:
        data = {"specversion": "1.0", "source": "/till", "type": "invoice.paid", "data": {"cents": 5}}
        return shop.app.publish(read_event(data))

    first, second = await come(), await come()
    assert (first.duplicate, second.duplicate) == (False, True)
    async with world.worker(shop.app):
        await first.runs[0].result("60s")
        await world.advance("61m")
        third, fourth = await come(), await come()
        assert (third.duplicate, fourth.duplicate) == (False, True)
        assert fourth.runs[0].id == third.runs[0].id != first.runs[0].id
        await third.runs[0].result("60s")
    assert len(shop.seen) == 2
