"""Registration: the tenant, its first user and the start of its provisioning, in one transaction."""

from __future__ import annotations

from typing import Annotated
from uuid import uuid4

from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from examples.registration.models import Tenant, User
from examples.registration.provisioning import app, provision_tenant, workflow_id


class RegistrationForm(BaseModel):
    name: Annotated[str, Field(min_length=1, max_length=200)]
    slug: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{1,49}$")]
    email: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$", max_length=200)]


class AlreadyTaken(Exception):
    """Somebody else has this slug or this email."""


async def add_tenant(session: AsyncSession, form: RegistrationForm) -> Tenant:
    """Add the rows and the start to the session's transaction. No engine is called."""
    tenant = Tenant(id=uuid4(), name=form.name, slug=form.slug)
    user = User(id=uuid4(), tenant_id=tenant.id, email=form.email)
    session.add_all([tenant, user])
    await session.flush()
    await app.start_workflow(
        provision_tenant, tenant.id, user.id, workflow_id=workflow_id(tenant.id), connection=session
    )
    return tenant


async def register(session: AsyncSession, form: RegistrationForm) -> tuple[Tenant, bool]:
    """Register a tenant. A form that is sent again is answered with the tenant that it made, and False.

    AlreadyTaken: the slug or the email belongs to another registration.
    """
    try:
        async with session.begin():
            return await add_tenant(session, form), True
    except IntegrityError:  # rolled back; all that is unique are the slug and the email
        async with session.begin():
            made = select(Tenant).join(User, User.tenant_id == Tenant.id)
            tenant = await session.scalar(made.where(Tenant.slug == form.slug, User.email == form.email))
    if tenant is None:
        raise AlreadyTaken(f"{form.slug} or {form.email} is already registered")
    return tenant, False
