"""What an earlier release has stored is listed, shown, explained and exported, and its journals replay."""

from __future__ import annotations

import pytest

from tests.cli.shell import at_shell
from tests.stored.kept import RestoredWorld
from tests.stored.story import found


async def test_everything_can_be_looked_at(world: RestoredWorld) -> None:
    app = world.program()
    executions = await app.list(limit=1000)
    assert len(executions) > 50
    assert {e.status.value for e in executions} == {
        "pending", "running", "waiting", "completed", "failed", "cancelled", "timed_out",
    }  # fmt: skip
    for execution in executions:
        handle = await app.get(execution.id)
        assert (await handle.describe()).name == execution.name
        if execution.key is not None:
            told = await app.explain(execution.key, kind=execution.kind)
            assert execution.id in {one.id for one in told.executions}
            assert execution.key in str(told)
        if execution.kind != "task":
            assert isinstance(await handle.history(), list | tuple)
            assert app.replay_history(await handle.export()).ok
    assert [e.key for e in await app.list(attributes={"order": "sleeps"})] == ["process:sleeps"]
    queues = {queue.name: queue for queue in await app.queues()}
    assert (queues["bulk"].ready, queues["bulk"].settings.concurrency) == (10, 3)
    parked = (await (await found(app, "inspect", "workflow")).describe()).error
    assert parked is not None
    assert "NonDeterminism" in parked.type


async def test_every_journal_replays(world: RestoredWorld) -> None:
    app = world.program()
    replayed = await app.replay()
    assert [one for one in replayed if not one.ok] == []
    assert len(replayed) == 24


async def test_the_doctor_reads_it(world: RestoredWorld) -> None:
    app = world.program()
    await app.migrate()
    found_ = {finding.what: finding for finding in await app.doctor()}
    assert found_["migrations"].ok
    assert "inspect" in found_["parked"].detail
    assert "Account/rest (2)" in found_["failed messages"].detail


@pytest.mark.slow
async def test_at_a_shell(world: RestoredWorld) -> None:
    app = world.program()
    charged = await found(app, "charge:o-1")
    for command, word in (
        (("list", "--json", "--limit", "1000"), "charge:o-1"),
        (("show", charged.id), "charge:o-1"),
        (("explain", "charge:o-1"), "charge:o-1"),
        (("workflows", "list"), "process:sleeps"),
        (("workflows", "show", "process:sleeps"), "process:sleeps"),
        (("workflows", "export", "family"), "semel-history"),
        (("entities", "failed", "Account/rest"), "spend"),
    ):
        answer = await at_shell(*command, "--url", world.url)
        assert (answer.code, word in answer.out) == (0, True), (command, answer)
