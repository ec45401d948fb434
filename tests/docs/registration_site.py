"""The registration example as its tests run it: fresh modules on databases of the test's own."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from httpx import ASGITransport, AsyncClient, Response
from sqlalchemy import select, text

from tests.world import SOON, eventually

PACKAGE = "examples.registration"


class Site:
    """The example with its settings, and what its provisioning did outside."""

    def __init__(self, database: str, engine: str, records: str | None = None) -> None:
        for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
            del sys.modules[name]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DATABASE_URL", database)
            patch.setenv("SEMEL_URL", engine)
            if records is not None:
                patch.setenv("SEMEL_RECORDS", records)
            self.main: Any = importlib.import_module(f"{PACKAGE}.main")
            self.provisioning: Any = sys.modules[f"{PACKAGE}.provisioning"]
            self.service: Any = sys.modules[f"{PACKAGE}.service"]
            self.models: Any = sys.modules[f"{PACKAGE}.models"]
            self.database: Any = sys.modules[f"{PACKAGE}.database"]
            self.main.migrate()
        self.app = self.provisioning.app
        self.outside = self.provisioning.outside

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncClient]:
        """A client of the web application, which runs in this process."""
        async with (
            self.main.lifespan(self.main.web),
            AsyncClient(transport=ASGITransport(self.main.web), base_url="http://site", timeout=SOON) as client,
        ):
            yield client

    async def sql(self, query: str) -> Sequence[Any]:
        """Look at the business database."""
        async with self.database.engine.connect() as connection:
            return (await connection.execute(text(query))).all()

    async def add_tenant(self, slug: str, *, age: timedelta, status: str = "provisioning") -> UUID:
        """A tenant whose start was lost: the rows are there, and nothing else."""
        id_, created = uuid4(), self.models.now() - age
        async with self.database.sessions.begin() as session:
            session.add(self.models.Tenant(id=id_, slug=slug, name=slug, status=status, created_at=created))
            await session.flush()
            session.add(self.models.User(id=uuid4(), tenant_id=id_, email=f"{slug}@example.org"))
        return id_

    async def make_older(self, age: timedelta) -> None:
        """Let every tenant have registered so much earlier."""
        async with self.database.sessions.begin() as session:
            for tenant in await session.scalars(select(self.models.Tenant)):
                tenant.created_at -= age

    async def all_active(self) -> None:
        """Wait until no tenant is being provisioned any more."""

        async def active() -> bool:
            return not await self.sql("select 1 from tenants where status <> 'active'")

        await eventually(active, within=SOON * 2)

    async def nothing_waits(self) -> bool:
        """Has every row of the outbox been relayed?"""
        return (await self.app.outbox.state()).pending == 0

    async def finished(self, tenant: UUID) -> str:
        """What the workflow of a tenant returned."""
        handle = await eventually(lambda: self.app.find(f"provision-tenant-{tenant}", kind="workflow"))
        result: str = await handle.result(SOON)
        return result

    def provisioned(self) -> Counter[str]:
        """How many databases there are for each tenant, as the cloud counts them."""
        return Counter(str(tenant) for tenant in self.outside.databases.values())

    def invited(self) -> Counter[str]:
        """How many invitations there are for each address, as the mail service counts them."""
        return Counter(self.outside.invitations.values())


def form(slug: str, **changes: str) -> dict[str, str]:
    """What a person fills in."""
    return {"name": slug.title(), "slug": slug, "email": f"{slug}@example.org", **changes}


async def register(client: AsyncClient, *slugs: str) -> list[Response]:
    """Register all at once."""
    return await asyncio.gather(*(client.post("/tenants", json=form(slug)) for slug in slugs))
