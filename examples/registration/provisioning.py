"""The workflow that makes a registered tenant active, and a sweeper for tenants that got stuck.

semel worker examples.registration.provisioning:app
semel relay examples.registration.provisioning:app      # unless the engine is in the database of the tenants
semel apply examples.registration.provisioning:app      # the sweeper's schedule
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

from sqlalchemy import select, update

import semel
from examples.registration.database import DATABASE_URL, sessions
from examples.registration.models import Tenant, TenantStatus, User, now
from examples.registration.outside import FakeOutside, Outside

app = semel.App(namespace="registration", outbox=DATABASE_URL)
outside: Outside = FakeOutside()


def workflow_id(tenant_id: UUID) -> str:
    """The one key of a tenant's provisioning: for the first start, for the sweeper, for `semel explain`."""
    return f"provision-tenant-{tenant_id}"


@app.task(retry=10)
async def get_tenant_status(tenant_id: UUID) -> str:
    async with sessions() as session:
        tenant = await session.get_one(Tenant, tenant_id)
        return tenant.status


@app.task(retry=10)
async def create_database(tenant_id: UUID) -> str:
    return await outside.create_database(tenant_id, semel.effect_key("create-database"))


@app.task(retry=10)
async def invite_user(user_id: UUID) -> None:
    async with sessions() as session:
        user = await session.get_one(User, user_id)
    await outside.send_invitation(user.email, semel.effect_key("invite"))


@app.task(retry=10)
async def activate_tenant(tenant_id: UUID) -> None:
    """Changes a tenant that is still being provisioned, so a second call changes nothing."""
    waiting = (Tenant.id == tenant_id) & (Tenant.status == TenantStatus.PROVISIONING)
    async with sessions.begin() as session:
        await session.execute(update(Tenant).where(waiting).values(status=TenantStatus.ACTIVE, activated_at=now()))


@app.workflow
async def provision_tenant(ctx: semel.Context, tenant_id: UUID, user_id: UUID) -> str:
    """Read the status first: a tenant that is active needs nothing."""
    if await ctx.execute_task(get_tenant_status, tenant_id) == TenantStatus.ACTIVE:
        return "was active"
    database = await ctx.execute_task(create_database, tenant_id)
    await ctx.execute_task(invite_user, user_id)
    await ctx.execute_task(activate_tenant, tenant_id)
    return f"active in {database}"


@app.sweeper("stuck-tenants", every="15m", older_than="5m")
async def find_stuck_tenants(sweep: semel.Sweep) -> AsyncIterator[semel.Stuck]:
    """Tenants that have been provisioning for too long, whatever the reason."""
    stuck = (Tenant.status == TenantStatus.PROVISIONING) & (Tenant.created_at < sweep.before)
    query = select(Tenant.id, User.id).join(User, User.tenant_id == Tenant.id).where(stuck)
    async with sessions() as session:
        rows = (await session.execute(query.order_by(Tenant.created_at).limit(sweep.limit))).all()
    for tenant_id, user_id in rows:
        yield semel.Stuck(workflow_id(tenant_id), provision_tenant, tenant_id, user_id)
