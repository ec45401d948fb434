"""Register three tenants while neither relay nor worker runs, and see that each is provisioned once.

    python -m examples.registration_django.main

Run it again in the same folder: the same registrations are answered with the same tenants, and nothing is provisioned.
"""

from __future__ import annotations

import asyncio
import os

import django
from django.core.management import call_command
from django.test import Client
from rich import print

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.registration_django.settings")
django.setup()

from examples.registration_django.models import Tenant, Workspace  # noqa: E402
from examples.registration_django.provisioning import app  # noqa: E402

FORMS = [{"slug": slug, "email": f"{slug}@example.org"} for slug in ("ada", "bob", "eve")]


def register() -> None:
    """Every client sends its form twice, as clients do that got no answer."""
    client = Client()
    for form in FORMS:
        answers = [client.post("/tenants", form, content_type="application/json") for _ in range(2)]
        assert answers[0].json()["id"] == answers[1].json()["id"]
        print(form["slug"], *(answer.status_code for answer in answers), answers[1].json()["status"])


async def work() -> None:
    """Relay and run until every tenant is active."""
    async with app.relay(poll="100ms"), app.worker():
        async for tenant in Tenant.objects.all():
            while not (handle := await app.find(f"provision:{tenant.pk}")):
                await asyncio.sleep(0.05)
            await handle.result(timeout="60s")
    await app.close()


def main() -> None:
    call_command("migrate", verbosity=0)
    before = Workspace.objects.count()
    register()
    asyncio.run(work())
    active = Tenant.objects.filter(status="active").count()
    print(f"{active} tenants are active, {Workspace.objects.count() - before} workspaces made by this run")


if __name__ == "__main__":
    main()
