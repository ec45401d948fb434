"""While the records database is away nothing is guessed, and what can wait waits."""

from __future__ import annotations

import signal
from functools import partial
from typing import Any

import pytest

from semel.contract.decision import Reason
from semel.engines.temporal.records import open_records
from semel.errors import EngineUnavailable
from semel.runtime import retries
from tests.engines.temporal.archive import WEEK, Away, end, opened, run, tapped
from tests.faults.server import fragile_postgres
from tests.world import World, eventually


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "pause", lambda attempt, most=5.0: 0.01)


async def test_a_start_that_needs_the_ledger_is_refused_and_told_why(world: World) -> None:
    async with opened(world) as records:
        tapped(records, away := Away())
        for _ in range(2):
            with pytest.raises(EngineUnavailable, match="task key 'k' has a window that is longer than the cluster"):
                await records.prior("task", "k")
        away.away = False
        assert await records.prior("task", "k") is None


async def test_every_question_says_that_it_is_away(world: World) -> None:
    async with opened(world) as records:
        tapped(records, Away())  # before its tables were looked at, which is what every question begins with
        for ask in (
            partial(records.reserve, run("r1")), partial(records.settle, end(world, "r1")),
            partial(records.transact, "r1", "s", lambda tx: None), partial(records.find, "task", "k"),
            partial(records.get, "r1"), partial(records.outcome, "r1"), partial(records.input_of, "r1"), records.clean,
        ):  # fmt: skip
            with pytest.raises(EngineUnavailable):
                await ask()
        assert await records.suppressed(["r1"]) is None


async def test_a_transaction_outlasts_a_short_absence(world: World) -> None:
    class Hiccup(Away):
        def before(self, statement: str) -> None:
            try:
                super().before(statement)
            finally:
                self.away = False

    calls: list[int] = []

    def once(tx: Any) -> bytes:
        calls.append(1)
        return b"1"

    async with opened(world) as records:
        await records.suppressed([])
        tapped(records, Hiccup())
        assert await records.transact("r1", "s", once) == b"1"
        assert calls == [1]


@pytest.mark.slow
async def test_a_server_that_dies_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with fragile_postgres() as server:
        server.sql("create database records")
        records = open_records(server.url("records"), "default", auto_migrate=True)
        world = World("postgres", server.url("records"))
        await records.reserve(run("r1"))
        records.count("r1", Reason.JOINED, world.now(), WEEK)
        server.end(signal.SIGQUIT)
        with pytest.raises(EngineUnavailable):
            await records.settle(end(world, "r1"))
        with pytest.raises(EngineUnavailable, match="nobody knows whether this ran before"):
            await records.prior("task", "k")
        assert await records.suppressed(["r1"]) is None
        records.count("r1", Reason.JOINED, world.now(), WEEK)
        server.start()
        assert await records.settle(end(world, "r1"))

        async def counted() -> bool:
            found = await records.suppressed(["r1"])
            return found is not None and found[0].count == 2

        await eventually(counted)
        await records.close()
