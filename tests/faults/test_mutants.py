"""Take away one guard at a time: a named check must notice. A guard that nothing misses would be no guard."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.contract import decision
from semel.contract.lifecycle import Status
from semel.engine.requests import request
from semel.engines.journal import control, leases, retention
from semel.engines.journal.admit import insert
from semel.engines.journal.rows import row_of
from semel.engines.journal.script import ConnectionRole, Script, SqlBatch, SqlQuery, procedure
from semel.engines.journal.settle import Ending, put_off, settle
from semel.engines.sqlite import writer_thread
from tests.faults.forged import a_claim_of_the_past_writes_nothing
from tests.faults.operations import claim_everything_guarded, guarded_waiting
from tests.faults.shop import LEASE, Shop
from tests.faults.site import Site
from tests.faults.test_only_the_holder_writes import end_as_lost

pytestmark = pytest.mark.proof
Check = Callable[[Shop], Awaitable[None]]


async def a_zombie_is_refused(shop: Shop) -> None:
    await shop.app.enqueue(shop.charge, "o")
    zombie, (old,) = await shop.hold()
    await shop.site.advance(3600)
    await shop.store.run(leases.recover)
    worker, (new,) = await shop.hold()
    await shop.store.run(settle, zombie, [Ending(old, Status.FAILED)])
    await shop.store.run(put_off, zombie, [Ending(old, Status.FAILED, retry_in=1.0)])
    await shop.store.run(settle, zombie, [Ending(new, Status.FAILED)])
    await shop.store.run(put_off, zombie, [Ending(new, Status.FAILED, retry_in=1.0)])
    assert await shop.store.run(settle, worker, [Ending(new, Status.COMPLETED)]) == set()
    assert await shop.site.sql("select status from semel_execution") == [("completed",)]


async def a_buried_worker_claims_nothing(shop: Shop) -> None:
    await guarded_waiting(shop)
    await shop.app.enqueue(shop.charge, "o")
    _, claims = await shop.hold(worker=4711)
    assert claims == []
    assert await claim_everything_guarded(shop, {"worker": 4711}) == 0


async def a_claim_is_taken_once(shop: Shop) -> None:
    memo = await guarded_waiting(shop)
    await shop.app.enqueue(shop.charge, "o")
    first = {one.seq for one in (await shop.hold(100))[1]}
    second = {one.seq for one in (await shop.hold(100))[1]}
    assert first.isdisjoint(second)
    assert await claim_everything_guarded(shop, memo) == 0


async def a_key_runs_once(shop: Shop) -> None:
    handles = [await shop.app.enqueue(shop.charge, "o", task_id="k") for _ in range(3)]
    assert len({handle.id for handle in handles}) == 1
    assert await shop.site.sql("select count(*) from semel_execution") == [(1,)]


async def a_key_is_given_once(shop: Shop) -> None:
    """Also where nobody has looked first who holds it."""
    starts = [request(shop.app.settings, shop.charge, ("o",), {}, task_id="k") for _ in range(2)]
    await shop.engine.open()
    rows = [row_of(start, await shop.engine._lanes.of(start.options)) for start in starts]
    assert len(await shop.store.run(insert, "default", rows)) == 1


async def a_key_is_bound_to_its_input(shop: Shop) -> None:
    await shop.app.enqueue(shop.charge, "o", task_id="k")
    with pytest.raises(semel.KeyConflict):
        await shop.app.enqueue(shop.charge, "other", task_id="k")
    with pytest.raises(semel.KeyConflict):
        await shop.app.enqueue(shop.flaky, "o", task_id="k")


async def a_key_is_taken_until_its_window_ends(shop: Shop) -> None:
    await shop.app.enqueue(shop.remembered, "o", task_id="k")
    await shop.run_all()
    await shop.site.advance(86400)
    assert (await shop.app.enqueue(shop.remembered, "o", task_id="k")).duplicate
    await shop.app.clean()
    assert (await shop.app.enqueue(shop.remembered, "o", task_id="k")).duplicate


async def a_living_execution_keeps_its_key(shop: Shop) -> None:
    handle = await shop.app.enqueue(shop.charge, "o", task_id="k")
    await shop.hold()
    assert await shop.store.run(control.redrive, "default", handle.id, "f" * 32) is None
    assert await shop.store.run(_release, handle.id) == []


async def an_ended_execution_stays_ended(shop: Shop) -> None:
    handle = await shop.app.enqueue(shop.charge, "o")
    await shop.run_all()
    await shop.store.run(end_as_lost, handle.id)
    assert await handle.status() is Status.COMPLETED
    assert await shop.site.sql("select * from semel_watch where what = 'changed'") == []


async def a_living_worker_is_not_buried(shop: Shop) -> None:
    await shop.app.enqueue(shop.charge, "o")
    worker, _ = await shop.hold()
    await shop.site.advance(0.9 * LEASE / 1e6)
    assert await shop.store.run(leases.recover) == []
    state, _ = await shop.store.run(leases.pulse, worker, LEASE, [], [], [], [])
    assert state is not None
    await shop.site.advance(0.9 * LEASE / 1e6)
    assert await shop.store.run(leases.recover) == []


async def limits_hold(shop: Shop) -> None:
    memo = await guarded_waiting(shop)
    await claim_everything_guarded(shop, memo)
    await claim_everything_guarded(shop, {"worker": await shop.worker_id()})
    held = "select count(*) from semel_ready r join semel_lane l on l.id = r.lane where r.owner is not null and "
    assert (await shop.site.sql(held + "l.queue = 'narrow'"))[0][0] <= 2
    assert (await shop.site.sql(held + "r.concurrency_key is not null"))[0][0] <= 1


async def permits_of_the_dead_return(shop: Shop) -> None:
    memo = await guarded_waiting(shop)
    await claim_everything_guarded(shop, memo)
    await shop.site.advance(3600)
    await shop.store.run(leases.recover)
    assert await claim_everything_guarded(shop, {"worker": await shop.worker_id()}) >= 5


async def poison_ends(shop: Shop) -> None:
    await shop.app.enqueue(shop.charge, "o")
    for _ in range(4):
        await shop.hold()
        await shop.site.advance(3600)
        await shop.store.run(leases.recover)
    assert await shop.site.sql("select status, attempt from semel_execution") == [("failed", 3)]


async def the_cleaner_spares_the_living(shop: Shop) -> None:
    handle = await shop.app.enqueue(shop.brief, "o", delay="30d")
    await shop.site.script(f"insert into semel_slip (due_at, executions) values (1, '{handle.id}')")
    await shop.store.run(retention.clean)
    assert await handle.status() is Status.PENDING
    await shop.store.run(_forget, handle.id)
    assert await handle.status() is Status.PENDING


async def what_is_due_runs_and_what_is_not_does_not(shop: Shop) -> None:
    await shop.app.enqueue(shop.charge, "o", delay="1h")
    assert await shop.store.run(leases.promote, 10) == []
    await shop.site.advance(3601)
    assert len(await shop.store.run(leases.promote, 10)) == 1


async def writers_take_turns(shop: Shop) -> None:
    """Two connections that read, then write: with BEGIN alone one of them fails on the other's commit."""
    async with Shop(shop.site) as other:
        for n in range(20):
            calls = [one.app.enqueue(one.charge, f"{who}-{n}") for who, one in enumerate((shop, other)) for _ in "abc"]
            await asyncio.gather(*calls)
            await asyncio.gather(*(_read_then_write(one) for one in (shop, other)))


async def _read_then_write(shop: Shop) -> None:
    await shop.store.run(control.cancel, "default", "nobody")
    await claim_everything_guarded(shop, {"worker": await shop.worker_id()})
    await shop.store.run(leases.adopt_orphans)


@procedure(ConnectionRole.CONTROL)
def _release(id_: str) -> Script[list[Any]]:
    return (yield SqlQuery("release_key", (id_,)))


@procedure(ConnectionRole.CONTROL)
def _forget(id_: str) -> Script[list[Any]]:
    return (yield SqlBatch("forget", [(id_,)]))


@dataclass(frozen=True)
class Mutant:
    """A guard, taken out: of a statement (old text, new text), of the tables, or of the code."""

    name: str
    check: Check
    statement: str = ""
    old: str = ""
    new: str = ""
    table: str = ""


MUTANTS = [
    Mutant("settle: the claim must be this worker's", a_zombie_is_refused, "settle", "and r.owner = ?1"),
    Mutant("retry: the claim must be this worker's", a_zombie_is_refused, "retry", "owner = ?1", "owner = owner"),
    *(
        Mutant(f"{statement}: {what}", a_claim_of_the_past_writes_nothing, statement, f"and {table}.{compared}")
        for statement, table, given in (("settle", "r", "d"), ("retry", "r", "d"), ("release", "semel_ready", "d"),
                                        ("note_progress", "semel_ready", "p"), ("cancels", "r", "o"))
        for what, compared in (("the token must be this claim's", f"token = {given}.value ->> 2"),
                               ("the execution must be this claim's", f"execution = {given}.value ->> 3"))
    ),
    Mutant("claim: only by a worker with a lease", a_buried_worker_claims_nothing, "claim",
           "exists (select 1 from semel_worker where id = ?1)", "1"),
    Mutant("claim by key: only by a worker with a lease", a_buried_worker_claims_nothing, "claim_these",
           "exists (select 1 from semel_worker w where w.id = ?1)", "1"),
    Mutant("claim: only what nobody has", a_claim_is_taken_once, "claim", "c.owner is null", "1"),
    Mutant("one current execution per key", a_key_is_given_once, table="drop index semel_execution_key"),
    Mutant("release_key: only of a finished one", a_living_execution_keeps_its_key, "release_key",
           "and status in ('completed', 'failed', 'cancelled', 'timed_out')"),
    Mutant("end: only what has not ended", an_ended_execution_stays_ended, "end",
           "and semel_execution.status in ('pending', 'running', 'waiting')"),
    Mutant("bury: only whose lease ran out", a_living_worker_is_not_buried, "bury_workers",
           "expires_at < coalesce(?1, semel_now())", "1"),
    Mutant("pulse renews the lease", a_living_worker_is_not_buried, "pulse", "semel_now() + ?2", "expires_at"),
    Mutant("permits are counted", limits_hold, "count_permits", "count(*)", "count(*) * 0"),
    Mutant("permits of the dead are pruned", permits_of_the_dead_return, "prune_permits", "namespace = ?1", "0"),
    Mutant("forget: only what has ended", the_cleaner_spares_the_living, "forget",
           "and status in ('completed', 'failed', 'cancelled', 'timed_out')"),
    Mutant("promote: only what is due", what_is_due_runs_and_what_is_not_does_not, "promote",
           "due_at <= semel_now()", "1"),
]  # fmt: skip


def prepare(tmp_path: Path) -> Site:
    site = Site("sqlite", f"sqlite:///{tmp_path}/semel.db", str(tmp_path))
    asyncio.run(site.build())
    return site


async def passes(site: Site, check: Check) -> None:
    await site.reset()
    async with Shop(site) as shop:
        await check(shop)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_missing_guard_is_noticed(mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = prepare(tmp_path)
    asyncio.run(passes(site, mutant.check))
    if mutant.table:
        asyncio.run(_without(site, mutant))
        return
    parts = writer_thread.statements()[mutant.statement]
    assert any(mutant.old in sql for sql, _ in parts), "the mutant does not fit the statement any more"
    weaker = [(sql.replace(mutant.old, mutant.new), count) for sql, count in parts]
    monkeypatch.setitem(writer_thread.statements(), mutant.statement, weaker)
    with pytest.raises((AssertionError, semel.SemelError, pytest.fail.Exception)):
        asyncio.run(asyncio.wait_for(passes(site, mutant.check), 20))


async def _without(site: Site, mutant: Mutant) -> None:
    await site.reset()
    await site.script(mutant.table)
    async with Shop(site) as shop:
        with pytest.raises(AssertionError):
            await mutant.check(shop)


def test_without_the_fingerprint_check_other_input_would_be_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = prepare(tmp_path)
    asyncio.run(passes(site, a_key_is_bound_to_its_input))
    monkeypatch.setattr("semel.codec.fingerprint", lambda name, payload: b"0" * 16)
    with pytest.raises(pytest.fail.Exception):
        asyncio.run(passes(site, a_key_is_bound_to_its_input))


def test_without_the_window_check_a_key_would_be_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = prepare(tmp_path)
    asyncio.run(passes(site, a_key_is_taken_until_its_window_ends))
    monkeypatch.setattr(decision, "_runs_again", lambda prior, reuse, now: True)
    with pytest.raises(AssertionError):
        asyncio.run(passes(site, a_key_is_taken_until_its_window_ends))


def test_without_the_window_in_retention_a_key_would_be_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = prepare(tmp_path)
    monkeypatch.setattr(retention, "retention_action", lambda *args: retention.RetentionAction.FORGET)
    with pytest.raises(AssertionError):
        asyncio.run(passes(site, a_key_is_taken_until_its_window_ends))


def test_without_a_limit_of_attempts_poison_would_never_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = prepare(tmp_path)
    asyncio.run(passes(site, poison_ends))
    parts = [(sql.replace("max_attempts, crashes", "max_attempts + 99, crashes", 1), n)
             for sql, n in writer_thread.statements()["take_back"]]  # fmt: skip
    monkeypatch.setitem(writer_thread.statements(), "take_back", parts)
    with pytest.raises(AssertionError):
        asyncio.run(passes(site, poison_ends))


def test_without_begin_immediate_writers_would_trip_over_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = prepare(tmp_path)
    asyncio.run(passes(site, writers_take_turns))
    real = writer_thread.WriterThread.__init__

    def lazy(self: writer_thread.WriterThread, *args: Any, **kwargs: Any) -> None:
        kwargs["reads"] = True
        real(self, *args, **kwargs)

    monkeypatch.setattr(writer_thread.WriterThread, "__init__", lazy)
    with pytest.raises(semel.EngineUnavailable):
        meet_at_last(site)


def meet_at_last(site: Site) -> None:
    """Two writers meet in most runs, not in each."""
    for _ in range(20):
        asyncio.run(passes(site, writers_take_turns))
