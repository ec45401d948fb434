"""Claims that are nearly right: as a worker holds them that remembers a past which the database has forgotten."""

from __future__ import annotations

from typing import TypeVar

import pytest
from msgspec.structs import replace

from semel.contract.lifecycle import Status
from semel.engine.ids import new_id
from semel.engines.journal import control
from semel.engines.journal.claims import Claim, release
from semel.engines.journal.leases import pulse
from semel.engines.journal.settle import Ending, put_off, settle
from semel.engines.journal.turns import Commit, Verdict, WentBack, commit, park, record, still_held
from tests.faults.flow_shop import FlowShop
from tests.faults.shop import LEASE, Shop

Held = TypeVar("Held", Claim, Commit)


def forged(one: Held) -> list[Held]:
    """The same place and worker: another claim of the same execution, and a claim of another execution."""
    return [replace(one, token=one.token + 1), replace(one, execution=new_id())]


async def a_claim_of_the_past_writes_nothing(shop: Shop) -> None:
    handle = await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")
    worker, (claim,) = await shop.hold()
    for one in forged(claim):
        assert await shop.store.run(settle, worker, [Ending(one, Status.COMPLETED, b'"x"')]) == {one.token}
        assert await shop.store.run(put_off, worker, [Ending(one, Status.FAILED, retry_in=1.0)]) == {one.token}
        await shop.store.run(release, worker, [one.fence])
        await shop.store.run(pulse, worker, LEASE, [], [], [(*one.fence, "half")], [one.fence])
    assert await shop.site.sql("select owner, attempt, progress from semel_ready") == [(worker, 1, None)]
    await shop.store.run(control.cancel, "default", handle.id)
    for one in forged(claim):
        _, cancelled = await shop.store.run(pulse, worker, LEASE, [], [], [], [one.fence])
        assert cancelled == []
    _, cancelled = await shop.store.run(pulse, worker, LEASE, [], [], [], [claim.fence])
    assert cancelled == [handle.id]
    assert await shop.store.run(settle, worker, [Ending(claim, Status.COMPLETED, b'"o-1"')]) == set()


async def hold_flow(shop: FlowShop) -> tuple[int, Commit]:
    """A workflow that a worker driven by hand has claimed, and its first turn."""
    await shop.app.start_workflow(shop.patient, workflow_id="w-1")
    worker, (claim,) = await shop.hold()
    return worker, Commit(*claim.fence, 1, b'[["b",1,1,1,1]]')


async def a_turn_of_the_past_writes_nothing(shop: FlowShop) -> None:
    worker, turn = await hold_flow(shop)
    later = replace(turn, n=3)  # stands on rows that are not there
    for one in [*forged(turn), later]:
        assert await shop.store.run(record, worker, [one]) == {one.token: Verdict.STALE}
        told = replace(one, body=None, published=[(turn.execution, "state", b'"x"')])
        assert await shop.store.run(commit, "default", worker, [told]) == {one.token: Verdict.STALE}
    for one in forged(turn):
        assert not await shop.store.run(still_held, worker, one.fence)
        await shop.store.run(park, worker, one.fence, b"{}", 1)
    assert await shop.site.sql("select * from semel_journal") == []
    assert await shop.site.sql("select * from semel_published") == []
    assert await shop.site.sql("select parks from semel_flow") == [(0,)]
    assert await shop.site.sql("select owner from semel_ready") == [(worker,)]


async def a_letter_of_the_past_is_not_taken_out(shop: FlowShop) -> None:
    worker, turn = await hold_flow(shop)
    await (await shop.app.get(turn.execution)).signal("go", "a")
    ((id_, at),) = await shop.site.sql("select id, at from semel_inbox")
    for row in ((turn.execution, id_, at - 1), (turn.execution, id_ + 1, at)):
        with pytest.raises(WentBack):
            await shop.store.run(commit, "default", worker, [replace(turn, consumed=[row])])
    assert await shop.site.sql("select count(*) from semel_journal") == [(0,)]
    taken = replace(turn, consumed=[(turn.execution, id_, at)])
    assert await shop.store.run(commit, "default", worker, [taken]) == {turn.token: Verdict.HELD}
    assert await shop.site.sql("select count(*) from semel_inbox") == [(0,)]
