"""What workflows and entities do, as operations that can be broken at each statement."""

from __future__ import annotations

from typing import Any

from semel.engines.journal import leases, migrations, retention
from tests.faults.flow_shop import FlowShop
from tests.faults.operations import OPERATIONS, Memo, operation

__all__ = ["OPERATIONS"]

ASLEEP = "select count(*) from semel_ready"
NOT_PARKED = "select count(*) from semel_flow where parked is null"
PARKED = "select count(*) from semel_flow where parked is not null"
DAY = 86400.0


# How things stand before.


async def nothing(shop: FlowShop) -> Memo:
    await shop.app.queues()
    return {"ends": {"w-1": ["completed", ["a", "o-1", "c", "o-1-f"]]}, "published": {"w-1": "shipped"}}


async def a_workflow(shop: FlowShop) -> Memo:
    await shop.app.start_workflow(shop.whole, "o-1", workflow_id="w-1")
    return await nothing(shop)


async def a_held_workflow(shop: FlowShop) -> Memo:
    memo = await a_workflow(shop)
    await shop.hold()
    await shop.site.advance(60)
    return memo


async def a_finished_workflow(shop: FlowShop) -> Memo:
    await a_workflow(shop)
    await shop.account.send("add", 5, dedup_key="k-1")
    await shop.account.send("stop", dedup_key="k-2")
    await shop.run_all()
    await shop.site.advance(40 * DAY)
    return {}


async def one_that_waits(shop: FlowShop) -> Memo:
    handle = await shop.app.start_workflow(shop.patient, workflow_id="w-1")
    await shop.until(ASLEEP)
    return {"id": handle.id, "ends": {"w-1": ["completed", ["a", "end 0", "late"]]}}


async def one_that_was_signalled(shop: FlowShop) -> Memo:
    memo = await one_that_waits(shop)
    await (await shop.app.get(memo["id"])).signal("go", "a", dedup_key="a")
    return memo


async def one_that_is_due(shop: FlowShop) -> Memo:
    memo = await one_that_was_signalled(shop)
    await shop.until(ASLEEP)
    await shop.site.sql("update semel_flow set due_at = 1")
    return memo


async def one_with_signals(shop: FlowShop) -> Memo:
    handle = await shop.app.start_workflow(shop.counting, 2, [], workflow_id="w-1")
    for value in "abac":
        await handle.signal("go", value, dedup_key=value)
    return {"ends": {"w-1": ["completed", ["2", "a", "1", "b", "0", "c"]]}}


async def one_that_cleans_up(shop: FlowShop) -> Memo:
    handle = await shop.app.start_workflow(shop.stopped, workflow_id="w-1")
    await shop.until(ASLEEP)
    ends = {"w-1": ["cancelled", None], "w-1.1": ["cancelled", None]}
    return {"id": handle.id, "ends": ends, "must": ["clean-up"]}


async def one_that_fails(shop: FlowShop) -> Memo:
    await shop.app.start_workflow(shop.failing, workflow_id="w-1")
    return {"ends": {"w-1": ["failed", None], "w-1.1": ["cancelled", None]}, "must": ["noted"]}


async def a_parent(shop: FlowShop) -> Memo:
    await shop.app.start_workflow(shop.parent, "w-1", workflow_id="w-1")
    children = {"w-1.1": ["completed", "early"], "w-1.2": ["completed", "from parent"], "w-1.3": ["cancelled", None]}
    return {"ends": {"w-1": ["completed", ["early", "from parent"]], **children}}


async def two_payers(shop: FlowShop) -> Memo:
    for key in ("w-1", "w-2"):
        await shop.app.start_workflow(shop.payer, workflow_id=key)
    ended = ["completed", [1, "failed", "p"]]
    return {"ends": {"w-1": ended, "w-2": ended}, "till": {"w-1": 1, "w-2": 1}}


async def other_code(shop: FlowShop) -> Memo:
    memo = await one_that_was_signalled(shop)
    shop.broken_code = True
    return memo


async def one_that_is_parked(shop: FlowShop) -> Memo:
    memo = await other_code(shop)
    await shop.until(NOT_PARKED)
    shop.broken_code = False
    return memo


async def messages(shop: FlowShop) -> Memo:
    for name, value, key in (("add", 5, "k-1"), ("charge", "o-1", "k-2"), ("add", 7, "k-3"), ("add", 5, "k-1")):
        await shop.account.send(name, value, dedup_key=key)
    return {"total": 112}


async def messages_of_which_the_first_is_doomed(shop: FlowShop) -> Memo:
    memo = await messages(shop)
    await shop.site.sql("update semel_ready set attempt = 10, crashes = 10")
    return memo  # its duplicate counts, since the first one has freed the key


async def messages_after_one_that_failed(shop: FlowShop) -> Memo:
    await shop.account.send("add", -1, dedup_key="k-1")
    await shop.account.send("add", -1)
    await shop.run_all()
    await shop.account.send("add", 5, dedup_key="k-1")
    await shop.account.send("add", 7, dedup_key="k-1")
    await shop.account.send("charge", "o-1", dedup_key="k-1")
    await shop.account.send("add", -2, dedup_key="k-2")
    return {"total": 5}


async def messages_around_an_end(shop: FlowShop) -> Memo:
    await shop.account.send("charge", "o-1", dedup_key="k-1")
    await shop.account.send("stop", dedup_key="k-2")
    await shop.account.send("charge", "o-2", dedup_key="k-3")
    await shop.account.send("add", 7, dedup_key="k-4")
    await shop.account.send("charge", "o-2", dedup_key="k-3")
    return {"total": 207}


async def an_entity(shop: FlowShop) -> Memo:
    await shop.account.send("add", 5, dedup_key="k-1")
    await shop.run_all()
    return {"total": 5}


async def an_ended_entity(shop: FlowShop) -> Memo:
    memo = await an_entity(shop)
    await shop.account.send("stop")
    await shop.run_all()
    return memo | {"total": 12}


async def no_entity(shop: FlowShop) -> Memo:
    await shop.app.queues()
    return {"total": 7}


async def tables_of_before(shop: FlowShop) -> Memo:
    await shop.store.run(migrations.begin)
    await shop.store.run(migrations.apply, shop.store.migrations[0])
    return {}


# The client's operations.


@operation(nothing, client=True, shop=FlowShop)
async def start_workflow(shop: FlowShop, memo: Memo) -> Any:
    return {"keys": [(await shop.app.start_workflow(shop.whole, "o-1", workflow_id="w-1")).key]}


@operation(one_that_cleans_up, client=True, shop=FlowShop)
async def join_a_child_and_cancel_its_parent(shop: FlowShop, memo: Memo) -> Any:
    memo["ends"]["w-1.1"] = ["completed", "from a client"]
    joined = await shop.app.start_workflow(shop.child, "late", workflow_id="w-1.1")
    await (await shop.app.get(memo["id"])).cancel()
    await joined.signal("go", "from a client", dedup_key="c")


@operation(one_that_waits, client=True, shop=FlowShop)
async def signal_with_a_key(shop: FlowShop, memo: Memo) -> Any:
    await (await shop.app.get(memo["id"])).signal("go", "a", dedup_key="a")


@operation(one_that_cleans_up, client=True, shop=FlowShop)
async def cancel_a_sleeping_workflow(shop: FlowShop, memo: Memo) -> Any:
    return str(await (await shop.app.get(memo["id"])).cancel())


@operation(a_workflow, client=True, shop=FlowShop)
async def cancel_a_workflow_before_it_begins(shop: FlowShop, memo: Memo) -> Any:
    found = await shop.app.find("w-1", kind="workflow")
    assert found is not None
    memo["ends"], memo["published"] = {"w-1": ["cancelled", None]}, {}
    return str(await found.cancel())


@operation(one_that_cleans_up, client=True, shop=FlowShop)
async def terminate(shop: FlowShop, memo: Memo) -> Any:
    memo["must"] = []
    return str(await (await shop.app.get(memo["id"])).terminate("enough"))


@operation(no_entity, client=True, shop=FlowShop)
async def send_to_a_new_entity(shop: FlowShop, memo: Memo) -> Any:
    await shop.account.send("add", 7, dedup_key="k-7")


@operation(an_ended_entity, client=True, shop=FlowShop)
async def send_to_an_ended_entity(shop: FlowShop, memo: Memo) -> Any:
    await shop.account.send("add", 7, dedup_key="k-7")


@operation(tables_of_before, client=True, bare=True, shop=FlowShop)
async def migrate_to_flows(shop: FlowShop, memo: Memo) -> Any:
    return list(await shop.app.migrate())


@operation(a_finished_workflow, client=True, shop=FlowShop)
async def clean_flows(shop: FlowShop, memo: Memo) -> Any:
    await shop.store.run(retention.clean)
    return await shop.app.clean()


# The worker's operations, one script at a time.


@operation(a_held_workflow, shop=FlowShop)
async def recover_a_workflow(shop: FlowShop, memo: Memo) -> Any:
    return len(await shop.store.run(leases.recover))


@operation(one_that_is_due, shop=FlowShop)
async def promote_a_workflow(shop: FlowShop, memo: Memo) -> Any:
    return len(await shop.store.run(leases.promote, 2))


# The whole life of a worker with flows.


@operation(a_workflow, survives=True, shop=FlowShop)
async def life_with_steps_tasks_and_timers(shop: FlowShop, memo: Memo) -> Any:
    await shop.run_all()


@operation(a_held_workflow, survives=True, shop=FlowShop)
async def life_that_recovers_a_workflow(shop: FlowShop, memo: Memo) -> Any:
    await shop.run_all()


@operation(one_with_signals, survives=True, shop=FlowShop)
async def life_with_signals_and_continue_as_new(shop: FlowShop, memo: Memo) -> Any:
    await shop.run_all()


@operation(one_that_was_signalled, survives=True, shop=FlowShop)
async def life_with_a_wait_that_ends(shop: FlowShop, memo: Memo) -> Any:
    await shop.until(ASLEEP)


@operation(a_parent, survives=True, shop=FlowShop)
async def life_with_children(shop: FlowShop, memo: Memo) -> Any:
    await shop.run_all()


@operation(one_that_fails, survives=True, shop=FlowShop)
async def life_that_fails(shop: FlowShop, memo: Memo) -> Any:
    await shop.run_all()


@operation(one_that_cleans_up, client=True, works=True, shop=FlowShop)
async def life_that_is_cancelled(shop: FlowShop, memo: Memo) -> Any:
    await (await shop.app.get(memo["id"])).cancel()
    await shop.run_all()


@operation(two_payers, survives=True, shop=FlowShop)
async def life_with_transactions(shop: FlowShop, memo: Memo) -> Any:
    await shop.run_all()


@operation(other_code, survives=True, shop=FlowShop)
async def life_that_parks(shop: FlowShop, memo: Memo) -> Any:
    await shop.until(NOT_PARKED)


@operation(one_that_is_parked, survives=True, shop=FlowShop)
async def life_that_unparks(shop: FlowShop, memo: Memo) -> Any:
    await shop.until(PARKED)


@operation(messages, survives=True, shop=FlowShop)
async def life_of_an_entity(shop: FlowShop, memo: Memo) -> Any:
    await shop.run_all()


@operation(messages_of_which_the_first_is_doomed, survives=True, shop=FlowShop)
async def life_of_an_entity_that_gives_up_a_message(shop: FlowShop, memo: Memo) -> Any:
    await shop.run_all()


@operation(messages_after_one_that_failed, survives=True, shop=FlowShop)
async def life_of_an_entity_that_frees_a_key_and_refuses_messages(shop: FlowShop, memo: Memo) -> Any:
    await shop.run_all()


@operation(messages_around_an_end, survives=True, shop=FlowShop)
async def life_of_an_entity_that_ends(shop: FlowShop, memo: Memo) -> Any:
    await shop.run_all()


@operation(an_entity, client=True, works=True, shop=FlowShop)
async def life_of_an_entity_that_is_asked(shop: FlowShop, memo: Memo) -> Any:
    memo["total"] = 105
    async with shop.app.worker(lease="30s", concurrency=8):
        return await shop.account.ask("charge", "o-1", dedup_key="k-9")
