"""The view semel_executions shows inputs, results and errors as JSON to people's SQL."""

import json
from typing import Any

import pytest

import semel
from tests.world import World, ended

pytestmark = pytest.mark.journal
STRANGE = {"cents": 9_900, "text": 'a "quoted" \u0000 and 💶', "list": [1, None, 2.5]}


async def shown(world: World, key: str) -> list[Any]:
    """Input, result and error of one execution as the view shows them, read as JSON."""
    text = "::text" if world.engine == "postgres" else ""
    columns = ", ".join(f"{name}{text}" for name in ("input_json", "result_json", "error_json"))
    ((*values,),) = await world.sql(f"select {columns} from semel_executions where key = '{key}'")
    return [None if value is None else json.loads(value) for value in values]


async def test_arguments_results_and_errors_are_readable(world: World) -> None:
    app = world.app()

    @app.task(retry=1)
    async def charge(order: str, answer: Any) -> Any:
        if answer == "fail":
            raise ValueError("no money")
        return answer

    for key, answer in (("none", None), ("strange", STRANGE), ("failed", "fail"), ("text", "paid")):
        await app.enqueue(charge, "o-1", answer, task_id=key)
    assert await shown(world, "none") == [{"order": "o-1", "answer": None}, None, None]
    async with world.worker(app):
        for key in ("none", "strange", "failed", "text"):
            handle = await app.find(key)
            assert handle is not None
            await ended(handle)
    assert await shown(world, "strange") == [{"order": "o-1", "answer": STRANGE}, STRANGE, None]
    assert (await shown(world, "text"))[1] == "paid"
    failed = await shown(world, "failed")
    assert (failed[1], failed[2]["message"]) == (None, "no money")


async def test_a_part_of_a_result_is_found_by_sql(world: World) -> None:
    app = world.app()

    @app.workflow
    async def order(ctx: semel.Context, cents: int) -> dict[str, int]:
        return {"charged": cents}

    async with world.worker(app):
        for cents in (100, 900):
            started = await app.start_workflow(order, cents, workflow_id=f"o-{cents}")
            await started.result(timeout="60s")
    ask = "select key from semel_executions where cast(result_json ->> 'charged' as integer) > 500"
    assert [tuple(row) for row in await world.sql(ask)] == [("o-900",)]


async def test_none_is_told_from_no_result(world: World) -> None:
    app = world.app()

    @app.task
    async def nothing() -> None:
        return None

    handle = await app.enqueue(nothing, task_id="n")
    column = "result_json::text" if world.engine == "postgres" else "result_json"
    ask = f"select {column} from semel_executions where key = 'n'"
    assert [tuple(row) for row in await world.sql(ask)] == [(None,)]
    async with world.worker(app):
        await handle.result(timeout="60s")
    assert [tuple(row) for row in await world.sql(ask)] == [("null",)]
