"""What happens in the transaction of a registration: tenant, user and the start of the workflow, or nothing."""

from __future__ import annotations

from django.db import IntegrityError, connection, transaction

from examples.registration_django.models import Tenant, User
from examples.registration_django.provisioning import app, provision


class SlugTaken(Exception):
    """Somebody else has a tenant of this name."""


def register(slug: str, email: str) -> tuple[Tenant, bool]:
    """The tenant, and whether it is new. The same registration again gives the same tenant."""
    try:
        with transaction.atomic():
            tenant = Tenant.objects.create(slug=slug)
            User.objects.create(email=email, tenant=tenant)
            app.sync.start_workflow(
                provision, str(tenant.pk), workflow_id=f"provision:{tenant.pk}", connection=connection
            )
            return tenant, True
    except IntegrityError:
        tenant = Tenant.objects.select_related("user").get(slug=slug)
    if tenant.user.email != email:
        raise SlugTaken(slug)
    return tenant, False
