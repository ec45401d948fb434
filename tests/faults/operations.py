"""Everything the product does, as operations that can be broken at each statement.

An operation is prepared undisturbed, then acts while one statement breaks. `client` operations are repeated by
their caller afterwards, as a real client would with the same key; the others belong to a worker, whose work
another worker must be able to finish. `survives` says that the process itself goes on after a database error, so
that an effect may not happen twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from semel.contract.lifecycle import Status
from semel.contract.rates import parse_rate
from semel.engines.journal import control, holdings, leases, retention
from semel.engines.journal.admit import count_duplicates
from semel.engines.journal.claims import (
    Gate,
    Lane,
    claim,
    claim_guarded,
    load_lanes,
)
from semel.engines.journal.settle import Ending, leave, put_off, settle
from tests.faults.shop import LEASE, Shop

Memo = dict[str, Any]
Act = Callable[[Any, Memo], Awaitable[Any]]


@dataclass
class Operation:
    """One thing the product does."""

    name: str
    prepare: Callable[[Any], Awaitable[Memo]]
    act: Act
    client: bool
    survives: bool
    bare: bool = False
    """Begins without tables."""
    shop: type[Shop] = Shop
    works: bool = False
    """A worker is part of it, although its caller repeats it: killed, what it did may be done again."""

    def most(self, killed: bool, crashes: int) -> int:
        """How often an effect may have happened, at most."""
        once = not killed if self.works else (self.client or (self.survives and not killed))
        return (1 if once else 2) + crashes


OPERATIONS: dict[str, Operation] = {}


def operation(
    prepare: Callable[[Any], Awaitable[Memo]], *, client: bool = False, survives: bool = False, bare: bool = False,
    shop: type[Shop] = Shop, works: bool = False,
) -> Callable[[Any], Any]:  # fmt: skip
    """Name an operation after its function."""

    def add(act: Act) -> Act:
        made = Operation(act.__name__, prepare, act, client, survives or client, bare, shop, works)
        OPERATIONS[act.__name__] = made
        return act

    return add


# How things stand before.


async def nothing(shop: Shop) -> Memo:
    await shop.app.queues()
    return {}


async def untouched(shop: Shop) -> Memo:
    return {}


async def three_waiting(shop: Shop) -> Memo:
    for n in range(3):
        await shop.app.enqueue(shop.charge, f"o-{n}", task_id=f"k-{n}")
    return {"keys": ["k-0", "k-1", "k-2"]}


async def three_waiting_and_a_lease(shop: Shop) -> Memo:
    return {**await three_waiting(shop), "worker": await shop.worker_id()}


async def mixed_waiting(shop: Shop) -> Memo:
    await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")
    await shop.app.enqueue(shop.flaky, "o-2", task_id="k-2")
    await shop.app.enqueue(shop.doomed, "o-3", task_id="k-3")
    await shop.app.enqueue(shop.last_chance, "o-4", task_id="k-4", delay="1ms")
    return {"keys": ["k-1", "k-2", "k-3", "k-4"]}


async def guarded_waiting(shop: Shop) -> Memo:
    for n in range(3):
        await shop.app.enqueue(shop.squeezed, f"o-{n}", task_id=f"s-{n}")
        await shop.app.enqueue(shop.paced, f"o-{n}", task_id=f"p-{n}")
        await shop.app.enqueue(shop.in_turn, "c-1", f"o-{n}", task_id=f"t-{n}")
    keys = [f"{letter}-{n}" for letter in "spt" for n in range(3)]
    return {"keys": keys, "worker": await shop.worker_id()}


async def two_held(shop: Shop) -> Memo:
    await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")
    await shop.app.enqueue(shop.charge, "o-2", task_id="k-2")
    worker, claims = await shop.hold()
    for one in claims:
        shop.effect(one)
    shop.claims = claims
    return {"keys": ["k-1", "k-2"], "worker": worker}


async def one_failed(shop: Shop) -> Memo:
    handle = await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")
    worker, claims = await shop.hold()
    await shop.store.run(settle, worker, [Ending(claims[0], Status.FAILED, error=b'{"type":"E","message":"m"}')])
    await shop.store.run(leases.retire, worker, "test")
    return {"keys": ["k-1"], "id": handle.id}


async def one_waiting(shop: Shop) -> Memo:
    handle = await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")
    return {"keys": ["k-1"], "id": handle.id}


async def one_delayed(shop: Shop) -> Memo:
    handle = await shop.app.enqueue(shop.charge, "o-1", task_id="k-1", delay="1h")
    return {"keys": ["k-1"], "id": handle.id}


async def one_held(shop: Shop) -> Memo:
    handle = await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")
    await shop.hold()
    return {"keys": ["k-1"], "id": handle.id}


async def three_due(shop: Shop) -> Memo:
    for n in range(3):
        await shop.app.enqueue(shop.charge, f"o-{n}", task_id=f"k-{n}", delay="1h")
    await shop.site.advance(7200)
    return {"keys": ["k-0", "k-1", "k-2"]}


async def a_dead_worker(shop: Shop) -> Memo:
    """With a task that goes back, one that was to be cancelled, one without attempts left, and a suspect."""
    await shop.app.enqueue(shop.charge, "o-4", task_id="k-4")
    await shop.hold()
    await shop.site.advance(60)
    await shop.store.run(leases.recover)
    await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")
    second = await shop.app.enqueue(shop.charge, "o-2", task_id="k-2")
    await shop.app.enqueue(shop.last_chance, "o-3", task_id="k-3")
    _, claims = await shop.hold()
    for one in claims:
        shop.effect(one)
    await shop.store.run(control.cancel, "default", second.id)
    await shop.site.advance(60)
    return {"keys": ["k-1", "k-2", "k-3", "k-4"], "crashes": 1}


async def a_dead_worker_of_guarded_lanes(shop: Shop) -> Memo:
    memo = await guarded_waiting(shop)
    await claim_everything_guarded(shop, memo)
    await shop.site.advance(60)
    return memo


async def two_finished(shop: Shop) -> Memo:
    await shop.app.enqueue(shop.brief, "o-1", task_id="brief-1")
    await shop.app.enqueue(shop.remembered, "o-2", task_id="remembered-2")
    await shop.app.enqueue(shop.brief, "o-3", task_id="brief-3")
    worker, claims = await shop.hold()
    await shop.store.run(settle, worker, [Ending(one, Status.COMPLETED, b'"x"') for one in claims])
    await shop.store.run(leases.retire, worker, "test")
    await shop.site.advance(60)
    return {"keys": ["remembered-2"]}


# The client's operations.


@operation(nothing, client=True)
async def enqueue_fresh_key(shop: Shop, memo: Memo) -> Any:
    return {"keys": [(await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")).key]}


@operation(untouched, client=True, bare=True)
async def enqueue_on_an_empty_database(shop: Shop, memo: Memo) -> Any:
    return {"keys": [(await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")).key]}


@operation(nothing)
async def enqueue_without_key(shop: Shop, memo: Memo) -> Any:
    return {"ids": [(await shop.app.enqueue(shop.charge, "o-1")).id]}


@operation(one_waiting, client=True)
async def enqueue_duplicate(shop: Shop, memo: Memo) -> Any:
    handle = await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")
    return {"keys": [handle.key]}


@operation(one_failed, client=True)
async def enqueue_after_failure(shop: Shop, memo: Memo) -> Any:
    return {"keys": [(await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")).key]}


@operation(nothing, client=True)
async def enqueue_delayed(shop: Shop, memo: Memo) -> Any:
    return {"keys": [(await shop.app.enqueue(shop.charge, "o-1", task_id="k-1", delay="1h")).key]}


@operation(one_failed, client=True)
async def enqueue_many(shop: Shop, memo: Memo) -> Any:
    keys = ["k-1", "k-2", "k-3", "k-2"]
    orders = ["o-1", "o-2", "o-3", "o-2"]
    calls = [(shop.charge.call(order), key) for order, key in zip(orders, keys, strict=True)]
    return {"keys": [handle.key for handle in await shop.app.enqueue_many(calls)]}


@operation(one_waiting, client=True)
async def cancel_waiting(shop: Shop, memo: Memo) -> Any:
    return str(await (await shop.app.get(memo["id"])).cancel())


@operation(one_delayed, client=True)
async def cancel_delayed(shop: Shop, memo: Memo) -> Any:
    return str(await (await shop.app.get(memo["id"])).cancel())


@operation(one_held, client=True)
async def cancel_running(shop: Shop, memo: Memo) -> Any:
    return str(await (await shop.app.get(memo["id"])).cancel())


@operation(one_failed, client=True)
async def redrive(shop: Shop, memo: Memo) -> Any:
    redriven = await shop.engine.redrive(memo["id"], "f" * 32)
    return {"keys": ["k-1"], "ids": [redriven] if redriven else []}


@operation(nothing, client=True)
async def configure_queue(shop: Shop, memo: Memo) -> Any:
    shop.app.configure_queue("bulk", concurrency=1, rate_limit="5/sec")
    await shop.app.queues()
    return {"keys": [(await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")).key]}


@operation(untouched, client=True, bare=True)
async def migrate(shop: Shop, memo: Memo) -> Any:
    return list(await shop.app.migrate())


@operation(one_waiting, client=True)
async def count_suppressed(shop: Shop, memo: Memo) -> Any:
    await shop.store.run(count_duplicates, [(memo["id"], "joined", 3, 1, 2)])
    return len((await shop.app.explain("k-1")).suppressed)


@operation(two_finished, client=True)
async def clean(shop: Shop, memo: Memo) -> Any:
    await shop.store.run(retention.clean)
    return await shop.app.clean()


# The worker's operations, one script at a time. An error here is the end of this worker.


@operation(three_waiting)
async def register_worker(shop: Shop, memo: Memo) -> Any:
    return await shop.worker_id()


@operation(three_waiting_and_a_lease)
async def claim_plain(shop: Shop, memo: Memo) -> Any:
    lanes = await shop.lanes()
    return len(await shop.store.run(claim, memo["worker"], lanes, [0] * len(lanes), shop.names, 2))


@operation(guarded_waiting)
async def claim_guarded_by_rate_limit_and_concurrency(shop: Shop, memo: Memo) -> Any:
    return await claim_everything_guarded(shop, memo)


async def claim_everything_guarded(shop: Shop, memo: Memo) -> Any:
    gates = {
        "narrow": Gate((), ("queue:narrow", 2)),
        "metered": Gate((("queue:metered", parse_rate("1000/sec")), ("task:paced", parse_rate("1000/sec")))),
    }
    taken = 0
    for id_, queue, priority, task, keyed, suspect in (await shop.store.run(load_lanes, "default", None))[0]:
        lane = Lane(id_, queue, priority, task, bool(keyed), bool(suspect))
        gate = gates.get(queue, Gate())
        got = await shop.store.run(claim_guarded, "default", memo["worker"], lane, gate, shop.names, 2)
        taken += len(got.claims)
    return taken


@operation(two_held)
async def settle_completed(shop: Shop, memo: Memo) -> Any:
    endings = [Ending(one, Status.COMPLETED, b'"done"') for one in shop.claims]
    return list(await shop.store.run(settle, memo["worker"], endings))


@operation(two_held)
async def settle_failed(shop: Shop, memo: Memo) -> Any:
    endings = [Ending(one, Status.FAILED, error=b'{"type":"E","message":"m"}') for one in shop.claims]
    return list(await shop.store.run(settle, memo["worker"], endings))


@operation(two_held)
async def settle_with_a_retry(shop: Shop, memo: Memo) -> Any:
    error = b'{"type":"E","message":"m"}'
    endings = [Ending(one, Status.FAILED, error=error, retry_in=60.0) for one in shop.claims]
    return list(await shop.store.run(put_off, memo["worker"], endings))


@operation(two_held)
async def leave_undecodable(shop: Shop, memo: Memo) -> Any:
    error = b'{"type":"semel.NotDecodable","message":"m"}'
    endings = [Ending(one, Status.FAILED, error=error, undecodable=True) for one in shop.claims]
    await shop.store.run(leave, memo["worker"], endings[:1], timedelta(minutes=10))
    return list(await shop.store.run(leave, memo["worker"], endings[1:], timedelta()))


@operation(two_held)
async def heartbeat(shop: Shop, memo: Memo) -> Any:
    held = [one.fence for one in shop.claims]
    await shop.store.run(control.cancel, "default", shop.claims[0].execution)
    progress = [(*held[0], "half way")]
    state, _ = await shop.store.run(leases.pulse, memo["worker"], LEASE, await shop.lanes(), shop.names, progress, held)
    return state is not None


@operation(three_due)
async def promote(shop: Shop, memo: Memo) -> Any:
    return len(await shop.store.run(leases.promote, 2))


@operation(a_dead_worker)
async def recover(shop: Shop, memo: Memo) -> Any:
    return len(await shop.store.run(leases.recover))


@operation(a_dead_worker_of_guarded_lanes)
async def recover_permits(shop: Shop, memo: Memo) -> Any:
    return len(await shop.store.run(leases.recover))


@operation(two_held)
async def give_back(shop: Shop, memo: Memo) -> Any:
    first, second = shop.claims
    await shop.store.run(holdings.confirm, memo["worker"])
    owned = {fence for fence, _ in await shop.store.run(holdings.owned, memo["worker"])}
    unbegun, begun = ([one.fence] if one.fence in owned else [] for one in (first, second))
    await shop.store.run(holdings.give_back, memo["worker"], "test", unbegun, begun)
    return len(await shop.store.run(leases.retire, memo["worker"], "test"))


@operation(one_held)
async def adopt_orphans(shop: Shop, memo: Memo) -> Any:
    await shop.site.sql("delete from semel_worker")
    return len(await shop.store.run(leases.adopt_orphans))


# The whole life of a real worker: it claims, runs, settles, beats, promotes and leaves.


@operation(mixed_waiting, survives=True)
async def life_of_a_worker(shop: Shop, memo: Memo) -> Any:
    await shop.run_all()


@operation(guarded_waiting, survives=True)
async def life_of_a_worker_with_limits(shop: Shop, memo: Memo) -> Any:
    await shop.run_all()


@operation(a_dead_worker)
async def life_of_a_worker_that_recovers(shop: Shop, memo: Memo) -> Any:
    await shop.run_all()


@operation(three_waiting, survives=True)
async def drain(shop: Shop, memo: Memo) -> Any:
    async with shop.app.worker(grace="0"):
        pass
