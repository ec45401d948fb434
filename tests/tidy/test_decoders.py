"""Decoders are built when modules are imported, and by `codec` alone: see `codec._building`."""

import ast
from pathlib import Path

import pytest

from tests.tidy.house import SRC, parse, short, sources

LAZY = {"msgspec.convert", "msgspec.json.Decoder", "msgspec.msgpack.Decoder"}
TYPED = {"msgspec.json.decode", "msgspec.msgpack.decode"}
MADE_EARLY = {"decoder_of", "converter_of"}


@pytest.mark.parametrize("path", [path for path in sources(".py") if path != SRC / "codec.py"], ids=short)
def test_types_are_worked_out_when_a_module_is_imported(path: Path) -> None:
    tree = parse(path)
    late = {id(inner) for node in ast.walk(tree) if _is_function(node) for inner in ast.walk(node)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            typed = name in TYPED and any(keyword.arg == "type" for keyword in node.keywords)
            if name in LAZY or typed or (name in MADE_EARLY and id(node) in late):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    assert found == [], "make a decoder at module level, with semel.codec.decoder_of or converter_of"


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
