"""The workflow that provisions a tenant. Django has to be set up before: `manage.py semel worker` does it."""

from __future__ import annotations

from django.db import connection, transaction

import semel
from examples.registration_django.models import Tenant, Workspace
from semel.django import database_url

app = semel.App(namespace="registration-django", outbox=database_url(), auto_migrate=True)


@app.task
def read_status(tenant_id: str) -> str:
    return Tenant.objects.get(pk=tenant_id).status


@app.task
def make_workspace(tenant_id: str) -> None:
    """The workspace and the key of this step are committed together, so a second try makes no second one."""
    with transaction.atomic():
        if semel.once_sync(connection, semel.effect_key("workspace")):
            Workspace.objects.create(tenant_id=tenant_id)


@app.task
def activate(tenant_id: str) -> None:
    Tenant.objects.filter(pk=tenant_id).update(status="active")


@app.workflow
async def provision(ctx: semel.Context, tenant_id: str) -> str:
    """Each step can be repeated, and a tenant that is active already is left alone."""
    if await ctx.execute_task(read_status, tenant_id) == "active":
        return "was active"
    await ctx.execute_task(make_workspace, tenant_id)
    await ctx.execute_task(activate, tenant_id)
    return "active"
