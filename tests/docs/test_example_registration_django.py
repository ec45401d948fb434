"""The Django site: tenant, user and start in one transaction, also while the engine is down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.faults.server import Fragile, fragile_postgres

pytestmark = pytest.mark.slow

SET_UP = """
import asyncio, os
import django
os.environ["DJANGO_SETTINGS_MODULE"] = "examples.registration_django.settings"
django.setup()
from django.core.management import call_command
from django.db import connection
from django.test import Client
from examples.registration_django import registration
from examples.registration_django.models import Tenant, User, Workspace
from examples.registration_django.provisioning import app

client = Client()

def post(slug, email):
    answer = client.post("/tenants", {"slug": slug, "email": email}, content_type="application/json")
    return answer.status_code, answer.json()

def rows():
    with connection.cursor() as cursor:
        cursor.execute("select status, retry_count from outbox_events order by id")
        return cursor.fetchall()
"""
REGISTER = """
call_command("migrate", verbosity=0)
ids = []
for number in range(5):
    code, first = post(f"tenant-{number}", f"{number}@example.org")
    assert (code, first["status"]) == (201, "provisioning")
    assert post(f"tenant-{number}", f"{number}@example.org") == (200, first), "a retry is the same tenant"
    assert post(f"tenant-{number}", "other@example.org") == (409, {"error": "taken"})
    ids.append(first["id"])
assert rows() == [("pending", 0)] * 5
assert client.get("/tenants/tenant-0").json() == {"id": ids[0], "status": "provisioning"}
"""
ROLLED_BACK = """
call_command("migrate", verbosity=0)
client.raise_request_exception = False
start = app.sync.start_workflow
def start_and_fail(*args, **options):
    start(*args, **options)
    assert len(rows()) == 1
    raise OSError("lost")
app.sync.start_workflow = start_and_fail
assert client.post("/tenants", {"slug": "a", "email": "a@b.c"}, content_type="application/json").status_code == 500
assert (Tenant.objects.count(), User.objects.count(), rows()) == (0, 0, [])
app.sync.start_workflow = start
assert post("a", "a@b.c")[0] == 201
"""
TRIED_IN_VAIN = """
async def main():
    async with app.relay(poll="50ms"):
        for _ in range(1200):
            if await asyncio.to_thread(noticed):
                break
            await asyncio.sleep(0.05)
        else:
            raise AssertionError("no relay has noticed")
    await app.close()

def noticed():
    with connection.cursor() as cursor:
        cursor.execute("select 1 from outbox_destinations")
        return cursor.fetchall()

asyncio.run(main())
assert rows() == [("pending", 0)] * 5, "no try is consumed"
"""
PROVISION = """
from examples.registration_django.main import work
with connection.cursor() as cursor:
    cursor.execute("update outbox_destinations set retry_at = since")
asyncio.run(work())
assert [tenant.status for tenant in Tenant.objects.all()] == ["active"] * 5
assert sorted(Workspace.objects.values_list("tenant__slug", flat=True)) == [f"tenant-{n}" for n in range(5)]
assert [status for status, _ in rows()] == ["processed"] * 5
assert post("tenant-0", "0@example.org")[1]["status"] == "active"
"""


def play(code: str, folder: Path, engine: str) -> None:
    """In a process of its own: Django's settings are for a whole process."""
    env = {**os.environ, "SEMEL_URL": engine, "REGISTRATION_DATABASE": str(folder / "site.db")}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-c", SET_UP + code]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def engine() -> Iterator[Fragile]:
    with fragile_postgres() as server:
        yield server


def test_registrations_go_on_while_the_engine_is_down_and_each_tenant_is_provisioned_once(
    engine: Fragile, tmp_path: Path
) -> None:
    engine.sql("create database engine")
    url = engine.url("engine")
    engine.end(signal.SIGQUIT)
    play(REGISTER, tmp_path, url)
    play(TRIED_IN_VAIN, tmp_path, url)
    engine.start()
    play(PROVISION, tmp_path, url)


def test_a_registration_that_is_rolled_back_starts_nothing(tmp_path: Path) -> None:
    play(ROLLED_BACK, tmp_path, f"sqlite:///{tmp_path}/engine.db")


def test_no_migration_is_missing(tmp_path: Path) -> None:
    play(
        'call_command("makemigrations", check=True, dry_run=True)\ncall_command("check")',
        tmp_path,
        f"sqlite:///{tmp_path}/engine.db",
    )
