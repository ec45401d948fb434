"""Commands that act: migrate, enqueue, cancel, redrive, clean."""

from __future__ import annotations

from pathlib import Path

import pytest

import semel as library
from tests.cli.shell import at_shell, semel, shop
from tests.world import World


@pytest.fixture
def target(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return f"{shop(world, tmp_path)}:app"


def test_migrate_says_what_it_applied_and_then_that_nothing_is_left(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    told = semel("migrate", "--url", url)
    assert (told.code, "applied 0001_" in told.out) == (0, True)
    assert "Nothing to do" in semel("migrate", "--url", url).out
    assert semel("migrate", "--url", url, "--json").data == {"applied": []}


def test_enqueue_by_position_and_by_name_is_the_same_request(target: str) -> None:
    first = semel("enqueue", target, "charge", '["o-1", 9900]', "--task-id", "k", "--json").data
    again = semel("enqueue", target, "charge", '{"cents": 9900, "order": "o-1"}', "--task-id", "k", "--json").data
    more = ("--args", '["o-1"]', "--kwargs", '{"cents": 9900}', "--task-id", "k", "--json")
    third = semel("enqueue", target, "charge", *more).data
    assert (first["duplicate"], again["duplicate"], third["duplicate"]) == (False, True, True)
    assert first["id"] == again["id"] == third["id"]
    assert "a duplicate" in semel("enqueue", target, "charge", '["o-1", 9900]', "--task-id", "k").out


def test_enqueue_refuses_with_a_code_that_says_why(target: str) -> None:
    semel("enqueue", target, "charge", '["o-1", 9900]', "--task-id", "k")
    for code, text, arguments in (
        (4, "cents: 9900 -> 12", ("charge", '["o-1", 12]', "--task-id", "k")),
        (4, "already pending", ("charge", '["o-1", 9900]', "--task-id", "k", "--on-duplicate", "raise")),
        (3, "Did you mean 'charge'?", ("chrge",)),
        (2, "missing a required argument: 'order'", ("charge",)),
        (2, "is not JSON", ("charge", "o-1")),
        (2, "an array [...] or an object", ("charge", "3")),
        (2, "give an object", ("charge", "--kwargs", "[1]")),
        (2, "not both", ("charge", "[1]", "--kwargs", "{}")),
        (2, "does not fit its annotation", ("charge", "[1]")),
        (2, "is blank", ("charge", '["o"]', "--task-id", " ")),
        (2, "not a duration", ("charge", '["o"]', "--delay", "soon")),
    ):
        told = semel("enqueue", target, *arguments)
        assert (told.code, told.out) == (code, ""), told
        assert text in told.err
        assert len(told.err.splitlines()) == 1, "one clear line"


def test_enqueue_options_reach_the_execution(target: str, world: World) -> None:
    options = ("--queue", "other", "--delay", "1h", "--priority", "7", "--json")
    id = semel("enqueue", target, "charge", '["o"]', *options).data["id"]
    data = semel("show", id, "--json", "--url", world.url).data
    assert (data["queue"], data["priority"]) == ("other", 7)
    assert data["run_at"] > data["created_at"]


async def test_enqueue_waits_for_the_result(target: str, world: World) -> None:
    app = world.app()

    @app.task(queue="payments")
    async def charge(order: str, cents: int = 100) -> dict[str, object]:
        return {"order": order, "cents": cents}

    @app.task(retry=1)
    async def boom(message: str = "no") -> None:
        raise ValueError(message)

    async with world.worker(app):
        told = await at_shell("enqueue", target, "charge", '["o"]', "--wait", "--json")
        assert told.data["result"] == {"order": "o", "cents": 100}
        told = await at_shell("enqueue", target, "boom", "--wait")
        assert (told.code, "ValueError: no" in told.err, told.out) == (1, True, "")


def test_enqueue_does_not_wait_for_ever_and_says_that_no_worker_runs(target: str) -> None:
    told = semel("enqueue", target, "charge", '["o"]', "--timeout", "10ms")
    assert (told.code, "No worker" in told.err, "was seen within" in told.err) == (1, True, True)


def test_cancel_what_waits(target: str, world: World) -> None:
    id = semel("enqueue", target, "charge", '["o"]', "--json").data["id"]
    assert semel("cancel", id, "--url", world.url).code == 0
    data = semel("cancel", id, "--json", "--url", world.url).data
    assert data == {"id": id, "status": "cancelled", "cancelled": True}


async def failures(world: World, count: int) -> list[str]:
    app = world.app()

    @app.task(retry=1, queue="bad")
    async def boom() -> None:
        raise ValueError("no")

    @app.task(name="fine")
    async def fine() -> None: ...

    async with world.worker(app):
        handles = await app.enqueue_many([boom.call() for _ in range(count)])
        for handle in handles:
            with pytest.raises(library.ExecutionFailed):
                await handle.result(timeout="60s")
        await (await app.enqueue(fine)).result(timeout="60s")
    return [handle.id for handle in handles]


async def test_redrive_one_and_then_it_is_a_conflict(world: World) -> None:
    (id,) = await failures(world, 1)
    data = (await at_shell("redrive", id, "--json", "--url", world.url)).data
    assert [entry["id"] for entry in data["redriven"]] == [id]
    told = await at_shell("redrive", id, "--url", world.url)
    assert (told.code, "NotRedrivable" in told.err) == (4, True)


async def test_redrive_all_that_match(world: World) -> None:
    ids = await failures(world, 3)
    every = ("redrive", "--all", "--queue", "bad", "--url", world.url)
    told = await at_shell(*every)
    assert (told.code, "3 failed executions match" in told.err) == (2, True), "no one to ask, no --yes"
    data = (await at_shell(*every, "--yes", "--json")).data
    assert {entry["id"] for entry in data["redriven"]} == set(ids)
    told = await at_shell(*every, "--yes")
    assert "0 run again, 3 skipped" in told.out
    assert "No failed" in (await at_shell("redrive", "--all", "--name", "nothing", "--url", world.url)).out
    told = await at_shell("redrive", "--all", "--status", "completed", "--url", world.url)
    assert told.code == 2


async def test_redrive_all_leaves_entities_alone(world: World) -> None:
    app = world.app()

    @app.entity
    class Cart:
        items: int = 0

        @library.handler
        async def add(self, ctx: library.EntityContext) -> None: ...

    cart = app.entity(Cart, "c")
    await cart.send("add")
    handle = await app.find(cart.key, kind="entity")
    assert handle is not None
    await handle.terminate()
    told = await at_shell("redrive", "--all", "--status", "cancelled", "--yes", "--url", world.url)
    assert "No cancelled executions match" in told.out
    told = await at_shell("redrive", handle.id, "--url", world.url)
    assert (told.code, "'Cart/c' is an entity" in told.err) == (4, True)


async def test_cancel_of_what_has_ended_is_a_conflict(world: World) -> None:
    (id,) = await failures(world, 1)
    told = await at_shell("cancel", id, "--url", world.url)
    assert (told.code, "had already ended: failed" in told.out) == (4, True)


def test_clean_says_how_much(world: World) -> None:
    semel("migrate", "--url", world.url)
    assert semel("clean", "--json", "--url", world.url).data == {"executions": 0}
    assert "Checked 0" in semel("clean", "--url", world.url).out
