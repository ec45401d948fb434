"""The public face type-checks strictly: right uses pass, wrong ones are errors."""

from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = Path(__file__).with_name("examples.py")


@pytest.mark.slow
def test_examples_are_typed_as_they_say(tmp_path: Path) -> None:
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path)]
    report, errors, code = api.run([*options, "--warn-unused-ignores", str(EXAMPLES)])
    assert (code, errors) == (0, ""), report
