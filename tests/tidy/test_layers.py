"""Rooms import downwards only; the contracts are in pyproject.toml."""

import logging

import pytest
from importlinter.cli import lint_imports

from tests.tidy.house import ROOT


def test_rooms_import_downwards(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    broken = lint_imports(config_filename="pyproject.toml", no_cache=True)
    for logger in logging.Logger.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.disabled = False  # the linter sets up logging and silences all others: tests after this one listen
    assert not broken, capsys.readouterr().out
