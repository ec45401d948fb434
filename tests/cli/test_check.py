"""`semel check`: lines like a linter's, JSON and SARIF for programs, exit codes for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.shell import semel

FLOW = "import time, semel\napp = semel.App()\n@app.workflow\nasync def flow(ctx: semel.Context):\n    {}\n"


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("flow.py")
    path.write_text(FLOW.format("time.sleep(1)"), encoding="utf-8")
    return path


def test_a_finding_is_a_line_and_exit_code_6(flow: Path) -> None:
    told = semel("check", str(flow))
    assert told.code == 6
    line, summary = told.out.splitlines()
    assert line.startswith("flow.py:5:5: D04 blocking-sleep: time.sleep() blocks the whole worker; it is forgotten")
    assert summary == "1 file, 1 workflow, 1 finding."


def test_clean_is_0(flow: Path) -> None:
    flow.write_text(FLOW.format("await ctx.sleep(1)"), encoding="utf-8")
    told = semel("check", ".")
    assert (told.code, told.out) == (0, "1 file, 1 workflow, 0 findings.\n")


def test_no_workflow_is_said(flow: Path) -> None:
    flow.write_text("x = 1\n", encoding="utf-8")
    told = semel("check", "flow.py")
    assert (told.code, "no workflow was found" in told.err) == (0, True)


def test_a_wrong_path_is_usage(flow: Path) -> None:
    told = semel("check", "nowhere")
    assert (told.code, "no file or folder 'nowhere'" in told.err) == (2, True)
    assert semel("check").code == 2
    assert semel("check", "flow.py", "--sarif", "no/such/folder.sarif").code == 2


def test_json(flow: Path) -> None:
    told = semel("check", "flow.py", "--json")
    assert told.code == 6
    (finding,) = told.data["findings"]
    assert (told.data["files"], told.data["workflows"]) == (1, 1)
    assert (finding["path"], finding["line"], finding["column"]) == ("flow.py", 5, 5)
    assert (finding["rule"], finding["name"], finding["chain"]) == ("D04", "blocking-sleep", ["flow"])
    assert finding["instead"]


def test_sarif_beside_the_text_or_instead(flow: Path) -> None:
    told = semel("check", "flow.py", "--sarif", "out.sarif")
    assert (told.code, "D04" in told.out) == (6, True)
    log = json.loads(Path("out.sarif").read_text(encoding="utf-8"))
    place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "flow.py"}
    assert semel("check", "flow.py", "--sarif", "-").data == log
