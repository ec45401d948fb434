"""A file is read in one sitting, a function fits a screen."""

import ast
from pathlib import Path

import pytest

from tests.tidy.house import parse, short, sources

FILE_LINES = 500
FUNCTION_LINES = 60


@pytest.mark.parametrize("path", sources(".py", ".sql"), ids=short)
def test_file_is_read_in_one_sitting(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= FILE_LINES


@pytest.mark.parametrize("path", sources(".py"), ids=short)
def test_functions_fit_a_screen(path: Path) -> None:
    functions = [node for node in ast.walk(parse(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = [(node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in functions]
    assert [(name, lines) for name, lines in lengths if lines > FUNCTION_LINES] == []


def test_the_formatter_lays_out_every_line() -> None:
    assert [short(path) for path in sources(".py") if "fmt: skip" in path.read_text(encoding="utf-8")] == []
