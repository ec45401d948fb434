"""Rooms import downwards only; the contracts are in pyproject.toml."""

import pytest
from importlinter.cli import lint_imports

from tests.tidy.house import ROOT


def test_rooms_import_downwards(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    broken = lint_imports(config_filename="pyproject.toml", no_cache=True)
    assert not broken, capsys.readouterr().out
