"""The public face type-checks strictly with mypy and pyright: right uses pass, and both report every wrong one."""

import json
import re
import subprocess
import sys
from pathlib import Path

from mypy import api

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = Path(__file__).with_name("examples.py")


def marked() -> set[int]:
    """The lines that say of themselves that they are wrong."""
    lines = EXAMPLES.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if "  # E: " in line}


def test_mypy_reports_what_is_wrong_and_nothing_else() -> None:
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    report, problems, _ = api.run([*options, str(EXAMPLES)])
    assert problems == ""
    found = re.findall(r"(?m)^(.+?):(\d+): error:", report)
    assert {Path(file).name for file, _ in found} == {EXAMPLES.name}, report
    assert {int(line) for _, line in found} == marked(), report


def test_pyright_reports_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    settings = {"include": [str(EXAMPLES)], "extraPaths": [str(ROOT / "src")], "typeCheckingMode": "standard"}
    project = tmp_path / "pyrightconfig.json"
    project.write_text(json.dumps({**settings, "pythonVersion": "3.11"}), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--project", str(project), "--outputjson"]
    ran = subprocess.run([*command, "--pythonpath", sys.executable], capture_output=True, text=True, check=False)
    found = [one for one in json.loads(ran.stdout)["generalDiagnostics"] if one["severity"] == "error"]
    report = "\n".join(f"{one['range']['start']['line'] + 1}: {one['message']}" for one in found)
    assert {one["range"]["start"]["line"] + 1 for one in found} == marked(), report
