"""A sweeper starts what is stuck again, once, under its stable key; it ignores the recent and harms no other row."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

import semel
from semel import Status, Stuck, Sweep, SweepOutcome, SweepReport
from semel.contract.runs import ChangeKind
from tests.world import World, ended, eventually

FIVE = timedelta(minutes=5)


@dataclass
class Tenant:
    """A business row: stuck as long as it is not active."""

    id: int
    since: datetime
    active: bool = False


@dataclass
class Shop:
    """Tenants in a table of their own, a workflow that provisions one, and a sweeper for those that are stuck."""

    world: World
    app: semel.App
    tenants: dict[int, Tenant] = field(default_factory=dict)
    provisioned: list[int] = field(default_factory=list)
    fails: set[int] = field(default_factory=set)
    useless: set[int] = field(default_factory=set)
    """Tenants whose workflow completes and leaves them as they are."""

    def add(self, *ids: int, age: timedelta = timedelta(hours=1)) -> None:
        for id in ids:
            self.tenants[id] = Tenant(id, self.world.now() - age)

    def stuck(self, before: datetime) -> list[Tenant]:
        return [one for one in self.tenants.values() if not one.active and one.since < before]


def shop_in(world: World, **options: Any) -> Shop:
    app = world.app()
    shop = Shop(world, app)

    @app.task(name="activate", retry=1)
    async def activate(id: int) -> str:
        shop.provisioned.append(id)
        if id in shop.fails:
            raise ValueError("no room")
        if id not in shop.useless:
            shop.tenants[id].active = True
        return f"tenant {id}"

    @app.sweeper("stuck-tenants", **{"every": "15m", "older_than": "5m", **options})
    def stuck_tenants(sweep: Sweep) -> Iterator[Stuck]:
        for tenant in shop.stuck(sweep.before):
            yield Stuck(f"tenant-{tenant.id}", activate, tenant.id)

    return shop


def counts(report: SweepReport) -> tuple[int, int, int, int]:
    return report.started, report.under_way, report.completed, report.error


async def test_finds_the_stuck(world: World) -> None:
    shop = shop_in(world)
    shop.add(1, 2, 3)
    shop.tenants[3].active = True
    report = await shop.app.sweep("stuck-tenants")
    assert counts(report) == (2, 0, 0, 0)
    assert report.stuck == 2
    async with world.worker(shop.app):
        for id in (1, 2):
            handle = await shop.app.find(f"tenant-{id}", kind="task")
            assert handle is not None
            assert await handle.result("60s") == f"tenant {id}"
    assert sorted(shop.provisioned) == [1, 2]
    assert await shop.app.find("tenant-3") is None


async def test_ignores_the_recent(world: World) -> None:
    shop = shop_in(world)
    shop.add(1, age=FIVE + timedelta(minutes=1))
    shop.add(2, age=FIVE - timedelta(minutes=1))
    assert counts(await shop.app.sweep("stuck-tenants")) == (1, 0, 0, 0)
    assert await shop.app.find("tenant-1") is not None
    assert await shop.app.find("tenant-2") is None


async def test_ignores_what_says_that_it_is_recent(world: World) -> None:
    """A query that forgets the age, or goes by another clock, recovers nothing too early."""
    shop = shop_in(world)

    @shop.app.sweeper("by-age")
    def by_age(sweep: Sweep) -> Iterator[Stuck]:
        activate = shop.app.tasks.task("activate")
        for tenant in shop.tenants.values():
            yield Stuck(f"tenant-{tenant.id}", activate.call(id=tenant.id), since=tenant.since)

    shop.add(1)
    shop.add(2, age=FIVE - timedelta(minutes=1))
    report = await shop.app.sweep("by-age")
    assert (counts(report), report.recent, report.stuck) == ((1, 0, 0, 0), 1, 1)
    assert await shop.app.find("tenant-2") is None


async def test_recovers_once(world: World) -> None:
    """However often it runs: also while the first start is still pending, and from several processes at once."""
    shop, other = shop_in(world), shop_in(world)
    other.tenants = shop.tenants
    shop.add(1, 2)
    first = await shop.app.sweep("stuck-tenants")
    assert counts(first) == (2, 0, 0, 0)
    again = await asyncio.gather(*[one.app.sweep("stuck-tenants") for one in (shop, other) for _ in range(3)])
    assert [counts(report) for report in again] == [(0, 2, 0, 0)] * 6
    async with world.worker(shop.app):
        for id in (1, 2):
            handle = await shop.app.find(f"tenant-{id}")
            assert handle is not None
            await handle.result("60s")
    assert sorted(shop.provisioned) == [1, 2]
    assert counts(await other.app.sweep("stuck-tenants")) == (0, 0, 0, 0)


async def test_sweepers_that_race_recover_once(world: World) -> None:
    shops = [shop_in(world) for _ in range(4)]
    for one in shops[1:]:
        one.tenants = shops[0].tenants
    shops[0].add(*range(5))
    reports = await asyncio.gather(*[one.app.sweep("stuck-tenants") for one in shops])
    assert sum(report.started for report in reports) == 5
    assert sum(report.under_way for report in reports) == 15


async def test_what_failed_is_started_again_and_what_completed_is_reported(world: World) -> None:
    shop = shop_in(world)
    shop.add(1, 2)
    shop.fails.add(1)
    shop.useless.add(2)
    async with world.worker(shop.app):
        await shop.app.sweep("stuck-tenants")
        for id in (1, 2):
            handle = await shop.app.find(f"tenant-{id}")
            assert handle is not None
            await ended(handle)
        shop.fails.clear()
        report = await shop.app.sweep("stuck-tenants")
        assert counts(report) == (1, 0, 1, 0), "2 completed although it is stuck"
        assert [(row.key, row.outcome) for row in report.rows] == [("tenant-2", SweepOutcome.COMPLETED)]
        handle = await shop.app.find("tenant-1")
        assert handle is not None
        assert await handle.result("60s") == "tenant 1"
    assert sorted(shop.provisioned) == [1, 1, 2]


async def test_what_completed_is_started_again_only_if_asked_for(world: World) -> None:
    shop = shop_in(world, reuse="always")
    shop.add(1)
    shop.useless.add(1)
    async with world.worker(shop.app):
        for times in (1, 2):
            assert counts(await shop.app.sweep("stuck-tenants")) == (1, 0, 0, 0)
            handle = await shop.app.find("tenant-1")
            assert handle is not None
            await handle.result("60s")
            assert shop.provisioned == [1] * times


async def test_it_runs_by_its_schedule_and_reports_its_last_run(world: World) -> None:
    shop = shop_in(world, start_at=world.now().replace(microsecond=0) + timedelta(hours=1))
    plan = await shop.app.apply()
    assert [(change.kind, change.id) for change in plan] == [(ChangeKind.CREATE, "stuck-tenants")]
    (state,) = await shop.app.sweepers.list()
    assert (state.name, state.last_run, state.report) == ("stuck-tenants", None, None)
    (finding,) = [one for one in await shop.app.doctor() if one.what == "sweeper stuck-tenants"]
    assert (finding.ok, finding.detail) == (True, "it has not run yet")
    shop.add(1)
    async with world.worker(shop.app):
        await world.advance("61m")

        async def reported() -> bool:
            return (await shop.app.sweepers.get("stuck-tenants")).report is not None

        await eventually(reported)
        handle = await shop.app.find("tenant-1")
        assert handle is not None
        await handle.result("60s")
    state = await shop.app.sweepers.get("stuck-tenants")
    (run,) = await shop.app.schedules.runs("stuck-tenants")
    assert state.report is not None
    assert counts(state.report) == (1, 0, 0, 0)
    assert state.report.before == run.scheduled_for - FIVE, "it goes by its slot, and not by anybody's clock"
    assert (state.last_run, state.status) == (run.scheduled_for, Status.COMPLETED)
    (finding,) = [one for one in await shop.app.doctor() if one.what == "sweeper stuck-tenants"]
    assert finding.ok
    assert "1 stuck: 1 started" in finding.detail


async def test_doctor_is_red_while_rows_are_stuck_that_it_cannot_recover(world: World) -> None:
    shop = shop_in(world, start_at=world.now().replace(microsecond=0) + timedelta(hours=1))
    await shop.app.apply()
    shop.add(1)
    shop.useless.add(1)

    async def finding() -> tuple[bool, str]:
        (found,) = [one for one in await shop.app.doctor() if one.what == "sweeper stuck-tenants"]
        return found.ok, found.detail

    async def is_red() -> bool:
        return not (await finding())[0]

    async with world.worker(shop.app):
        await shop.app.sweep("stuck-tenants")
        handle = await shop.app.find("tenant-1")
        assert handle is not None
        await handle.result("60s")
        await world.advance("61m")
        await eventually(is_red)
    assert "1 completed although stuck: tenant-1" in (await finding())[1]


async def test_a_bad_row_harms_no_other(world: World) -> None:
    shop = shop_in(world)
    await shop.app.enqueue(shop.app.tasks.task("activate"), 99, task_id="taken")
    app, activate = shop.app, shop.app.tasks.task("activate")

    @app.task(name="other")
    async def other(id: int) -> None: ...

    class Hostile:
        @property
        def key(self) -> str:
            raise RuntimeError("no key")

        def __repr__(self) -> str:
            raise RuntimeError("no repr")

    @app.sweeper("mixed")
    async def mixed(sweep: Sweep) -> AsyncIterator[Any]:
        yield Stuck("", activate, 1)
        yield Stuck("no-such-argument", activate, 1, 2)
        yield Stuck("not-encodable", activate, object())
        yield Stuck("taken", activate, 1)
        yield Stuck("taken", other, 99)
        yield "tenant-1"
        yield Hostile()
        yield Stuck("naive", activate, 1, since=datetime(2020, 1, 1))  # noqa: DTZ001
        yield Stuck("no-function", print, 1)
        yield Stuck("tenant-7", activate, 7)

    report = await app.sweep("mixed")
    assert counts(report) == (1, 0, 0, 9)
    told = {row.key: row.detail for row in report.rows}
    assert "other input" in told["taken"] or "another function" in told["taken"]
    assert await app.find("tenant-7") is not None
    assert len(report.rows) == 9


async def test_what_was_yielded_before_an_error_is_started(world: World) -> None:
    shop = shop_in(world)
    activate = shop.app.tasks.task("activate")
    shop.add(1)

    @shop.app.sweeper("breaks", start_at=world.now().replace(microsecond=0) + timedelta(hours=1))
    def breaks(sweep: Sweep) -> Iterator[Stuck]:
        yield Stuck("tenant-1", activate, 1)
        raise ConnectionError("the business database is gone")

    with pytest.raises(ConnectionError, match="the business database is gone"):
        await shop.app.sweep("breaks")
    assert await shop.app.find("tenant-1") is not None


@pytest.mark.parametrize("form", ["list", "async list", "generator", "async generator", "nothing"])
async def test_every_form_of_function_will_do(world: World, form: str) -> None:
    shop = shop_in(world)
    activate = shop.app.tasks.task("activate")
    found = [Stuck("tenant-1", activate, 1), Stuck("tenant-2", activate, 2)]
    threads: set[int] = set()
    closed = []

    def as_list(sweep: Sweep) -> list[Stuck]:
        threads.add(threading.get_ident())
        return found

    async def as_async_list(sweep: Sweep) -> list[Stuck]:
        threads.add(threading.get_ident())
        return found

    def generate(sweep: Sweep) -> Iterator[Stuck]:
        try:
            for one in found:
                threads.add(threading.get_ident())
                yield one
        finally:
            closed.append(threading.get_ident())

    async def generate_async(sweep: Sweep) -> AsyncIterator[Stuck]:
        for one in found:
            threads.add(threading.get_ident())
            yield one

    def nothing(sweep: Sweep) -> None:
        threads.add(threading.get_ident())

    forms = {
        "list": as_list,
        "async list": as_async_list,
        "generator": generate,
        "async generator": generate_async,
        "nothing": nothing,
    }
    shop.app.sweeper("any-form")(forms[form])
    assert counts(await shop.app.sweep("any-form")) == (0 if form == "nothing" else 2, 0, 0, 0)
    assert len(threads) == 1, "a connection may belong to the thread that opened it"
    assert ("async" in form) == (threading.get_ident() in threads)
    assert {*closed} <= threads


async def test_a_run_starts_no_more_than_its_limit(world: World) -> None:
    shop = shop_in(world, limit=3)
    shop.add(*range(8))
    closed = threading.Event()

    @shop.app.sweeper("endless", limit=2)
    def endless(sweep: Sweep) -> Iterator[Stuck]:
        try:
            while True:
                yield Stuck("tenant-1", shop.app.tasks.task("activate"), 1)
        finally:
            closed.set()

    for expected in ((3, True), (3, True), (2, False)):
        report = await shop.app.sweep("stuck-tenants")
        assert (report.started, report.more) == expected
        for id in range(8):
            if await shop.app.find(f"tenant-{id}") is not None:
                shop.tenants[id].active = True
    report = await shop.app.sweep("endless")
    assert (report.started, report.under_way, report.more) == (0, 20, True), "rows that are looked at are bounded too"
    assert closed.is_set()


async def test_a_head_of_rows_that_are_under_way_does_not_starve_the_others(world: World) -> None:
    shop = shop_in(world, limit=2)
    shop.add(1, 2, 3, 4)
    assert counts(await shop.app.sweep("stuck-tenants")) == (2, 0, 0, 0)
    assert counts(await shop.app.sweep("stuck-tenants")) == (2, 2, 0, 0)
    assert counts(await shop.app.sweep("stuck-tenants")) == (0, 4, 0, 0)


async def test_a_run_ends_with_its_timeout(world: World) -> None:
    shop = shop_in(world)
    hangs = threading.Event()

    @shop.app.sweeper("hangs", timeout="50ms")
    async def hangs_in_loop(sweep: Sweep) -> AsyncIterator[Stuck]:
        yield Stuck("tenant-1", shop.app.tasks.task("activate"), 1)
        await asyncio.Event().wait()

    @shop.app.sweeper("hangs-in-a-thread", timeout="50ms")
    def hangs_in_thread(sweep: Sweep) -> list[Stuck]:
        hangs.wait(60)
        return []

    @shop.app.sweeper("late-database")
    def late_database(sweep: Sweep) -> list[Stuck]:
        raise TimeoutError("the business database is late")

    with pytest.raises(TimeoutError, match="the business database is late"):
        await shop.app.sweep("late-database")
    try:
        with pytest.raises(semel.ExecutionTimedOut, match="did not end within its timeout"):
            await shop.app.sweep("hangs")
        with pytest.raises(semel.ExecutionTimedOut, match="did not end within its timeout"):
            await shop.app.sweep("hangs-in-a-thread")
    finally:
        hangs.set()


async def test_a_dry_run_says_what_would_be_done_and_does_nothing(world: World) -> None:
    shop = shop_in(world)
    shop.add(1, 2, 3, 4)
    shop.fails.add(2)
    shop.useless.add(3)
    activate = shop.app.tasks.task("activate")
    async with world.worker(shop.app):
        for id in (2, 3):
            await ended(await shop.app.enqueue(activate, id, task_id=f"tenant-{id}"))
    await shop.app.enqueue(activate, 40, task_id="tenant-4")
    before = await world.traces()
    report = await shop.app.sweep("stuck-tenants", dry_run=True)
    assert {row.key: row.outcome for row in report.rows} == {
        "tenant-1": SweepOutcome.STARTED,
        "tenant-2": SweepOutcome.STARTED,
        "tenant-3": SweepOutcome.COMPLETED,
        "tenant-4": SweepOutcome.ERROR,
    }
    told = {row.key: row.detail for row in report.rows}
    assert told["tenant-1"] == "it was never started"
    assert told["tenant-2"].startswith("failed since ")
    assert "id: 40 -> 4" in told["tenant-4"]
    assert await world.traces() == before
    assert await shop.app.find("tenant-1") is None
    real = await shop.app.sweep("stuck-tenants")
    assert counts(real) == counts(report), "it foretells what happens"


async def test_workflows_are_started_too(world: World) -> None:
    app = world.app()

    @app.workflow
    async def provision(ctx: semel.Context, tenant: str) -> str:
        return f"{tenant} is active"

    @app.sweeper("stuck")
    def stuck(sweep: Sweep) -> Iterator[Stuck]:
        yield Stuck("tenant-a", provision, "a")
        yield Stuck("tenant-b", provision.call("b"))

    assert counts(await app.sweep("stuck")) == (2, 0, 0, 0)
    assert counts(await app.sweep("stuck")) == (0, 2, 0, 0)
    async with world.worker(app):
        handle = await app.find("tenant-b", kind="workflow")
        assert handle is not None
        assert await handle.result("60s") == "b is active"


async def test_events_count_what_was_found(world: World) -> None:
    class Counts(semel.Observer):
        def __init__(self) -> None:
            self.swept: dict[str, int] = {}

        def event(self, event: semel.WorkerEvent) -> None:
            if event.type is semel.WorkerEventType.SWEPT:
                assert (event.kind, event.name) == ("sweeper", "stuck")
                self.swept[event.reason] = self.swept.get(event.reason, 0) + event.count

    observer = Counts()
    app = world.app(observer=observer)

    @app.task
    async def activate(id: int) -> None: ...

    @app.sweeper("stuck")
    def stuck(sweep: Sweep) -> Iterator[Stuck]:
        yield from (Stuck(f"tenant-{id}", activate, id) for id in range(3))

    await app.sweep("stuck")
    await app.sweep("stuck", dry_run=True)
    assert observer.swept == {"started": 3}
    await app.sweep("stuck")
    assert observer.swept == {"started": 3, "under_way": 3}


def test_a_sweeper_is_refused_where_it_stands(world: World) -> None:
    app = world.app()

    @app.task
    async def task(id: int) -> None: ...

    def finds(sweep: Sweep) -> list[Stuck]:
        return []

    def takes_nothing() -> list[Stuck]:
        return []

    for bad, error, words in (
        (lambda: app.sweeper("a b")(finds), semel.InvalidValue, "sweeper='a b'"),
        (lambda: app.sweeper(finds), TypeError, "needs a name"),  # type: ignore[arg-type]
        (lambda: app.sweeper("x", limit=0)(finds), semel.InvalidValue, "limit=0"),
        (lambda: app.sweeper("x", timeout="0")(finds), semel.InvalidValue, "timeout=0"),
        (lambda: app.sweeper("x", reuse="reject")(finds), semel.InvalidValue, "reuse='reject'"),  # type: ignore[typeddict-item]
        (lambda: app.sweeper("x", older_than="soon")(finds), semel.InvalidValue, "older_than='soon'"),
        (lambda: app.sweeper("x", evry="5m")(finds), TypeError, "evry"),  # type: ignore[call-arg]
        (lambda: app.sweeper("x")(task), semel.DefinitionError, "not a plain function"),
        (lambda: app.sweeper("x")(takes_nothing), semel.DefinitionError, "takes one argument"),
    ):
        with pytest.raises(error, match=words):
            bad()
    assert app.sweepers.declared == []
    assert app.schedules.declared == []
    app.sweeper("x")(finds)
    with pytest.raises(semel.DefinitionError, match="two sweepers are called 'x'"):
        app.sweeper("x")(finds)
    assert app.schedules.declared == ["x"]


async def test_a_name_that_is_not_there_is_told(world: World) -> None:
    shop = shop_in(world)
    with pytest.raises(semel.NotFound, match="There are: stuck-tenants"):
        await shop.app.sweep("stuck")
    with pytest.raises(semel.NotFound):
        await shop.app.sweepers.get("stuck-tenants")


def test_the_sync_face_sweeps(world: World) -> None:
    shop = shop_in(world)
    shop.add(1)
    with contextlib.closing(shop.app.sync):
        assert counts(shop.app.sync.sweep("stuck-tenants")) == (1, 0, 0, 0)
