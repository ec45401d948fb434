"""From paths to Python files: each once, in order, whatever links point where."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from semel.check.words import words
from semel.errors import InvalidValue

SUFFIXES = (".py", ".pyw")
LEFT_OUT = words(
    """
    __pycache__ node_modules site-packages build dist venv env .venv .env .git .hg .svn .tox .nox .mypy_cache
    .pytest_cache .ruff_cache .eggs
    """
)
"""Folders that hold no code of the project. A path that is given is always read."""


def python_files(paths: Iterable[Path]) -> list[tuple[Path, str]]:
    """Every file with the name under which it is shown. InvalidValue for a path that leads to none."""
    found: dict[Path, str] = {}
    for path in paths:
        if not path.exists():
            raise InvalidValue(f"there is no file or folder {str(path)!r}. Give the folder that holds your workflows.")
        before = len(found)
        several = False
        for file in [path] if path.is_file() else _below(path):
            several = True
            found.setdefault(Path(os.path.realpath(file)), file.as_posix())
        if not several and len(found) == before:
            raise InvalidValue(f"there is no Python file in {str(path)!r}. Give the folder that holds your workflows.")
    return [(real, shown) for real, shown in sorted(found.items(), key=lambda item: item[1])]


def _below(folder: Path) -> Iterator[Path]:
    """Files in the folder and below; a folder that was seen is not entered again through a link."""
    seen: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        try:
            at = Path(place).stat()
        except OSError:
            folders.clear()
            continue
        if (at.st_dev, at.st_ino) in seen:
            folders.clear()
            continue
        seen.add((at.st_dev, at.st_ino))
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT and not name.endswith(".egg-info"))
        for name in sorted(files):
            file = Path(place, name)
            if file.suffix in SUFFIXES and file.is_file():
                yield file
