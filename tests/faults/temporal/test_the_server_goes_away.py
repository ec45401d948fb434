"""The Temporal server is killed and started again on its file, twice, while everything is under way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.testing.temporal_server import TemporalServer, temporal_server
from tests.faults.temporal.place import Place, prepare, retry_unavailable
from tests.world import eventually

CRASHES = 2
MANY = 30


async def tasks(kitchen: Any) -> None:
    """One after the other, each asked for twice."""
    for n in range(MANY):
        ask = lambda n=n: kitchen.app.enqueue(kitchen.cook, f"t-{n}", task_id=f"t-{n}")  # noqa: E731
        first = await retry_unavailable(ask)
        second = await retry_unavailable(ask)
        assert first.id == second.id
        assert await retry_unavailable(lambda first=first: first.result(timeout="60s")) == f"t-{n}"  # type: ignore[misc]
        assert (await retry_unavailable(ask)).duplicate


async def meals(kitchen: Any) -> None:
    """All at once, with steps, timers, children and signals."""

    async def one(n: int) -> None:
        start = lambda: kitchen.app.start_workflow(kitchen.meal, f"m-{n}", workflow_id=f"m-{n}")  # noqa: E731
        handle = await retry_unavailable(start)
        await asyncio.sleep(0.3 * n)
        await retry_unavailable(lambda: handle.signal("served", "yes", dedup_key="once"))
        got = await retry_unavailable(lambda: handle.result(timeout="60s"))
        assert got == [f"m-{n} ordered", f"m-{n}", f"m-{n}", f"m-{n}", "yes", f"m-{n} paid"]

    await asyncio.gather(*(one(n) for n in range(10)))


async def messages(kitchen: Any) -> None:
    """Each counts once, however often it is sent; every answer is the total after it."""
    till = kitchen.app.entity(kitchen.Till, "main")
    for n in range(1, MANY + 1):
        ask = lambda n=n: till.ask("add", 1, dedup_key=f"d-{n}", timeout="60s")  # noqa: E731
        assert await retry_unavailable(ask) == n
    assert await retry_unavailable(lambda: till.ask("add-with-receipt", 0, dedup_key="last", timeout="60s")) == MANY


async def crashes(server: TemporalServer, place: Place) -> None:
    """While there is something to break."""
    for _ in range(CRASHES):
        before = len(place.ledger.effects())
        await eventually(lambda before=before: len(place.ledger.effects()) > before + 8, within=60)
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(server.restart)


async def told_that_it_is_away(kitchen: Any) -> None:
    """Nobody waits for ever, and nobody takes silence for an answer."""
    app = kitchen.app
    handle = semel.Handle(app, "01a1e303-db48-7f3a-9a03-89232482056f@task:t-1", "cook", "t-1", duplicate=False)
    asked = (app.enqueue(kitchen.cook, "late"), app.find("t-1"), app.explain("t-1"), handle.cancel(), handle.result())
    answers = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 60)
    assert [type(answer) for answer in answers] == [semel.EngineUnavailable] * len(answers), answers
    with pytest.raises((semel.ResultPending, semel.EngineUnavailable)):
        await handle.result(timeout="100ms")


@pytest.mark.slow
def test_a_server_that_is_killed_and_comes_back_loses_nothing_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with temporal_server(tmp_path / "server") as server:
        place = Place(server.url("kitchen"), f"sqlite:///{tmp_path}/records.db", str(tmp_path))
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
        asyncio.run(prepare(place))

        async def play() -> None:
            kitchen = place.kitchen()
            async with kitchen.app, kitchen.app.worker(lease="2s") as worker:
                await asyncio.gather(tasks(kitchen), meals(kitchen), messages(kitchen), crashes(server, place))
                assert worker.healthy
                found = [one.status for one in await kitchen.app.list(limit=1000)]
                assert {status for status in found if status.terminal} == {semel.Status.COMPLETED}
                assert len([status for status in found if not status.terminal]) == 1  # the entity goes on
                assert len(found) == MANY + 10 * 3 + 1
                await asyncio.to_thread(server.kill)
                await told_that_it_is_away(kitchen)
                await asyncio.to_thread(server.restart)

        asyncio.run(play())
    times = place.ledger.times()
    assert len(times) == MANY + 10 * 5 + 1
    assert max(times.values()) <= 1 + CRASHES, times
    twice = sum(count > 1 for count in times.values())
    assert twice <= 2 * CRASHES * 10, times  # only what was under way just then
