"""A new run under a key never erases the failed one."""

import semel
from tests.world import World, ended


async def test_every_run_under_the_key_is_kept_newest_first(world: World) -> None:
    app, fail = world.app(), [True, True, False]

    @app.task(retry=1)
    async def charge() -> str:
        if fail.pop(0):
            raise ValueError("declined")
        return "charged"

    handles = []
    async with world.worker(app):
        for expected in ("failed", "failed", "completed"):
            handles.append(await app.enqueue(charge, task_id="k"))
            assert await ended(handles[-1]) == expected
    story = await app.explain("k")
    assert [one.id for one in story.executions] == [handle.id for handle in reversed(handles)]
    assert [one.previous_id for one in story.executions] == [handles[1].id, handles[0].id, None]
    assert [one.status for one in story.executions] == ["completed", "failed", "failed"]
    assert "was admitted 3 times" in str(story)
    found = await app.find("k")
    assert found is not None
    assert found.id == handles[2].id
    await world.listed()
    assert {one.id for one in await app.list(status="failed")} == {handles[0].id, handles[1].id}
    error = (await handles[0].describe()).error
    assert isinstance(error, semel.ErrorInfo)
    assert error.message == "declined"
