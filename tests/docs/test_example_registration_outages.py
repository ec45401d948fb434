"""The engine goes down while tenants register, and comes back: each tenant becomes active, once."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from httpx import AsyncClient

from bench.server import Postgres
from semel.testing.temporal_server import temporal_server
from tests.conftest import make_tables
from tests.docs.registration_site import Site, form
from tests.faults.server import fragile_postgres
from tests.world import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BEFORE = [f"before-{number}" for number in range(4)]
DOWN = [f"down-{number}" for number in range(6)]
AFTER = [f"after-{number}" for number in range(2)]


class Outage(NamedTuple):
    """A site whose engine can be taken away."""

    site: Site
    begin: Callable[[], None]
    end: Callable[[], None]


@pytest.fixture(autouse=True)
def _settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call to an engine that neither answers nor refuses ends after five seconds; after 30 unless it is set."""
    (tmp_path / "semel.toml").write_text('call_timeout = "5s"\n')
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def postgres_crashes(postgres_server: Postgres) -> Iterator[Outage]:
    """`stop -m immediate` of the engine's server; the tenants are on another one."""
    postgres_server.sql("create database registration_outage")
    database = postgres_server.url("registration_outage").replace("postgresql:", "postgresql+asyncpg:")
    with fragile_postgres() as server:
        asyncio.run(make_tables(server.url("postgres")))
        site = Site(database, server.url("postgres"))
        yield Outage(site, lambda: server.end(signal.SIGQUIT), server.start)
    postgres_server.sql("drop database registration_outage with (force)")


@pytest.fixture
def postgres_freezes(tmp_path: Path) -> Iterator[Outage]:
    """A server that neither answers nor refuses."""
    with fragile_postgres() as server:
        asyncio.run(make_tables(server.url("postgres")))
        site = Site(f"sqlite+aiosqlite:///{tmp_path}/tenants.db", server.url("postgres"))
        try:
            yield Outage(site, server.freeze, server.thaw)
        finally:
            server.thaw()


@pytest.fixture
def temporal_is_killed(tmp_path: Path) -> Iterator[Outage]:
    with temporal_server(tmp_path, namespaces=["registration"]) as cluster:
        site = Site(f"sqlite+aiosqlite:///{tmp_path}/tenants.db", cluster.url("registration"))
        yield Outage(site, cluster.kill, cluster.start)


@pytest.fixture(params=["postgres_crashes", "postgres_freezes", "temporal_is_killed"])
def outage(request: pytest.FixtureRequest) -> Outage:
    found: Outage = request.getfixturevalue(request.param)
    return found


async def send_forms(client: AsyncClient, slugs: list[str]) -> list[str]:
    """Register one after the other; the ids of the tenants."""
    ids = []
    for slug in slugs:
        answer = await client.post("/tenants", json=form(slug))
        assert answer.status_code == 202, answer.text
        ids.append(answer.json()["id"])
    return ids


async def test_every_tenant_becomes_active_once_when_the_engine_is_back(outage: Outage) -> None:
    """Registration goes on as ever; what was under way at the engine goes on, too, and nothing is done twice."""
    site = outage.site
    async with site.open() as client, site.app.relay(lease="10s"), site.app.worker():
        ids = await send_forms(client, BEFORE)
        await eventually(lambda: site.outside.databases)  # some are under way
        await asyncio.to_thread(outage.begin)
        ids += await send_forms(client, DOWN)
        again = await client.post("/tenants", json=form(DOWN[-1]))  # the client is impatient
        assert (again.status_code, again.json()["id"]) == (200, ids[-1])
        await eventually(lambda: site.sql("select 1 from outbox_destinations"))
        assert await site.sql("select max(retry_count) from outbox_events") == [(0,)]
        assert len(await site.sql("select 1 from tenants where status = 'provisioning'")) >= len(DOWN)

        await asyncio.to_thread(outage.end)
        ids += await send_forms(client, AFTER)
        await site.all_active()
        done = [await site.finished(tenant) for tenant in ids]
        again = await client.post("/tenants", json=form(DOWN[0]))
        assert (again.status_code, again.json()["status"]) == (200, "active")
        for tenant in ids:
            explained = await site.app.explain(f"provision-tenant-{tenant}", kind="workflow")
            assert len(explained.executions) == 1
    assert all(one.startswith("active in db-") for one in done)
    assert site.provisioned() == Counter(ids)
    assert site.invited() == Counter(f"{slug}@example.org" for slug in [*BEFORE, *DOWN, *AFTER])
