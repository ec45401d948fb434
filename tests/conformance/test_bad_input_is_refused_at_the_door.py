"""What cannot be stored or run is refused before anything is written."""

import math
from typing import Any

import pytest

import semel
from tests.world import World


async def test_nothing_is_written(world: World) -> None:
    app = world.app()

    @app.task
    async def work(value: Any = None, count: int = 0) -> None: ...

    await app.list()
    requests: list[tuple[type[Exception], tuple[Any, ...], dict[str, Any]]] = [
        (semel.NotEncodable, (math.nan,), {}),
        (semel.NotEncodable, ({"a": [object()]},), {}),
        (semel.NotEncodable, ("\ud800",), {}),
        (semel.NotEncodable, (None, "not a number"), {}),
        (semel.PayloadTooLarge, ("x" * (1 << 20),), {}),
        (semel.InvalidKey, (), {"task_id": ""}),
        (semel.InvalidKey, (), {"task_id": "a\0b"}),
        (semel.InvalidKey, (), {"task_id": "a\ud800"}),
        (semel.InvalidKey, (), {"task_id": "k" * 256}),
        (semel.InvalidKey, (), {"task_id": 5}),
        (semel.InvalidValue, (), {"priority": 10**9}),
        (semel.InvalidValue, (), {"priority": 1.5}),
        (semel.InvalidValue, (), {"priority": True}),
        (semel.InvalidValue, (), {"queue": "a b"}),
        (semel.InvalidValue, (), {"delay": "soon"}),
        (semel.InvalidValue, (), {"reuse": "sometimes"}),
        (semel.InvalidValue, (), {"on_duplicate": "ignore"}),
        (TypeError, (1, 2, 3), {}),
        (TypeError, (), {"unknown": 1}),
    ]
    for error, args, options in requests:
        with pytest.raises(error):
            await app.enqueue(work, *args, **options)
    with pytest.raises(semel.NotEncodable):
        await app.enqueue_many([work.call(1), work.call(math.inf)])
    assert await world.traces() == 0


async def test_a_kind_that_there_is_not_is_no_empty_answer(world: World) -> None:
    app = world.app()
    for asked in (app.find("k", kind="flow"), app.explain("k", kind="flow"), app.list(kind="flow")):
        with pytest.raises(semel.InvalidValue, match="kind='flow': use task, workflow or entity"):
            await asked


async def test_who_asks_for_an_unknown_task_is_told_which_tasks_there_are(sqlite_world: World) -> None:
    app = sqlite_world.app()

    @app.workflow
    async def order(ctx: semel.Context) -> None: ...

    @app.task
    async def charge() -> None: ...

    with pytest.raises(semel.NotFound, match=r"There are: charge\.$"):
        app.tasks["nothing-like-it"]


@pytest.mark.parametrize(
    ("queues", "words"), [([], "queues is empty"), ("default", r"give a list, such as \['default'\]"), (["a b"], "a b")]
)
async def test_a_worker_that_would_serve_nothing_does_not_start(sqlite_world: World, queues: Any, words: str) -> None:
    app = sqlite_world.app()
    with pytest.raises(semel.InvalidValue, match=words):
        async with app.worker(queues=queues):
            pass


async def test_text_that_databases_find_hard_comes_back(world: World) -> None:
    app = world.app()

    @app.task
    async def echo(text: str) -> str:
        return text

    hard = "nul \x00, quote ' \" \\, ümläut, 🧾, \u2028, {} %s $1 ?"
    async with world.worker(app):
        handle = await app.enqueue(echo, hard, task_id="it's 🧾 {} %s $1 ?")
        assert await handle.result(timeout="60s") == hard
        found = await app.find("it's 🧾 {} %s $1 ?")
        assert found is not None
        assert found.id == handle.id


async def test_keys_that_differ_only_by_normalisation_are_one(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> None: ...

    first = await app.enqueue(work, task_id="cafe\u0301")
    second = await app.enqueue(work, task_id="caf\u00e9")
    assert (first.key, second.id, second.duplicate) == ("caf\u00e9", first.id, True)
    found = await app.find("cafe\u0301")
    assert found is not None


async def test_a_payload_limit_can_be_set(sqlite_world: World, tmp_path: Any) -> None:
    config = tmp_path / "semel.toml"
    config.write_text("max_payload = 100")
    app = sqlite_world.app(config=config)

    @app.task(retry=1)
    async def work(size: int, text: str = "") -> str:
        return "x" * size

    with pytest.raises(semel.PayloadTooLarge, match="at most 100 are stored"):
        await app.enqueue(work, 1, "x" * 100)
    async with sqlite_world.worker(app):
        handle = await app.enqueue(work, 200)
        with pytest.raises(semel.ExecutionFailed, match="PayloadTooLarge"):
            await handle.result(timeout="60s")
