"""The repository speaks of itself only: no machine's paths, no package index, nothing left to do."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.tidy.house import ROOT, short, sources

# `git ls-files` lists what is tracked; new files count as soon as they are added.
TRACKED = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout.split(
    "\0"
)
TEXTS = [ROOT / name for name in TRACKED if name and (ROOT / name).is_file()]

MACHINE_PATH = re.compile(r"(?<![\w.$}/])/(?:work|root|home|Users|opt)/\w|/tmp/\w")
REGISTRY = re.compile(
    r"pypi\.org|pythonhosted\.org|registry\.npmjs|ghcr\.io|docker\.io"
    r"|(?<!emit-)index-url\s*[= ]\s*\S|find-links\s*[= ]",
    re.IGNORECASE,
)
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")


def lines_with(pattern: re.Pattern[str], path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return []  # a picture
    return [f"{number}: {line.strip()}" for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


def test_there_is_something_to_read() -> None:
    assert {"pyproject.toml", "Makefile", "LICENSE"} <= {short(path) for path in TEXTS}


@pytest.mark.parametrize("path", TEXTS, ids=short)
def test_no_machine_path_or_registry(path: Path) -> None:
    assert lines_with(MACHINE_PATH, path) + lines_with(REGISTRY, path) == []


@pytest.mark.parametrize("path", sources(".py", ".sql"), ids=short)
def test_nothing_is_left_to_do(path: Path) -> None:
    assert lines_with(UNFINISHED, path) == []
