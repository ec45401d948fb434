"""What mypy and pyright make of Semel. Nothing here is run: test_typing.py has both check it.

A line whose comment begins with an E is wrong, and both must say so. Both must accept every other line, and each
`assert_type` must hold.
"""

import datetime
from dataclasses import dataclass
from typing import Any, assert_type

import semel
from semel.contract.backfill import BackfillInfo, BackfillPlan
from semel.triggers import (
    ActivityDefinition,
    CronTriggerConfig,
    EventEnvelope,
    EventTriggerConfig,
    IntervalTriggerConfig,
    OnceTriggerConfig,
    TaskSpec,
)

app = semel.App("sqlite:///:memory:")


@dataclass
class Receipt:
    order: str
    cents: int


@app.task
async def charge(order: str, cents: int) -> Receipt:
    return Receipt(order, cents)


@app.task(queue="mail", retry=semel.Retry(max_attempts=5), timeout="30s")
def send(to: str, subject: str = "", *, html: bool = False) -> None: ...


@app.task(name="totals")
async def total(*cents: int) -> dict[str, int]:
    return {"total": sum(cents)}


@app.task
def label(number: int, *, colour: str) -> str:
    return f"{colour} {number}"


@app.task
async def settle(amount: float, note: str | None, tags: list[str], extra: dict[str, Any]) -> bool:
    return True


@app.task
async def weigh(grams: dict[str, int | float]) -> float:
    return 0.0


@app.workflow
async def ship(ctx: semel.Context, order: str, express: bool = False) -> Receipt:
    return await ctx.execute_task(charge, order, 1)


@app.workflow(version=2)
async def tidy_up(ctx: semel.Context) -> None: ...


@app.entity(window="1h")
class Cart:
    items: int = 0

    @semel.handler
    async def add(self, ctx: semel.EntityContext, items: int, gift: bool = False) -> int:
        if items < 0:
            ctx.end()
        return self.items + items

    @semel.handler("take-all")
    async def clear(self, ctx: semel.EntityContext) -> None: ...

    @semel.query
    def holds(self, at_least: int) -> bool:
        return self.items >= at_least

    @semel.idle("365d")
    async def lapse(self, ctx: semel.EntityContext) -> None: ...


class Other:
    @semel.handler
    async def add(self, ctx: semel.EntityContext, items: int) -> int:
        return items


def today(offset: int) -> str:
    return ""


async def fetch(url: str, timeout: float = 1.0) -> bytes:
    return b""


def write(tx: Any, row: int) -> str:
    return ""


# A task from a caller.


async def enqueued() -> None:
    handle = await app.enqueue(charge, "o-1", 9_900, task_id="charge:o-1")
    assert_type(handle, semel.Handle[Receipt])
    assert_type(await handle.result(timeout="5s"), Receipt)
    assert_type(await app.enqueue(charge, "o-1", 9_900), semel.Handle[Receipt])
    assert_type(await app.enqueue(send, "a@b.c", task_id="m-1", priority=5, delay="1h"), semel.Handle[None])
    assert_type(await app.enqueue(send, "a@b.c", connection=object()), semel.Handle[None])
    assert_type(await app.enqueue(send, "a@b.c", "hello", queue="mail", reuse="always"), semel.Handle[None])
    assert_type(await app.enqueue(total, 1, 2, 3, on_duplicate="raise"), semel.Handle[dict[str, int]])
    assert_type(await app.enqueue(total), semel.Handle[dict[str, int]])
    assert_type(await app.enqueue(settle, 1, None, ["a"], {"n": 1, "b": "c"}), semel.Handle[bool])
    assert_type(await handle.status(), semel.Status)
    assert_type(await app.find("k"), semel.Handle[Any] | None)


async def enqueued_wrongly() -> None:
    await app.enqueue(charge, "o-1", task_id="k")  # E: too few
    await app.enqueue(charge, "o-1", "9900", task_id="k")  # E: a str for an int
    await app.enqueue(charge, "o-1", 9_900, "EUR", task_id="k")  # E: too many
    await app.enqueue(charge, "o-1", 9_900, taskid="k")  # E: no such option
    await app.enqueue(charge, "o-1", 9_900, task_id=5)  # E: a key is a str
    await app.enqueue(charge, "o-1", 9_900, reuse="sometimes")  # E: no such policy
    await app.enqueue(charge, "o-1", 9_900, on_duplicate="ignore")  # E: no such policy
    await app.enqueue(charge, "o-1", cents=9_900)  # E: arguments by name are for charge.call(…)
    await app.enqueue(label, 1)  # E: colour can only be given by name
    await app.enqueue(total, 1, "2")  # E: a str for an int
    await app.enqueue(settle, 1, None, [2], {})  # E: a list of the wrong type
    await app.enqueue(ship, "o-1")  # E: a workflow
    await app.enqueue("charge")  # E: not a task
    await app.enqueue(charge.call("o-1", 1), "more")  # E: a call has its arguments


# Arguments by name, and values that only their annotation explains.


async def called() -> None:
    assert_type(await app.enqueue(charge.call("o-1", cents=9_900), task_id="k"), semel.Handle[Receipt])
    assert_type(await app.enqueue(label.call(1, colour="red")), semel.Handle[str])
    assert_type(await app.enqueue(weigh.call({"apple": 1}), task_id="k"), semel.Handle[float])
    assert_type(await app.start_workflow(ship.call("o-1", express=True), workflow_id="k"), semel.Handle[Receipt])
    assert_type(await app.enqueue_many([total.call(1), (total.call(2), "k")], priority=1), list[semel.Handle[Any]])


def called_wrongly() -> None:
    charge.call("o-1")  # E: too few
    charge.call("o-1", "9900")  # E: a str for an int
    charge.call("o-1", 9_900, currency="EUR")  # E: no such parameter
    label.call(1, "red")  # E: colour can only be given by name
    ship.call("o-1", 5)  # E: an int for a bool


# A plain call, as in a unit test.


async def plainly() -> None:
    assert_type(await charge("o-1", 1), Receipt)
    assert_type(label(1, colour="red"), str)
    assert_type(await Cart().add(semel.EntityContext.__new__(semel.EntityContext), 1), int)
    charge(1, 1)  # E: an int for a str
    label(1)  # E: no colour


# A workflow from a caller.


async def started() -> None:
    handle = await app.start_workflow(ship, "o-1", workflow_id="order:o-1")
    assert_type(handle, semel.Handle[Receipt])
    assert_type(await app.start_workflow(ship, "o-1", True, workflow_id="k", delay="1m"), semel.Handle[Receipt])
    assert_type(await app.start_workflow(tidy_up, workflow_id="k"), semel.Handle[None])
    assert_type(await app.start_workflow("Theirs", {"a": 1}, 2, workflow_id="w", task_queue="q"), semel.Handle[Any])


async def started_wrongly() -> None:
    await app.start_workflow(ship, "o-1")  # E: no workflow_id
    await app.start_workflow(ship, workflow_id="k")  # E: too few
    await app.start_workflow(ship, 1, workflow_id="k")  # E: an int for a str
    await app.start_workflow(ship, "o-1", True, 1, workflow_id="k")  # E: too many
    await app.start_workflow(ship, "o-1", workflow_id="k", express=True)  # E: arguments by name are for ship.call(…)
    await app.start_workflow(charge, "o-1", 1, workflow_id="k")  # E: a task
    await app.start_workflow("Theirs", workflow_id="w")  # E: no task_queue


# The sync face.


def scripts() -> None:
    assert_type(app.sync.enqueue(charge, "o-1", 9_900, task_id="k").result(), Receipt)
    assert_type(app.sync.enqueue(send, "a@b.c").result(), None)
    assert_type(app.sync.enqueue(charge.call("o-1", 9_900), task_id="k").result(), Receipt)
    assert_type(app.sync.start_workflow(ship, "o-1", workflow_id="k").result(), Receipt)
    assert_type(app.sync.start_workflow("Theirs", workflow_id="w", task_queue="q").result(), Any)
    assert_type(app.sync.entity(Cart, "c-1").state(), Cart)
    assert_type(app.sync.entity(Cart, "c-1").ask(Cart.add, 1, timeout="5s"), int)
    assert_type(app.sync.entity(Cart, "c-1").query(Cart.holds, 1), bool)
    app.sync.enqueue(charge, "o-1", "9900", task_id="k")  # E: a str for an int
    app.sync.start_workflow(ship, 1, workflow_id="k")  # E: an int for a str
    app.sync.entity(Cart, "c-1").send(Cart.add, "1")  # E: a str for an int


# An entity.


async def reached() -> None:
    cart = app.entity(Cart, "c-1")
    assert_type(cart, semel.Ref[Cart])
    assert_type(await cart.send(Cart.add, 1, dedup_key="k"), None)
    assert_type(await cart.ask(Cart.add, 1, True, timeout="5s"), int)
    assert_type(await cart.ask(Cart.clear), None)
    assert_type(await cart.query(Cart.holds, 1), bool)
    assert_type(await cart.ask("add", 1, gift=True), Any)
    assert_type(await cart.query("holds", at_least=1), Any)
    assert_type(await cart.state(), Cart)


async def reached_wrongly() -> None:
    cart = app.entity(Cart, "c-1")
    await cart.send(Cart.add)  # E: too few
    await cart.send(Cart.add, "1")  # E: a str for an int
    await cart.send(Cart.add, 1, dedup_key=5)  # E: a key is a str
    await cart.ask(Cart.add, 1, False, 3)  # E: too many
    await cart.ask(Other.add, 1)  # E: of another class
    await cart.query(Cart.holds)  # E: too few
    app.entity(Cart, 5)  # E: an id is a str


# Inside a workflow.


@app.workflow
async def inside(ctx: semel.Context, order: str) -> None:
    assert_type(await ctx.execute_task(charge, order, 1, task_id="k"), Receipt)
    assert_type(await ctx.execute_task(send, "a@b.c", delay="1m"), None)
    assert_type(await ctx.execute_task(label.call(1, colour="red")), str)
    assert_type(await ctx.enqueue(send, "a@b.c", "hello", priority=1), None)
    assert_type(await ctx.step(today, 1), str)
    assert_type(await ctx.step(fetch, "https://…", retry=3, name="page"), bytes)
    assert_type(await ctx.step(fetch, "https://…", timeout=2.0), bytes)
    assert_type(await ctx.step(lambda: 5), int)
    assert_type(await ctx.transaction(write, 1, name="row"), str)
    assert_type(await ctx.execute_workflow(ship, order, workflow_id="k"), Receipt)
    child = await ctx.start_workflow(ship, order, True, workflow_id="k", on_parent_close="cancel")
    assert_type(child, semel.Child[Receipt])
    assert_type(await child.result(), Receipt)
    assert_type(await ctx.wait_signal("paid", timeout="2d", type=Receipt), Receipt)
    assert_type(await ctx.wait_signal("paid", type=dict[str, int]), dict[str, int])
    assert_type(await ctx.wait_signal("paid"), Any)


@app.workflow
async def inside_wrongly(ctx: semel.Context, order: str) -> None:
    await ctx.execute_task(charge, order)  # E: too few
    await ctx.execute_task(charge, order, "1")  # E: a str for an int
    await ctx.execute_task(charge, order, 1, run_at="now")  # E: no such option here
    await ctx.enqueue(send, 1)  # E: an int for a str
    await ctx.step(today, "1")  # E: a str for an int
    await ctx.step(today)  # E: too few
    await ctx.step(fetch, "https://…", retries=3)  # E: no such option, and no such parameter
    await ctx.transaction(write, "1")  # E: a str for an int
    await ctx.execute_workflow(ship, 1, workflow_id="k")  # E: an int for a str
    await ctx.start_workflow(ship, order)  # E: no workflow_id
    await ctx.start_workflow(ship, order, workflow_id="k", on_parent_close="forget")  # E: no such policy


# Definitions.


def defined_wrongly() -> None:
    app.task(retry="often")  # E: a policy or a number

    @semel.handler  # E: not async
    def not_async(self: object, ctx: object) -> None: ...

    @app.workflow  # E: no context
    async def no_context(order: str) -> None: ...


daily = CronTriggerConfig(cron="0 9 * * *", timezone="Europe/Paris", misfire_policy="catchup", grace="10m")
weekly = CronTriggerConfig(cron=["0 9 * * MON"], exclude=["2026-12-25", datetime.date(2027, 1, 1)])
assert_type(daily.cron, tuple[str, ...])
assert_type(daily.grace, datetime.timedelta | None)
often = IntervalTriggerConfig(every="5m", after="finish", jitter=30)
assert_type(often.every, datetime.timedelta)
once = OnceTriggerConfig(at=datetime.datetime.now(datetime.UTC), overlap="allow_all")
paid = EventTriggerConfig(types="invoice.paid", where="data.cents > 0")
report = ActivityDefinition(
    activity_id="report", triggers=[daily, often, once], tasks=TaskSpec(task_type="send", arguments={"a": [1]})
)
assert_type(report.tasks, tuple[TaskSpec, ...])
event = EventEnvelope(event_id="1", source="shop", type="invoice.paid", time="2026-03-01T09:00:00Z", data={"cents": 1})
assert_type(event.time, datetime.datetime | None)
assert_type(EventEnvelope.from_cloudevent(b"{}"), EventEnvelope)

CronTriggerConfig()  # E: it has no expression
CronTriggerConfig(cron=5)  # E: not an expression
CronTriggerConfig(cron="@daily", misfire_policy="catch")  # E: no such policy
CronTriggerConfig(cron="@daily", timezon="UTC")  # E: no such field
OnceTriggerConfig(at="2026-03-01T09:00:00Z", misfire_policy="skip")  # E: a one-shot has none
IntervalTriggerConfig(every="5m", start_at=5)  # E: not a time
ActivityDefinition(activity_id="a", triggers="@daily", tasks=[])  # E: not a trigger


@app.on_schedule("0 9 * * *", timezone="Europe/Paris", misfire="compress")
@app.task
async def city_report(city: str = "Paris", run: semel.Run | None = None) -> None: ...


async def scheduled() -> None:
    made = await app.schedules.put("x", city_report, "Paris", cron="0 9 * * *", exclude=["2026-12-25"], jitter="5m")
    assert_type(made.next_slot, datetime.datetime | None)
    await app.schedules.put("x", city_report, "Paris", every="5m", after="finish", overlap="skip", max_buffer=3)
    await app.schedules.put("x", city_report, crom="0 9 * * *")  # E: no such option
    await app.schedules.put("x", city_report, cron=9)  # E: no expression
    await app.schedules.put("x", city_report, every="5m", misfire="later")  # E: no such policy
    await app.schedules.put("x", city_report, every="5m", overlap="wait")  # E: no such policy
    await app.schedules.put("x", city_report, at="2026-03-01")  # E: no datetime
    await app.schedules.edit("x", cron="0 8 * * *", reset=["jitter"])
    await app.schedules.edit("x", colour="red")  # E: no such option
    assert_type(await (await app.schedules.trigger("x")).result(), Any)
    for one in await app.schedules.skipped("x"):
        assert_type(one.count, int)
    for change in await app.apply(dry_run=True):
        assert_type(change.id, str)
    end = datetime.datetime.now(datetime.UTC)
    begin = end - datetime.timedelta(days=7)
    assert_type(await app.schedules.backfill("x", begin, end, rerun="failed", max_active=3), BackfillInfo)
    assert_type(await app.schedules.backfill("x", begin, end, dry_run=True, force=True), BackfillPlan)
    assert_type(app.sync.schedules.backfill("x", begin, end, request_key="a"), BackfillInfo)
    assert_type(app.sync.schedules.backfill("x", begin, end, dry_run=True), BackfillPlan)
    await app.schedules.backfill("x", begin, end, rerun="some")  # E: no such choice
    await app.schedules.backfill("x", begin, end, limit=3)  # E: no such option
    await app.schedules.backfill("x", "2026-03-01", end)  # E: no datetime
    assert_type((await app.schedules.backfills.wait("b", "5m")).failed, int)
    app.sync.schedules.backfills.pause("b", 5)  # E: no note
    for difference in await app.schedules.reconcile(fix=True):
        assert_type(difference.fixed, bool)
    app.sync.schedules.put("x", city_report, cron="0 9 * * *")
    app.sync.schedules.put("x", city_report, misfire="later")  # E: no such policy
    app.sync.apply(prune="yes")  # E: no bool
