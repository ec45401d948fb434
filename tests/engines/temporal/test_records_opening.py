"""Records are opened on first use, and say what they need."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from semel.engines.temporal.records import Records, open_records
from semel.errors import ConfigError, EngineUnavailable, MigrationNeeded
from tests.engines.temporal.archive import opened, run
from tests.world import World


def test_sqlite_makes_its_tables_by_itself_when_they_are_needed(tmp_path: Path) -> None:
    records = open_records(f"sqlite:///{tmp_path}/records.db", "default")
    assert list(tmp_path.iterdir()) == []

    async def use() -> None:
        assert (await records.reserve(run("r1"))).id == "r1"
        await records.close()

    asyncio.run(use())
    assert (tmp_path / "records.db").exists()


async def test_postgresql_says_what_to_do_and_does_it(postgres_world: World) -> None:
    await postgres_world.sql("drop schema public cascade")
    await postgres_world.sql("create schema public")
    async with opened(postgres_world) as records:
        with pytest.raises(MigrationNeeded, match=r"the records database is at migration 0, .* Run: semel migrate"):
            await records.prior("task", "k")
        assert await records.suppressed(["r1"]) is None
        assert [f.ok for f in await records.doctor() if f.what == "records: migrations"] == [False]
        told: list[str] = []
        assert await records.migrate(told.append) == told
        assert "0003_records" in told
        assert await records.prior("task", "k") is None
        assert await records.migrate(told.append) == []


async def test_the_doctor_looks_at_it(world: World) -> None:
    async with opened(world) as records:
        findings = await records.doctor()
        assert all(finding.ok for finding in findings if finding.what != "records: fsync")
        assert {finding.what for finding in findings} >= {"records: migrations"}
    away = open_records("sqlite:////nowhere/at/all/records.db", "default")
    assert [finding.ok for finding in await away.doctor()] == [False]
    with pytest.raises(EngineUnavailable):
        await away.get("r1")
    await away.close()


async def test_without_a_database_what_needs_one_says_so() -> None:
    records = open_records(None, "default")
    for ask in (records.prior("task", "k"), records.transact("r1", "s", lambda tx: None), records.reserve(run("r1"))):
        with pytest.raises(ConfigError, match="none was given"):
            await ask
    assert await records.clean() == 0
    assert await records.migrate(lambda _: None) == []
    assert [finding.ok for finding in await records.doctor()] == [True]
    await records.close()


@pytest.mark.parametrize(
    "url", ["mysql://root:secret@host/db", "sqlite://records.db", "records.db", "postgresql://", ""]
)
def test_another_url_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigError, match="use sqlite:///") as refused:
        open_records(url, "default")
    assert "secret" not in str(refused.value)


async def test_many_that_come_first_open_it_once(new_file: World) -> None:
    records: Records
    async with opened(new_file) as records:
        await asyncio.gather(*(records.reserve(run(f"r{n}", f"k{n}")) for n in range(50)))
    assert await new_file.count("semel_record_key") == 50
