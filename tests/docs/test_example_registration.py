"""Registration commits the tenant and the start of its provisioning together; a sweeper finds those that got stuck."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from alembic import command
from alembic.config import Config

from bench.server import Postgres
from semel.testing.temporal_server import TemporalServer
from tests.conftest import new_world
from tests.docs.registration_site import Site, form, register
from tests.world import SOON, eventually

pytestmark = pytest.mark.slow
_numbers = itertools.count(1)


def new_database(request: pytest.FixtureRequest) -> str:
    """An empty PostgreSQL database, as SQLAlchemy names it."""
    server: Postgres = request.getfixturevalue("postgres_server")
    name = f"tenants{next(_numbers)}"
    server.sql(f"create database {name}")
    request.addfinalizer(lambda: server.sql(f"drop database {name} with (force)"))
    return server.url(name).replace("postgresql:", "postgresql+asyncpg:")


def new_site(engine: str, folder: Path, request: pytest.FixtureRequest) -> Site:
    sqlite = f"sqlite+aiosqlite:///{folder}/tenants.db"
    if engine == "temporal":
        cluster: TemporalServer = request.getfixturevalue("temporal_server")
        cluster.prepare("registration")
        return Site(sqlite, cluster.url("registration"), f"sqlite:///{folder}/records.db")
    world = new_world(engine.partition("-")[0], folder, request)
    if engine == "sqlite":
        return Site(sqlite, world.url)
    same = engine == "postgres-same"
    return Site(world.url.replace("postgresql:", "postgresql+asyncpg:") if same else new_database(request), world.url)


@pytest.fixture(params=["sqlite", "postgres-same", "postgres-other", "temporal"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return new_site(request.param, tmp_path, request)


@pytest.fixture
def same_database(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return new_site("postgres-same", tmp_path, request)


async def test_registered_tenants_become_active_once(site: Site) -> None:
    async with site.open() as client:
        answers = await register(client, "ada", "bob", "eve")
        assert [(one.status_code, one.json()["status"]) for one in answers] == [(202, "provisioning")] * 3
        async with site.app.relay(), site.app.worker():
            await site.all_active()
            done = [await site.finished(one.json()["id"]) for one in answers]
        assert (await client.get("/tenants/ada")).json()["status"] == "active"
        assert all(one.startswith("active in db-") for one in done)
        assert site.provisioned() == Counter(one.json()["id"] for one in answers)
        assert site.invited() == Counter(["ada@example.org", "bob@example.org", "eve@example.org"])


async def test_a_client_retry_is_answered_with_the_same_tenant(site: Site) -> None:
    """Sent again at once, later, and after the tenant has become active."""
    async with site.open() as client:
        answers = await register(client, *["ada"] * 5)
        assert sorted(one.status_code for one in answers) == [200, 200, 200, 200, 202]
        async with site.app.relay(), site.app.worker():
            await site.all_active()
            answers += await register(client, "ada")
            assert answers[-1].json()["status"] == "active"
            assert len({one.json()["id"] for one in answers}) == 1
            await site.finished(answers[0].json()["id"])
        assert site.provisioned() == Counter([answers[0].json()["id"]])
        for taken in (form("ada", email="other@example.org"), form("other", email="ada@example.org")):
            assert (await client.post("/tenants", json=taken)).status_code == 409
        assert len(await site.sql("select 1 from tenants")) == 1


async def test_what_is_rolled_back_is_not_started(site: Site) -> None:
    """Neither tenant nor user nor start; the same form is new afterwards."""
    async with site.open() as client:
        async with site.database.sessions() as session:
            tenant = await site.service.add_tenant(session, site.service.RegistrationForm(**form("ada")))
            id_ = tenant.id
            await session.rollback()
        assert await site.sql("select 1 from tenants union all select 1 from users") == []
        assert await site.sql("select 1 from outbox_events") == []
        assert await site.app.find(f"provision-tenant-{id_}", kind="workflow") is None
        assert (await register(client, "ada"))[0].status_code == 202


async def test_in_the_same_database_the_start_is_an_execution(same_database: Site) -> None:
    """There is no row for a relay: the workflow is there with the commit."""
    async with same_database.open() as client:
        tenant = (await register(client, "ada"))[0].json()["id"]
        handle = await same_database.app.find(f"provision-tenant-{tenant}", kind="workflow")
        assert await handle.status() == "pending"
        assert await same_database.sql("select 1 from outbox_events") == []
        async with same_database.app.worker():
            await handle.result(SOON)
        assert same_database.provisioned() == Counter([tenant])


async def test_sweeper_finds_stuck_tenants(site: Site) -> None:
    async with site.open():
        tenant = await site.add_tenant("ada", age=timedelta(minutes=10))
        plan = await site.app.sweep("stuck-tenants", dry_run=True)
        assert [(row.key, row.detail) for row in plan.rows] == [(f"provision-tenant-{tenant}", "it was never started")]
        assert (await site.app.sweep("stuck-tenants")).started == 1
        async with site.app.worker():
            assert (await site.finished(tenant)).startswith("active in db-")
        assert (await site.app.sweep("stuck-tenants")).stuck == 0


async def test_sweeper_ignores_recent_tenants(site: Site) -> None:
    async with site.open():
        await site.add_tenant("ada", age=timedelta(minutes=1))
        await site.add_tenant("bob", age=timedelta(minutes=10), status="active")
        assert (await site.app.sweep("stuck-tenants")).stuck == 0


async def test_sweeper_recovers_once(site: Site) -> None:
    """However often it runs, also while the first start waits in the outbox, or is still pending at the engine."""
    async with site.open() as client:
        lost = await site.add_tenant("ada", age=timedelta(minutes=10))
        late = (await register(client, "bob"))[0].json()["id"]
        await site.make_older(timedelta(minutes=10))
        for _ in range(3):
            await site.app.sweep("stuck-tenants")
        async with site.app.relay(), site.app.worker():
            await site.all_active()
            for tenant in (lost, late):
                await site.finished(tenant)
            await eventually(site.nothing_waits)
        assert site.provisioned() == Counter([str(lost), late])
        assert site.invited() == Counter(["ada@example.org", "bob@example.org"])


async def test_provisioning_workflow_idempotent(site: Site) -> None:
    """On a tenant that is active it does nothing; run to its end twice it does nothing the second time."""
    async with site.open():
        active = await site.add_tenant("ada", age=timedelta(minutes=10), status="active")
        start = site.provisioning.provision_tenant
        handle = await site.app.start_workflow(start, active, uuid4(), workflow_id=f"by-hand-{active}")
        async with site.app.worker():
            assert await handle.result(SOON) == "was active"
        assert (site.outside.databases, site.outside.invitations) == ({}, {})


def test_the_migrations_are_what_the_models_say_and_can_be_undone(site: Site) -> None:
    config = Config(Path(site.main.__file__).with_name("alembic.ini"))
    command.check(config)
    command.downgrade(config, "base")
    command.upgrade(config, "head")
    command.check(config)
