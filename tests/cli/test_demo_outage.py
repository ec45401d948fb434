"""`semel demo outage` provisions each tenant once, and its last line is counted: if untrue, it says so."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from semel.cli import demo_outage
from semel.cli.demo_outage import AFTER, BEFORE, BUSINESS, ENGINE, MEANWHILE, Business, Outage, Registrations, register
from semel.cli.demo_processes import DemoFailed
from tests.cli.shell import semel

ONCE = (
    "once: 20 tenants registered, 12 of them while the engine was down; 20 active, 20 provisioned, 3 processes killed"
)
UP = [(f"tenant-{number}", "active", 1, "up") for number in range(BEFORE + AFTER)]
DOWN = [(f"tenant-{number + 100}", "active", 1, "down") for number in range(MEANWHILE)]
TRUE = Registrations(UP + DOWN, executions=20, repeats=1, unmarked=11, killed=3)


@pytest.mark.slow
def test_an_outage_of_the_engine_strands_no_tenant() -> None:
    told = semel("demo", "outage")
    assert told.code == 0, told
    lines = told.out.splitlines()
    assert lines[-1] == ONCE
    text = " ".join(told.out.split())
    assert "12 tenants registered all the same; 12 starts wait in the outbox" in text
    assert "sends the form again, and is answered with the same tenant" in text
    assert "marked none of them: killed with SIGKILL" in text


def test_what_is_true_is_summed_up() -> None:
    assert (TRUE.doubts, TRUE.sum_up()) == ([], ONCE)


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        ({"tenants": []}, "0 of 20 tenants are registered"),
        ({"tenants": UP + DOWN[1:] + [("x", "active", 1, "up")]}, "11 of 12 registered while the engine was down"),
        ({"tenants": UP + DOWN[1:] + [("x", "provisioning", 0, "down")]}, "1 tenants are not active (x)"),
        ({"tenants": UP + DOWN[1:] + [("x", "active", 2, "down")]}, "x was provisioned 2 times"),
        ({"tenants": UP + DOWN[1:] + [("x", "active", 0, "down")]}, "x was provisioned 0 times"),
        ({"executions": 21}, "21 executions are on record for 20 tenants"),
        ({"repeats": 0}, "0 registrations that were sent again"),
        ({"killed": 2}, "2 of 3 processes were killed"),
        ({"unmarked": 0}, "with 0 starts that were not marked"),
    ],
)
def test_what_is_not_true_is_doubted(change: dict[str, Any], doubt: str) -> None:
    assert any(doubt in one for one in replace(TRUE, **change).doubts)


def test_the_demo_fails_when_its_last_line_is_not_true(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(self: Outage) -> Registrations:
        return replace(TRUE, tenants=[*UP, *DOWN[1:], ("tenant-x", "active", 2, "down")])

    monkeypatch.setattr(Outage, "play", play)
    told = semel("demo", "outage")
    assert (told.code, told.out.splitlines()[-1]) == (1, "NOT once: tenant-x was provisioned 2 times.")


def test_a_process_that_ends_early_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(self: Outage) -> Registrations:
        raise DemoFailed("process 1 ended early (no output)")

    monkeypatch.setattr(Outage, "play", play)
    told = semel("demo", "outage")
    assert (told.code, "process 1 ended early" in told.out) == (1, True)


def test_registering_does_not_touch_the_engine(tmp_path: Path) -> None:
    """It is not there, and nothing makes it; the row of the outbox is committed with the tenant."""
    app = demo_outage.open_app(tmp_path)
    with Business(tmp_path) as business:
        business.run("create_tenants")
    asyncio.run(app.outbox.init())
    assert register(app, tmp_path, "ada", "down") == (1, True)
    assert register(app, tmp_path, "ada", "down") == (1, False)
    with closing(sqlite3.connect(tmp_path / BUSINESS)) as db:
        assert db.execute("select key, status from outbox_events").fetchall() == [("provision-tenant-1", "pending")]
    assert not (tmp_path / ENGINE).exists()
    app.sync.close()
