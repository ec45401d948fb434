"""The HTTP API.

    alembic -c examples/registration/alembic.ini upgrade head
    uvicorn examples.registration.web:web
    curl localhost:8000/tenants -H 'content-type: application/json' \\
        -d '{"name": "Ada Ltd", "slug": "ada", "email": "ada@example.org"}'
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import UUID

from fastapi import Depends, FastAPI, HTTPException, Response
from pydantic import BaseModel, ConfigDict
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from examples.registration.database import engine, sessions
from examples.registration.models import Tenant
from examples.registration.provisioning import app
from examples.registration.service import AlreadyTaken, RegistrationForm, register


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with app:
        yield
    await engine.dispose()


web = FastAPI(lifespan=lifespan)


async def get_session() -> AsyncIterator[AsyncSession]:
    async with sessions() as session:
        yield session


DatabaseSession = Annotated[AsyncSession, Depends(get_session)]


class TenantView(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: UUID
    slug: str
    status: str


@web.post("/tenants", status_code=202)
async def register_tenant(form: RegistrationForm, session: DatabaseSession, response: Response) -> TenantView:
    """202: it is committed and will be provisioned. 200: this form was sent before. 409: the name is taken."""
    try:
        tenant, new = await register(session, form)
    except AlreadyTaken as error:
        raise HTTPException(409, str(error)) from error
    if not new:
        response.status_code = 200
    return TenantView.model_validate(tenant)


@web.get("/tenants/{slug}")
async def show_tenant(slug: str, session: DatabaseSession) -> TenantView:
    tenant = await session.scalar(select(Tenant).where(Tenant.slug == slug))
    if tenant is None:
        raise HTTPException(404, f"there is no tenant {slug}")
    return TenantView.model_validate(tenant)
