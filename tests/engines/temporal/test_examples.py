"""The examples run on a cluster as they are: only the URL is another one, and where transactions go."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.test_examples import SAYS
from tests.temporal_world import TemporalWorld

pytestmark = pytest.mark.slow


def run(cluster: TemporalWorld, folder: Path, *command: str) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith("SEMEL_")} | {"COLUMNS": "60", "NO_COLOR": "1"}
    env |= {"SEMEL_URL": cluster.url, "SEMEL_RECORDS": cluster.records}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=env, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines(keepends=True)  # the SDK's core warns there too, between people's own lines
    return "".join(line for line in said if "temporalio_sdk_core" not in line)


FOLDERS = [name.partition(".")[0] for name in SAYS]
EXAMPLES = {folder: [name for name in SAYS if name.partition(".")[0] == folder] for folder in FOLDERS}
"""Those of one folder share namespaces, and so a records database too."""


def namespaces(folder: str) -> set[str]:
    """Read, not imported: settings of Django, as one example has them, are for a whole process."""
    files = [*ROOT.glob(f"examples/{folder}.py"), *ROOT.glob(f"examples/{folder}/*.py")]
    found = {one for file in files for one in re.findall(r'App\(namespace="([a-z-]+)"', file.read_text("utf-8"))}
    assert found
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_shows_itself(cluster: TemporalWorld, name: str, tmp_path: Path) -> None:
    for namespace in namespaces(name):
        run(cluster, tmp_path, "semel", "migrate", "--namespace", namespace)
    for one in EXAMPLES[name]:
        assert SAYS[one] in run(cluster, tmp_path, f"examples.{one}")
