"""What an entity was, and what it answered, is in its history: it can be read while no worker is there."""

from pathlib import Path

import pytest

import semel
from tests.cli.shell import at_shell
from tests.conftest import new_world
from tests.temporal_world import TemporalWorld
from tests.world import waits

pytestmark = pytest.mark.slow


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> TemporalWorld:
    made = new_world("temporal", tmp_path, request)
    assert isinstance(made, TemporalWorld)
    return made


class Points:
    total: int = 0

    @semel.handler
    async def add(self, ctx: semel.EntityContext, n: int = 1) -> int:
        self.total += n
        return self.total

    @semel.query
    def doubled(self) -> int:
        return 2 * self.total


class TwicePoints(Points):
    @semel.handler
    async def add(self, ctx: semel.EntityContext, n: int = 1) -> int:
        self.total += 2 * n
        return self.total


async def test_state_queries_and_answers(world: TemporalWorld) -> None:
    app = world.app()
    app.entity(Points)
    points = app.entity(Points, "p")
    await points.send("add", 5, dedup_key="k")
    assert (await points.state()).total == 0
    async with world.worker(app):
        await points.ask("add", 1, timeout="60s")
    await points.send("add", 100)
    assert (await points.state()).total == 6
    assert await points.query("doubled") == 12
    with pytest.raises(semel.ResultPending):
        await points.ask("add", 5, timeout="100ms")


async def test_code_that_changes_does_not_change_what_was(world: TemporalWorld) -> None:
    """Temporal alone would run all messages again with the new code."""
    app, new = world.app(), world.app()
    app.entity(name="Points")(Points)
    new.entity(name="Points")(TwicePoints)
    async with world.worker(app, cached_workflows=0):
        points = app.entity(Points, "p")
        assert await points.ask("add", 1, dedup_key="one", timeout="60s") == 1
        assert await points.ask("add", 1, timeout="60s") == 2
    async with world.worker(new, cached_workflows=0):
        again = new.entity(TwicePoints, "p")
        assert await again.ask("add", 1, timeout="60s") == 4
        assert await again.ask("add", 1, dedup_key="one", timeout="60s") == 1
        assert (await again.state()).total == 4


class Napper:
    total: int = 0

    @semel.handler
    async def nap(self, ctx: semel.EntityContext) -> None:
        await ctx.sleep("1h")
        self.total += 1


async def test_the_journal_of_a_message_that_is_under_way_is_not_made_up(world: TemporalWorld) -> None:
    app = world.app()
    app.entity(Napper)
    async with world.worker(app):
        await app.entity(Napper, "n").send("nap")
        handle = await app.find("Napper/n", kind="entity")
        assert handle is not None
        await waits(handle)
    for asked in (handle.export(), handle.history()):
        with pytest.raises(semel.NotFound, match="in the middle of a message"):
            await asked
    await world.listed()
    assert [one.ok for one in await app.replay()] == [True], "it is replayed from the cluster"
    told = await at_shell("workflows", "show", "Napper/n", "--url", world.url, "--namespace", app.settings.namespace)
    assert (told.code, "in the middle of a message" in told.out) == (0, True)
