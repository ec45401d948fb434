"""Closing an app writes down what it still had in memory."""

import asyncio
import gc
from typing import Any

import pytest

import semel
from semel.engines.journal.admissions import count_duplicates
from semel.engines.journal.engine import JournalEngine
from tests.world import SOON, World, eventually, unbounded


async def test_suppressed_duplicates_are_counted_at_close(world: World) -> None:
    app, reader = world.app(), world.app()

    @app.task
    async def work() -> None: ...

    for _ in range(4):
        await app.enqueue(work, task_id="k")
    await app.close()
    (joined,) = (await reader.explain("k")).suppressed
    assert joined.count == 3


async def test_requests_under_way_are_finished(world: World) -> None:
    app, reader = world.app(), world.app()

    @app.task
    async def work(n: int) -> None: ...

    await app.enqueue_many([work.call(n) for n in range(10)])
    await app.close()
    await world.listed()
    assert len(await reader.list()) == 10


async def test_a_closed_app_can_be_used_again(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> str:
        return "done"

    first = await app.enqueue(work, task_id="k")
    await app.close()
    await app.close()
    async with world.worker(app):
        assert await first.result(timeout="60s") == "done"


class Counting:
    """The writing of counts into one app's database, which can be made to fail or to take long."""

    def __init__(self, app: semel.App, monkeypatch: pytest.MonkeyPatch) -> None:
        engine = unbounded(app.engine)
        assert isinstance(engine, JournalEngine)
        run = engine._store.run
        self.fails = False
        self.tries = 0
        self.under_way, self.may_end = asyncio.Event(), asyncio.Event()
        self.may_end.set()
        self.complaints: list[str] = []
        """What the event loop was told that nobody listened to."""
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.complaints.append(context["message"]))

        async def counted_run(procedure: Any, *args: Any) -> Any:
            if procedure is count_duplicates:
                self.tries += 1
                self.under_way.set()
                await self.may_end.wait()
                if self.fails:
                    raise semel.EngineUnavailable("the database is away.")
            return await run(procedure, *args)

        monkeypatch.setattr(engine._store, "run", counted_run)


@pytest.mark.journal
async def test_counts_that_cannot_be_written_are_kept_tried_again_and_told_once(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = world.app()
    counting = Counting(app, monkeypatch)

    @app.task
    async def work() -> None: ...

    counting.fails = True
    for _ in range(4):
        await app.enqueue(work, task_id="k")
    await eventually(lambda: counting.tries >= 2)
    counting.fails = False
    reader = world.app()
    await eventually(lambda: counted(reader))
    await app.close()
    gc.collect()
    assert counting.complaints == []
    told = [record.message for record in caplog.records if "duplicates" in record.message]
    assert told == ["suppressed duplicates are counted in memory until they can be written: the database is away"]


async def counted(reader: semel.App) -> bool:
    return [one.count for one in (await reader.explain("k")).suppressed] == [3]


@pytest.mark.journal
async def test_counts_that_are_being_written_at_close_are_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = world.app()
    counting = Counting(app, monkeypatch)

    @app.task
    async def work() -> None: ...

    counting.may_end.clear()
    for _ in range(4):
        await app.enqueue(work, task_id="k")
    await asyncio.wait_for(counting.under_way.wait(), SOON)
    closing = asyncio.create_task(app.close())
    await asyncio.sleep(0)
    counting.may_end.set()
    await closing
    gc.collect()
    assert counting.complaints == []
    assert [record.message for record in caplog.records] == []
    assert await counted(world.app())


@pytest.mark.journal
async def test_counts_that_are_lost_at_close_are_told_once(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = world.app()
    counting = Counting(app, monkeypatch)

    @app.task
    async def work() -> None: ...

    counting.fails = True
    counting.may_end.clear()
    for _ in range(4):
        await app.enqueue(work, task_id="k")
    await asyncio.wait_for(counting.under_way.wait(), SOON)
    closing = asyncio.create_task(app.close())
    await asyncio.sleep(0)
    counting.may_end.set()
    await closing
    gc.collect()
    assert counting.complaints == []
    (told,) = [record.message for record in caplog.records]
    assert told == "counts of suppressed duplicates could not be written, and are lost: the database is away"
