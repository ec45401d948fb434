"""Guards of workflows and entities, taken out one by one: something here must notice each time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

import semel
from semel.contract.window import DedupWindow
from semel.engines.journal import flow_rows, turns
from semel.engines.journal.turns import Commit, Verdict, commit, record
from semel.engines.sqlite import writer_thread
from semel.flow import snapshot
from semel.flow.snapshot import Snapshot
from tests.faults.conftest import new_site
from tests.faults.flow_operations import NOT_PARKED, other_code
from tests.faults.flow_shop import FlowShop
from tests.faults.forged import (
    a_letter_of_the_past_is_not_taken_out,
    a_turn_of_the_past_writes_nothing,
    hold_flow,
)
from tests.faults.site import Site
from tests.faults.test_mutants import prepare

pytestmark = pytest.mark.proof
Check = Callable[[FlowShop], Awaitable[None]]
LONG = 4.0


async def a_zombie_writes_nothing(shop: FlowShop) -> None:
    worker, turn = await hold_flow(shop)
    other = await shop.worker_id()
    assert await shop.store.run(record, other, [turn]) == {turn.token: Verdict.STALE}
    told = replace(turn, published=[(turn.execution, "state", b'"x"')])
    assert await shop.store.run(commit, "default", other, [told]) == {turn.token: Verdict.STALE}
    assert await shop.site.sql("select * from semel_journal") == []
    assert await shop.site.sql("select * from semel_published") == []
    assert await shop.store.run(record, worker, [turn]) == {turn.token: Verdict.HELD}


async def a_zombie_s_turn_without_a_row_counts_for_nothing(shop: FlowShop) -> None:
    _, turn = await hold_flow(shop)
    told = replace(turn, body=None, published=[(turn.execution, "state", b'"x"')])
    await shop.store.run(commit, "default", await shop.worker_id(), [told])
    assert await shop.site.sql("select * from semel_published") == []


async def a_row_is_written_once(shop: FlowShop) -> None:
    worker, turn = await hold_flow(shop)
    told = replace(turn, sends=[(turn.execution, "signal", "go", None, b'"x"', None)])
    for _ in range(2):  # a lost reply: the same turn again
        assert await shop.store.run(commit, "default", worker, [told]) == {turn.token: Verdict.HELD}
    assert await shop.site.sql("select n from semel_journal") == [(1,)]
    assert await shop.site.sql("select count(*) from semel_inbox") == [(1,)]


async def a_new_run_begins_once(shop: FlowShop) -> None:
    worker, turn = await hold_flow(shop)
    sends = [(turn.execution, "signal", "go", None, b'"x"', None)]
    told = replace(turn, body=None, sends=sends, restart=snapshot.dump(Snapshot(b"{}", 2)), base=1)
    for _ in range(2):
        await shop.store.run(commit, "default", worker, [told])
    assert await shop.site.sql("select count(*) from semel_inbox") == [(1,)]


async def what_has_mail_stays_awake(shop: FlowShop) -> None:
    worker, turn = await hold_flow(shop)
    await (await shop.app.get(turn.execution)).signal("go", "a")
    verdicts = await shop.store.run(commit, "default", worker, [replace(turn, rests=True)])
    assert verdicts == {turn.token: Verdict.HELD}


async def a_signal_counts_once(shop: FlowShop) -> None:
    handle = await shop.app.start_workflow(shop.counting, 1, [], workflow_id="w-1")
    for value in "aab":
        await handle.signal("go", value, dedup_key=value)
    await shop.run_all()
    assert await handle.result(LONG) == ["1", "a", "0", "b"]


async def a_workflow_hears_of_its_tasks(shop: FlowShop) -> None:
    handle = await shop.app.start_workflow(shop.whole, "o-1", workflow_id="w-1")
    await shop.until("select count(*) from semel_ready")
    await asyncio.sleep(0.5)
    await shop.run_all()
    assert await handle.result(LONG) == ["a", "o-1", "c", "o-1-f"]


async def an_answer_is_for_the_run_that_asked(shop: FlowShop) -> None:
    @shop.app.workflow
    async def forgetful(ctx: semel.Context, n: int) -> str:
        first = asyncio.create_task(ctx.execute_task(shop.charge, f"{n}", delay="300ms" if n else "900ms"))
        await ctx.step(shop.touch, "s", name="let-it-begin")
        if n:
            ctx.continue_as_new(0)
        return await first

    handle = await shop.app.start_workflow(forgetful, 1, workflow_id="w-1")
    await shop.until("select count(*) from semel_flow")
    assert await handle.result(LONG) == "0"


async def the_last_message_is_not_lost(shop: FlowShop) -> None:
    async def one_more() -> None:
        await shop.account.send("add", 7, dedup_key="late")

    shop.before_end = one_more
    await shop.account.send("add", 5, dedup_key="k-1")
    await shop.account.send("stop", dedup_key="k-2")
    await shop.run_all()
    shop.before_end = None
    await shop.account.send("stop", dedup_key="k-3")
    await shop.run_all()
    rows = await shop.site.sql("select body from semel_published where name like 'total-%'")
    assert sorted(int(body) for (body,) in rows) == [5, 7]


async def other_code_is_parked(shop: FlowShop) -> None:
    await other_code(shop)
    await shop.until(NOT_PARKED)


@dataclass(frozen=True)
class Mutant:
    """A guard, taken out: of a statement (old text, new text), of the tables, or of the code."""

    name: str
    check: Check
    statement: str = ""
    old: str = ""
    new: str = ""
    table: str = ""
    code: Callable[[pytest.MonkeyPatch], None] | None = None


def _without_numbers(patch: pytest.MonkeyPatch) -> None:
    real = snapshot.dump
    patch.setattr(flow_rows.snapshot, "dump", lambda one: real(replace(one, numbers=0)))


def _ends_at_once(commits: list[Commit]) -> Any:
    yield from ()
    return commits


TRIES = 10
"""A guard against two that meet is missed only when they do: a message may come in time by itself."""
MUTANTS = [
    Mutant("record: the claim must be this worker's", a_zombie_writes_nothing, "record", "and r.owner = ?1"),
    Mutant("held: the claim must be this worker's", a_zombie_s_turn_without_a_row_counts_for_nothing, "held",
           "and r.owner = ?1"),
    *(
        Mutant(f"{statement}: {what}", a_turn_of_the_past_writes_nothing, statement, compared)
        for statement in ("record", "held")
        for what, compared in (("the token must be this claim's", "and r.token = o.value ->> 2"),
                               ("the execution must be this claim's", "and r.execution = o.value ->> 3"))
    ),
    Mutant("park_flow: the token must be this claim's", a_turn_of_the_past_writes_nothing, "park_flow",
           "token = ?4", "1"),
    Mutant("record: the row before must be there", a_turn_of_the_past_writes_nothing, "record",
           "f.base = (o.value ->> 4) - 1", "1"),
    Mutant("consume: what came must be what was taken in", a_letter_of_the_past_is_not_taken_out, "consume",
           "and i.at = o.value ->> 2"),
    Mutant("one row of the journal in one place", a_row_is_written_once, table="""
        drop table semel_journal;
        create table semel_journal (execution text, n integer, token integer, body blob)"""),
    Mutant("held: what has begun anew was committed before", a_new_run_begins_once, "held", "f.base", "0"),
    Mutant("sleep_flows: not while there is mail", what_has_mail_stays_awake, "sleep_flows",
           "and not exists (select 1 from semel_inbox i where i.execution = o.execution)"),
    Mutant("the end of an execution is told to who waits", a_workflow_hears_of_its_tasks,
           table="drop trigger semel_told"),
    Mutant("the keys of signals are remembered", a_signal_counts_once,
           code=lambda patch: patch.setattr(DedupWindow, "push_at", lambda *args, **kwargs: True)),
    Mutant("numbers go on over continue_as_new", an_answer_is_for_the_run_that_asked, code=_without_numbers),
    Mutant("an entity does not end while there is mail", the_last_message_is_not_lost,
           code=lambda patch: patch.setattr(turns, "_not_for_nothing", _ends_at_once)),
    Mutant("the code is compared with its journal", other_code_is_parked,
           code=lambda patch: patch.setattr("semel.flow.instance.alike", lambda expected, found: True)),
]  # fmt: skip


async def passes(site: Site, check: Check, table: str = "") -> None:
    await site.reset()
    if table:
        await site.script(table)
    async with FlowShop(site, patience=LONG) as shop:
        await check(shop)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_missing_guard_of_flows_is_noticed(mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = prepare(tmp_path)
    asyncio.run(passes(site, mutant.check))
    if mutant.statement:
        parts = writer_thread.statements()[mutant.statement]
        assert any(mutant.old in sql for sql, _ in parts), "the mutant does not fit the statement any more"
        weaker = [(sql.replace(mutant.old, mutant.new), count) for sql, count in parts]
        monkeypatch.setitem(writer_thread.statements(), mutant.statement, weaker)
    if mutant.code is not None:
        mutant.code(monkeypatch)
    for _ in range(TRIES):
        try:
            asyncio.run(asyncio.wait_for(passes(site, mutant.check, mutant.table), 30))
        except (AssertionError, semel.SemelError, TimeoutError, pytest.fail.Exception):
            return
    pytest.fail("nobody noticed that this guard was missing")


async def _falls_asleep_while_a_signal_comes(site: Site, weaker: str | None, restart: bytes | None = None) -> None:
    """PostgreSQL: one that is falling asleep has either seen what came, or is seen asleep."""
    async with FlowShop(site) as shop:
        worker, turn = await hold_flow(shop)
        if weaker is not None:
            shop.store._queries["lock_flows"] = weaker  # type: ignore[attr-defined]
        sender = await asyncpg.connect(site.url)
        try:
            coming = sender.transaction()
            await coming.start()
            await sender.execute(
                "insert into semel_inbox (execution, kind, name, at) values ($1, 'signal', 'go', 1)", turn.execution
            )
            resting = replace(turn, rests=True, restart=restart)
            sleeping = asyncio.create_task(shop.store.run(commit, "default", worker, [resting]))
            await asyncio.wait([sleeping], timeout=0.3)
            await coming.commit()
            await sleeping
        finally:
            await sender.close()
        rows = await site.sql("select asleep from semel_flow where exists (select from semel_inbox)")
        assert rows == [(False,)], "asleep with something to do: nobody would ever wake it"


def test_without_the_lock_a_flow_would_sleep_over_what_comes(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    site = new_site("postgres", tmp_path, request)
    asyncio.run(_falls_asleep_while_a_signal_comes(site, None))
    asyncio.run(site.reset())
    asyncio.run(_falls_asleep_while_a_signal_comes(site, None, b"a snapshot"))
    asyncio.run(site.reset())
    unlocked = "select f.execution from semel_flow f where f.execution = any($1::text[]) order by f.execution"
    with pytest.raises(AssertionError):
        asyncio.run(_falls_asleep_while_a_signal_comes(site, unlocked))
