"""Which finished executions give their key back: the whole matrix, by every way to ask."""

import asyncio

import pytest

import semel
from semel import Status
from tests.world import World, ended, eventually

LIVE = (Status.PENDING, Status.RUNNING)
FREEING = (Status.FAILED, Status.CANCELLED, Status.TIMED_OUT)
WAYS = [(reuse, duplicate) for reuse in ("failed_only", "reject", "always") for duplicate in ("return", "raise")]


def runs_again(status: Status, reuse: str) -> bool:
    return status not in LIVE and (reuse == "always" or (reuse == "failed_only" and status in FREEING))


@pytest.mark.parametrize("status", [*LIVE, Status.COMPLETED, *FREEING])
async def test_the_matrix(world: World, status: Status) -> None:
    app, goes_on = world.app(), asyncio.Event()

    @app.task(retry=1, timeout="20ms" if status is Status.TIMED_OUT else None)
    async def work(n: int) -> int:
        if status in (Status.RUNNING, Status.TIMED_OUT):
            await goes_on.wait()
        if status is Status.FAILED:
            raise ValueError("no")
        return n

    keys = [f"{reuse}-{duplicate}" for reuse, duplicate in WAYS]
    first = [await app.enqueue(work, 1, task_id=key) for key in keys]
    if status is Status.CANCELLED:
        for handle in first:
            await handle.cancel()
    if status not in (Status.PENDING, Status.CANCELLED):
        async with world.worker(app):
            if status is Status.RUNNING:
                await eventually(lambda: all_are(status, first))
                await ask_again(app, work, first, status)
                goes_on.set()
            else:
                assert [await ended(handle) for handle in first] == [status] * len(first)
    if status is not Status.RUNNING:
        await ask_again(app, work, first, status)


async def all_are(status: Status, handles: list[semel.Handle[int]]) -> bool:
    return all([await handle.status() is status for handle in handles])


async def ask_again(
    app: semel.App, work: semel.Task[[int], int], first: list[semel.Handle[int]], status: Status
) -> None:
    for (reuse, duplicate), old in zip(WAYS, first, strict=True):
        ask = app.enqueue(work, 1, task_id=old.key, reuse=reuse, on_duplicate=duplicate)
        if runs_again(status, reuse):
            new = await ask
            assert (new.duplicate, new.id != old.id) == (False, True)
            assert (await new.describe()).previous_id == old.id
        elif duplicate == "return":
            same = await ask
            assert (same.duplicate, same.id) == (True, old.id)
        else:
            error = semel.TaskAlreadyCompleted if status is Status.COMPLETED else semel.TaskAlreadyExists
            with pytest.raises(error) as caught:
                await ask
            assert (caught.value.existing_execution_id, caught.value.status) == (old.id, status)
