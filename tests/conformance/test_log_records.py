"""What people log in tasks and workflows says which execution it belongs to, and a replay does not repeat it."""

import logging
from collections.abc import Iterator

import pytest

import semel
from tests.world import World, waits

log = logging.getLogger("shop")


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def said(self) -> list[str]:
        return [record.getMessage() for record in self.records]

    def marks(self, message: str) -> tuple[object, ...]:
        record = next(record for record in self.records if record.getMessage() == message)
        return tuple(vars(record)[f"execution_{name}"] for name in ("id", "key", "name", "attempt"))


def listen(handler: Kept) -> Iterator[Kept]:
    for name in ("shop", __name__):
        logging.getLogger(name).addHandler(handler)
    yield handler
    for name in ("shop", __name__):
        logging.getLogger(name).removeHandler(handler)


@pytest.fixture
def kept(caplog: pytest.LogCaptureFixture) -> Iterator[Kept]:
    for name in ("shop", __name__):
        caplog.set_level(logging.INFO, name)
    handler = Kept()
    handler.addFilter(semel.ExecutionFilter())
    yield from listen(handler)


@pytest.fixture
def unfiltered() -> Iterator[Kept]:
    """What caplog would have, unless a command that ran in this process has given pytest's handlers the filter."""
    yield from listen(Kept())


async def test_records_made_inside_an_execution_name_it(world: World, kept: Kept) -> None:
    app = world.app()

    @app.task
    async def awaits() -> None:
        log.info("in an async task")

    @app.task
    def blocks() -> None:
        log.info("in a sync task")

    async def step() -> None:
        log.info("in a step")

    def write(tx: object) -> str:
        log.info("in a transaction")
        return semel.current().name

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        log.info("in a workflow")
        ctx.log.info("by ctx.log")
        await ctx.step(step)
        assert await ctx.transaction(write) == "write"

    log.info("outside")
    async with world.worker(app):
        first = await app.enqueue(awaits, task_id="a")
        second = await app.enqueue(blocks, task_id="b")
        third = await app.start_workflow(flow, workflow_id="w")
        for handle in (first, second, third):
            await handle.result(timeout="60s")
    assert kept.marks("outside") == (None, None, None, None)
    assert kept.marks("in an async task") == (first.id, "a", "awaits", 1)
    assert kept.marks("in a sync task") == (second.id, "b", "blocks", 1)
    assert kept.marks("in a workflow") == (third.id, "w", "flow", None)
    assert kept.marks("by ctx.log") == (third.id, "w", "flow", None)
    assert kept.marks("in a step") == (third.id, "w", "step", 1)
    assert kept.marks("in a transaction") == (third.id, "w", "write", 1)


class Diary:
    pages: int = 0

    @semel.handler
    async def write(self, ctx: semel.EntityContext) -> int:
        log.info("page %d", self.pages)
        await ctx.step(_nothing)
        self.pages += 1
        log.info("written")
        return self.pages


async def _nothing() -> None: ...


async def test_a_replay_repeats_no_line(world: World, kept: Kept, unfiltered: Kept) -> None:
    app = world.app()
    app.entity(Diary)

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        log.info("begins")
        ctx.log.info("begins, by ctx.log")
        await ctx.step(_nothing)
        log.info("waits")
        await ctx.wait_signal("go")
        log.info("goes on")
        ctx.log.info("goes on, by ctx.log")

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="w")
        assert await app.entity(Diary, "d").ask("write", timeout="60s") == 1
        await waits(handle, "go")
    async with world.worker(app):
        await handle.signal("go")
        await handle.result(timeout="60s")
        assert await app.entity(Diary, "d").ask("write", timeout="60s") == 2
    once = ["begins", "begins, by ctx.log", "waits", "goes on", "goes on, by ctx.log"]
    assert [line for line in kept.said() if line in once] == once
    assert [line for line in kept.said() if line not in once] == ["page 0", "written", "page 1", "written"]
    assert unfiltered.said().count("begins") > 1, "without the filter a replay repeats it"
    by_logger = [line for line in unfiltered.said() if line.endswith("by ctx.log")]
    assert by_logger == ["begins, by ctx.log", "goes on, by ctx.log"], "also without the filter"
