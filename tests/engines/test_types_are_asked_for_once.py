"""PostgreSQL's array types are the same on every connection: a process asks what they look like once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import asyncpg
import pytest

from semel.engines.postgres.address import KnownTypes
from tests.world import World


async def test_the_second_app_of_a_process_asks_for_none_again(
    postgres_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = asyncpg.Connection._introspect_types, []

    async def count(self: asyncpg.Connection, typeoids: Iterable[int], timeout: float) -> Any:
        if isinstance(self, KnownTypes):
            asked.append(frozenset(typeoids))
        return await real(self, typeoids, timeout)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", count)
    monkeypatch.setattr(KnownTypes, "_known", {})

    async def work() -> None:
        app = postgres_world.app()

        @app.task
        async def double(n: int) -> int:
            return 2 * n

        async with app, app.worker():
            many = await app.enqueue_many([double.call(n) for n in range(3)])
            assert [await one.result(timeout="60s") for one in many] == [0, 2, 4]

    await work()
    assert asked, "asyncpg no longer asks in this way: KnownTypes is of no use"
    before = set(asked)
    asked.clear()
    await work()
    assert before.isdisjoint(asked)
