"""`semel worker` says which declared schedules were never applied, and can leave schedules to others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import semel as library
from semel.cli.worker import WorkerOptions, _as_arguments
from semel.cli.worker_processes import StopRequests
from tests.cli.shell import await_line, process, semel

SHOP = """
import semel
app = semel.App("sqlite:///shop.db", config=None)

@app.on_schedule("0 9 * * *", id="nightly")
@app.task
async def digest() -> None: ...
"""


def test_a_worker_names_what_was_never_applied(tmp_path: Path) -> None:
    (tmp_path / "unapplied_shop.py").write_text(SHOP)
    running = process("worker", "unapplied_shop:app", cwd=tmp_path)
    try:
        line = await_line(running, "never applied")
    finally:
        running.kill()
        running.communicate()
    assert "WARNING" in line
    assert "will not fire: nightly. Publish them with: semel apply MODULE:APP" in line


@pytest.mark.parametrize(("options", "wanted"), [(("--no-schedules",), False), ((), None)])
def test_a_worker_can_leave_schedules_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], wanted: bool | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaving_shop.py").write_text(SHOP)
    given: dict[str, Any] = {}

    def worker(self: library.App, **settings: Any) -> Any:
        given.update(settings)
        raise library.ConfigError("far enough")

    monkeypatch.setattr(library.App, "worker", worker)
    for name in ("_collect_seldom", "set_up_logging"):  # what a process of its own may do, and this one not
        monkeypatch.setattr(sys.modules["semel.cli.worker"], name, lambda *_: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    monkeypatch.setattr(StopRequests, "listen", lambda _: None)
    assert semel("worker", "leaving_shop:app", *options).code == 2
    assert given["schedules"] is wanted


def test_each_of_several_processes_leaves_them_too() -> None:
    options = WorkerOptions("shop:app", None, None, None, None, False, None, None, None)
    assert _as_arguments(options, debug=False) == ["shop:app", "--no-schedules"]
