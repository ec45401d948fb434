"""sqlite:///:memory: lives as long as its app and is shared by its loops."""

import asyncio

import semel


def new_app() -> semel.App:
    return semel.App("sqlite:///:memory:", config=None)


async def test_it_works_like_any_other() -> None:
    async with new_app() as app:

        @app.task
        async def double(n: int) -> int:
            return 2 * n

        async with app.worker():
            handle = await app.enqueue(double, 2, task_id="k")
            assert await handle.result(timeout="60s") == 4
            assert (await app.enqueue(double, 2, task_id="k")).duplicate


async def test_the_sync_face_and_the_loop_share_it() -> None:
    async with new_app() as app:

        @app.task
        async def double(n: int) -> int:
            return 2 * n

        async with app.worker():
            handle = await asyncio.to_thread(app.sync.enqueue, double, 3, task_id="k")
            assert await asyncio.to_thread(handle.result, "20s") == 6
            assert (await app.enqueue(double, 3, task_id="k")).duplicate
            await asyncio.to_thread(app.sync.close)


async def test_two_apps_do_not_share_it() -> None:
    async with new_app() as one, new_app() as two:
        for app in (one, two):

            @app.task
            async def work() -> None: ...

        await one.enqueue(work, task_id="k")
        assert await two.find("k") is None
