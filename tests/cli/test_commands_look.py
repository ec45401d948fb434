"""Commands that look: list, show, explain, queues, workers, doctor. Tables for people, JSON for programs."""

from __future__ import annotations

from pathlib import Path

import pytest

import semel as library
from tests.cli.shell import at_shell, semel, shop
from tests.world import World


async def some_executions(world: World) -> library.App:
    """One that completed under a key with a duplicate, one that failed, one that waits."""
    app = world.app()

    @app.task(queue="payments")
    async def charge(order: str, cents: int) -> dict[str, int]:
        return {"charged": cents}

    @app.task(retry=1)
    async def boom(text: str) -> None:
        raise ValueError(text)

    async with world.worker(app):
        first = await app.enqueue(charge, "o-1", 9900, task_id="pay 1")
        await app.enqueue(charge, "o-1", 9900, task_id="pay 1")
        failed = await app.enqueue(boom, "[bold]\x1b[31m")
        await first.result(timeout="60s")
        with pytest.raises(library.ExecutionFailed):
            await failed.result(timeout="60s")
    await app.enqueue(charge, "o-2", 1, delay="1h")
    await app.explain("pay 1")  # writes down the duplicate, which is otherwise done after a moment
    return app


async def test_list_shows_what_was_asked_for(world: World) -> None:
    await some_executions(world)
    told = await at_shell("list", "--url", world.url)
    assert told.code == 0
    assert [word in told.out for word in ("pay 1", "completed", "failed", "pending")] == [True] * 4
    assert f"--url {world.url}" in told.out, "suggested commands lead to the same database"
    data = (await at_shell("list", "--json", "--url", world.url)).data
    assert [e["status"] for e in data] == ["pending", "failed", "completed"]
    page = (await at_shell("list", "--json", "--limit", "1", "--before", data[0]["id"], "--url", world.url)).data
    assert [e["id"] for e in page] == [data[1]["id"]]
    for option, value, count in (("--status", "failed", 1), ("--queue", "payments", 2), ("--name", "boom", 1)):
        assert len((await at_shell("list", option, value, "--json", "--url", world.url)).data) == count


async def test_show_gives_input_result_and_error(world: World) -> None:
    app = await some_executions(world)
    completed = (await app.list(status="completed"))[0]
    data = (await at_shell("show", completed.id, "--json", "--url", world.url)).data
    assert data["input"] == {"order": "o-1", "cents": 9900}
    assert (data["result"], data["key"]) == ({"charged": 9900}, "pay 1")
    told = await at_shell("show", completed.id, "--url", world.url)
    assert '{"charged": 9900}' in told.out
    assert "semel explain 'pay 1'" in told.out
    failed = (await app.list(status="failed"))[0]
    told = await at_shell("show", failed.id[:-1], "--url", world.url)
    assert told.code == 0, "the beginning of an id is enough"
    assert "ValueError: [bold]\\x1b[31m" in told.out, "what a task said cannot take over the terminal"
    assert f"semel redrive {failed.id}" in told.out


async def test_explain_counts_duplicates(world: World) -> None:
    await some_executions(world)
    told = await at_shell("explain", "pay 1", "--url", world.url)
    assert (told.code, "1 duplicate did not run" in told.out) == (0, True)
    data = (await at_shell("explain", "pay 1", "--json", "--url", world.url)).data
    assert [suppressed["count"] for suppressed in data["suppressed"]] == [1]
    assert data["executions"][0]["status"] == "completed"


async def test_queues_and_workers(world: World) -> None:
    app = await some_executions(world)
    data = (await at_shell("queues", "--json", "--url", world.url)).data
    assert {q["name"]: q["delayed"] for q in data} == {"default": 0, "payments": 1}
    assert "payments" in (await at_shell("queues", "--url", world.url)).out
    assert (await at_shell("workers", "--json", "--url", world.url)).data == []
    assert "No worker" in (await at_shell("workers", "--url", world.url)).out
    async with world.worker(app, queues=["payments"]):
        data = (await at_shell("workers", "--json", "--url", world.url)).data
        assert [w["queues"] for w in data] == ["payments"]
        assert "payments" in (await at_shell("workers", "--url", world.url)).out


def test_queue_limits_of_the_settings_file_are_shown(sqlite_world: World, tmp_path: Path) -> None:
    semel("migrate", "--url", sqlite_world.url)
    config = tmp_path / "limits.toml"
    config.write_text('[queues.payments]\nretention = "30d"\nrate_limit = "5/sec"\n')
    told = semel("queues", "--url", sqlite_world.url, "--config", str(config))
    assert "retention 30d, rate_limit 5/sec" in told.out


def test_doctor_finds_all_well(world: World) -> None:
    semel("migrate", "--url", world.url)
    told = semel("doctor", "--url", world.url)
    assert (told.code, "Everything is ok." in told.out) == (0, True)
    assert semel("doctor", "--json", "--url", world.url).data["ok"] is True


async def test_doctor_exits_with_1_when_a_finding_is_not_ok(world: World) -> None:
    await at_shell("migrate", "--url", world.url)
    await world.sql(
        "insert into semel_worker (namespace, name, queues, started_at, expires_at) "
        "values ('default', 'gone:1', 'all', 0, 1)"
    )
    told = await at_shell("doctor", "--url", world.url)
    assert (told.code, "run out: gone:1" in told.out) == (1, True)


def test_doctor_takes_an_app(sqlite_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = shop(sqlite_world, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    semel("migrate", "--url", sqlite_world.url)
    told = semel("doctor", f"{module}:app")
    assert (told.code, "Everything is ok." in told.out) == (0, True), told
    told = semel("doctor", f"{module}:app", "--url", sqlite_world.url)
    assert (told.code, "not both" in told.err) == (2, True)


def test_doctor_of_a_database_that_was_never_used(tmp_path: Path) -> None:
    file = tmp_path / "new.db"
    told = semel("doctor", "--url", f"sqlite:///{file}")
    assert (told.code, "There is no database yet" in told.out, "NOT OK" in told.out) == (5, True, False)
    data = semel("doctor", "--json", "--url", f"sqlite:///{file}").data
    assert (data["ok"], data["findings"][0]["what"]) == (False, "database")
    assert not file.exists()
    file.touch()
    told = semel("doctor", "--url", f"sqlite:///{file}")
    assert (told.code, "no tables yet" in told.out) == (0, True), told


def test_namespaces_are_apart(world: World) -> None:
    semel("migrate", "--url", world.url)
    assert semel("list", "--json", "--url", world.url, "--namespace", "other").data == []
