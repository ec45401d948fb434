"""What schedules cost: a look when none is due, with few and with many of them, and very many due at one instant."""

import statistics
from datetime import UTC, datetime, timedelta

from bench.measure import Arguments, Stopwatch, emit, emit_median
from bench.semel_setup import Semel, semel
from bench.semel_store import copy_schedule

FEW, MANY = 1_000, 100_000
DUE = 10_000
TURNS = 3
HOUR = 3_600_000_000
LOOKS = 200


async def schedules(args: Arguments) -> None:
    async with semel(args) as it:
        await it.app.enqueue(it.noop, task_id="first")  # connects, migrates, prepares
        await create(it, "few", FEW)
        emit("schedules, few", await look(it), "ms", schedules=FEW)
        await create(it, "many", MANY - FEW)
        emit("schedules, many", await look(it), "ms", schedules=MANY)
        bulk, due = [], []
        for turn in range(TURNS):  # by turns, so that what disturbs the machine falls on both
            bulk.append(await it.enqueue_all(it.noop, DUE, f"bulk-{turn}-"))
            due.append(await start_due(it, f"due-{turn}"))
        emit_median("schedules, bulk", bulk, "1/s", slots=DUE)
        emit_median("schedules, due", due, "1/s", slots=DUE, schedules=MANY + DUE * TURNS)


async def start_due(it: Semel, id: str) -> float:
    """Runs per second that are started of new schedules whose slot has come at one instant."""
    await create(it, id, DUE)
    await it.store.change(f"update semel_schedule set cursor = cursor - {HOUR}, due_at = 1 where id like '{id}-%'")
    engine = await it.app.engine.schedules()
    before = await it.store.count("select count(*) from semel_run")
    with Stopwatch() as watch:
        await engine.tick()
    runs = await it.store.count("select count(*) from semel_run") - before
    if runs != DUE:
        raise RuntimeError(f"{DUE} slots were due, and {runs} have run")
    return DUE / watch.seconds


async def create(it: Semel, id: str, copies: int) -> None:
    """Schedules of every hour, of which none is due: the last slot was a moment ago."""
    begin = datetime.now(UTC) - timedelta(hours=1, minutes=1)
    await it.app.schedules.put(id, it.noop, every="1h", start_at=begin, grace="1h")
    engine = await it.app.engine.schedules()
    await engine.tick()
    await it.store.change(copy_schedule(id, copies))
    await it.store.change("analyze")


async def look(it: Semel) -> float:
    """Milliseconds of what a worker does that looks at schedules: the median."""
    engine = await it.app.engine.schedules()
    seconds = []
    for _ in range(LOOKS):
        with Stopwatch() as watch:
            await engine.start_pending()
            await engine.next_due()
            await engine.tick()
        seconds.append(watch.seconds)
    return statistics.median(seconds) * 1000
