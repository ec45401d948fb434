"""A hundred duplicates from four processes at once, on Temporal with its records on PostgreSQL."""

from __future__ import annotations

import asyncio

import pytest

from bench.server import Postgres
from tests.faults.forks import Forks
from tests.faults.temporal.place import Place, prepare, worker


@pytest.mark.slow
def test_a_hundred_duplicates_are_one_execution_and_share_its_result(
    place: Place, fork_server: Forks, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres_server.sql("create database kitchen_records")
    place = Place(place.url, postgres_server.url("kitchen_records"), place.folder)
    monkeypatch.setenv("SEMEL_RECORDS", place.records)
    asyncio.run(prepare(place))
    with worker(place):
        call = ("tests.faults.temporal.crowd:duplicates", {"place": place.plain(), "times": 25})
        answers = fork_server.together(*[call] * 4)
    assert [code for code, _ in answers] == [0] * 4, answers
    told = [said[0] for _, said in answers]
    assert len({id_ for one in told for id_ in one["ids"]}) == 1
    assert sum(one["new"] for one in told) == 1
    assert [got for one in told for got in one["got"]] == ["o"] * 100
    assert list(place.ledger.times().values()) == [1]

    async def suppressed() -> int:
        kitchen = place.kitchen()
        async with kitchen.app as app:
            return sum(one.count for one in (await app.explain("one")).suppressed)

    assert asyncio.run(suppressed()) == 99
