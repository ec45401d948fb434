"""app.sync.entity: the same without await."""

import asyncio

import pytest

import semel
from tests.world import World


class Points:
    total: int = 0

    @semel.handler
    async def add(self, ctx: semel.EntityContext, n: int) -> int:
        self.total += n
        if self.total < 0:
            raise ValueError("below nothing")
        return self.total

    @semel.query
    def doubled(self, times: int = 2) -> int:
        return self.total * times


async def test_every_verb_from_a_thread(world: World) -> None:
    app = world.app()
    app.entity(Points)

    def script() -> None:
        points = app.sync.entity(Points, "p")
        assert (points.id, points.key, repr(points)) == ("p", "Points/p", "<SyncRef Points/p>")
        with pytest.raises(semel.NotFound):
            points.state()
        points.send("add", 1, dedup_key="k")
        points.send("add", n=1, dedup_key="k")
        assert points.ask("add", 4, timeout="60s") == 5
        assert (points.state().total, points.query("doubled"), points.query("doubled", times=3)) == (5, 10, 15)
        with pytest.raises(semel.ExecutionFailed, match="below nothing"):
            points.ask("add", -9, timeout="60s")
        found = app.sync.find(points.key, kind="entity")
        assert found is not None
        assert found.status() == "waiting"
        assert found.state() == {"total": 5}

    async with world.worker(app):
        try:
            await asyncio.to_thread(script)
        finally:
            await asyncio.to_thread(app.sync.close)
