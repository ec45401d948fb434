"""The command line uses what every user of an App can use: nothing private, and no engine."""

import ast
from pathlib import Path

import pytest

from tests.tidy.house import SRC, parse, short, sources

OWN = {"self", "cls"}


@pytest.mark.parametrize("path", sources(".py", under=SRC / "cli"), ids=short)
def test_commands_use_public_attributes_only(path: Path) -> None:
    found = []
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Attribute):
            private = node.attr.startswith("_") and not node.attr.startswith("__")
            foreign = ast.unparse(node.value) not in OWN and ast.unparse(node) != "os._exit"
            if node.attr == "engine" or (private and foreign):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    assert found == [], "give App or Handle a public verb for it"
