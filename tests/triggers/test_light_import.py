"""Pydantic and cron are imported only where triggers are used."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["semel", "semel.app", "semel.cli"])
def test_semel_is_imported_without_pydantic(module: str) -> None:
    code = f"import {module}, sys; print(sorted({{'pydantic', 'pydantic_core'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_triggers_are_imported_without_an_app() -> None:
    code = "import semel.triggers, sys; print(sorted(m for m in sys.modules if m in ('semel.app', 'semel.engine')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
