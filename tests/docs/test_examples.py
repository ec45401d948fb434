"""The examples do what they say."""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow


def run_payments(folder: Path) -> str:
    env = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    script = [sys.executable, str(ROOT / "examples" / "payments.py")]
    done = subprocess.run(script, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_order_is_charged_once_also_by_a_second_run(tmp_path: Path) -> None:
    first = run_payments(tmp_path)
    assert first.splitlines()[-1].endswith("calls to the provider, 3 charges")
    assert sum(" ran " in line for line in first.splitlines()) == 3
    again = run_payments(tmp_path)
    assert again.splitlines()[-1] == "15 requests, 0 calls to the provider, 0 charges"


SAYS = {
    "order_saga": "'release o-3'\n]",
    "approval": "too late\nOutcome(approved=False, by=None)",
    "cursor_collection": "windows tile: True\none run covers the outage: True\nno event twice, none missed: True",
    "rewards": "['ada is gold now', 'ada is platinum now']",
    "incident_router.router": "3 signals, 3 tickets",
    "incident_router.scheduler": "agent:graphs.alert.report:closed:2 briefed",
    "registration.main": "waiting in the outbox: 3\nnow: active active active\ndatabases made by this run: 3",
    "registration_django.main": "3 tenants are active, 3 workspaces made by this run",
}


SAYS_AGAIN = {
    "order_saga": "done outside by this run:\n[]",
    "approval": "Outcome(approved=True, by='eve')\ntoo late\nOutcome(approved=False, by=None)",
    "cursor_collection": "windows tile: True\none run covers the outage: True\nno event twice, none missed: True",
    "rewards": "1100 points, platinum\nmailed by this run:\n[]",
    "incident_router.router": "agent:shop.error_rate:opened:3 cooling down",
    "incident_router.scheduler": "agent:graphs.alert.report:opened:3 cooling down",
    "registration.main": "waiting in the outbox: 0\nnow: active active active\ndatabases made by this run: 0",
    "registration_django.main": "eve 200 200 active\n3 tenants are active, 0 workspaces made by this run",
}
"""What the second run in the same folder says: it ends by itself, and nothing is done twice."""


def run_example(name: str, folder: Path) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith("SEMEL_")} | {"COLUMNS": "60", "NO_COLOR": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    script = [sys.executable, "-m", f"examples.{name}"]
    done = subprocess.run(script, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_example_has_a_namespace_of_its_own() -> None:
    """So that all of them can be run against one database."""
    lines = [line for file in (ROOT / "examples").rglob("*.py") for line in file.read_text().splitlines()]
    apps = [line for line in lines if "App(" in line]
    named = [re.search(r'namespace="([a-z-]+)"', line) for line in apps]
    assert all(named), apps
    assert len({found[1] for found in named if found}) == len(apps) == 10


@pytest.mark.parametrize("name", SAYS)
def test_an_example_shows_itself_and_may_be_run_again(name: str, tmp_path: Path) -> None:
    assert SAYS[name] in run_example(name, tmp_path)
    assert SAYS_AGAIN[name] in run_example(name, tmp_path)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SEMEL_URL", f"sqlite:///{tmp_path}/web.db")
    monkeypatch.chdir(tmp_path)
    module = importlib.reload(importlib.import_module("examples.web"))
    yield module
    loop = module.app.sync._loop
    module.app.sync.close()
    while loop.is_running():
        time.sleep(0.001)
    loop.close()  # sync.close() stops its loop and leaves it open


def ask(shop: ModuleType, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
    data = b"" if body is None else json.dumps(body).encode()
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "CONTENT_LENGTH": str(len(data))}
    statuses: list[str] = []
    answer = shop.web(environ | {"wsgi.input": io.BytesIO(data)}, lambda status, _: statuses.append(status))
    return int(statuses[0][:3]), json.loads(b"".join(answer))


def test_the_web_application_starts_a_charge_once(shop: ModuleType) -> None:
    path = "/orders/o-1/charge"
    assert ask(shop, "GET", path)[0] == 404
    code, first = ask(shop, "POST", path, {"cents": 9900})
    assert (code, first["duplicate"]) == (202, False)
    assert ask(shop, "POST", path, {"cents": 9900}) == (200, {"id": first["id"], "duplicate": True})
    code, conflict = ask(shop, "POST", path, {"cents": 1})
    assert (code, conflict["code"]) == (422, "SEMEL-K02")
    assert ask(shop, "POST", "/orders/o-2/charge", {"cents": "many"})[0] == 400
    assert ask(shop, "GET", path)[1]["status"] == "pending"

    async def work() -> None:
        async with shop.app.worker():
            await (await shop.app.get(first["id"])).result("60s")
        await shop.app.close()

    asyncio.run(work())
    done = ask(shop, "GET", path)[1]
    assert (done["status"], done["result"]["cents"]) == ("completed", 9900)
