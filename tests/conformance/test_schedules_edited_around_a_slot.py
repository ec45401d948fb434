"""A schedule is edited at each moment around a slot: the slot runs once, and none of the new timing after the fact."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import count
from typing import Any

from semel.contract.timing import Timing
from tests.conformance.test_schedules import first_slot
from tests.world import World, eventually

MINUTE = timedelta(minutes=1)
HALF = 30 * MINUTE
JITTER = 10 * MINUTE
BEFORE, WAITS, FIRED, RUNS, ENDED = MOMENTS = (
    "before its time",
    "it waits for its jitter",
    "it fires and nobody has looked",
    "its run is active",
    "its run has ended",
)


def edits(begin: datetime) -> dict[str, tuple[dict[str, Any], list[datetime], list[datetime]]]:
    """What is changed, and which slots run if that is done before the slot, or once it has come."""
    half, minute = begin + HALF, (begin + HALF).replace(second=0)
    return {
        "option": ({"finish_by": "1h"}, [begin], [begin]),
        "rarer": ({"every": "2h"}, [begin], [begin]),
        "later": ({"start_at": half}, [half], [begin, half]),
        "earlier": ({"start_at": begin - HALF}, [half], [begin, half]),
        "cron": ({"cron": f"{minute.minute} * * * *"}, [minute], [begin, minute]),
    }


def late_firing_id(moment: int, edit: str, begin: datetime) -> str:
    """An id whose slot fires six to nine minutes after its time."""
    for number in count():
        id_ = f"{moment}:{edit}:{number}"
        fires = Timing(every="1h", start_at=begin, jitter=JITTER, schedule_id=id_).fires_at(begin)
        if 6 * MINUTE < fires - begin < 9 * MINUTE:
            return id_
    raise AssertionError


async def test_an_edit_at_each_moment(world: World) -> None:
    app = world.app()
    begin = first_slot(world).replace(second=30)

    @app.task(retry=1)
    async def report() -> None: ...

    ids: dict[tuple[str, str], str] = {}
    for number, moment in enumerate(MOMENTS):
        for edit in edits(begin):
            ids[moment, edit] = id_ = late_firing_id(number, edit, begin)
            await app.schedules.put(id_, report, every="1h", start_at=begin, jitter=JITTER)
    schedules: Any = await app.engine.schedules()

    async def go_to(at: datetime) -> None:
        await world.jump(at - world.now())

    async def edit_all(moment: str) -> None:
        for edit, (options, _, _) in edits(begin).items():
            await app.schedules.edit(ids[moment, edit], **options)

    async def run_all() -> None:
        async def ended() -> bool:
            handles = [await app.find(run.key) for id_ in ids.values() for run in await app.schedules.runs(id_)]
            return all([handle is not None and (await handle.status()).terminal for handle in handles])

        async with world.worker(app, schedules=False):
            await eventually(ended)

    await go_to(begin - MINUTE / 2)
    await edit_all(BEFORE)
    await go_to(begin + 3 * MINUTE)
    await edit_all(WAITS)
    await go_to(begin + 9.5 * MINUTE)
    await edit_all(FIRED)
    await schedules.inner.tick()
    await edit_all(RUNS)
    await run_all()
    await edit_all(ENDED)
    await go_to(begin + 42 * MINUTE)
    await schedules.inner.tick()
    await run_all()
    for (moment, edit), id_ in ids.items():
        _, early, late = edits(begin)[edit]
        ran = [run.scheduled_for for run in reversed(await app.schedules.runs(id_))]
        assert ran == (early if moment == BEFORE else late), (moment, edit)
        told = await app.schedules.skipped(id_)
        assert [one for one in told if one.reason != "before start"] == [], (moment, edit)
        cursor = (await app.schedules.get(id_)).cursor
        assert cursor <= begin + HALF, "what is to come is open"
