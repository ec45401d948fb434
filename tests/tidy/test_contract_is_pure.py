"""The contract answers from its arguments alone: no waiting, no clock, no dice, no I/O."""

import ast
from pathlib import Path

import pytest

from tests.tidy.house import SRC, imports, parse, short, sources

IMPURE_MODULES = {
    "apsw", "asyncio", "asyncpg", "concurrent", "contextvars", "io", "logging", "multiprocessing", "os",
    "pathlib", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3",
    "subprocess", "sys", "tempfile", "threading", "time",
}  # fmt: skip
IMPURE_CALLS = {
    "now", "utcnow", "today", "uuid1", "uuid4", "uuid6", "uuid7",
    "open", "print", "input", "read_text", "write_text", "getenv", "eval", "exec", "__import__",
}  # fmt: skip
WAITING = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)

every_contract_module = pytest.mark.parametrize("path", sources(".py", under=SRC / "contract"), ids=short)


def called_name(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def impurities(tree: ast.AST) -> list[str]:
    found = [f"line {line}: imports {name}" for line, name in imports(tree) if name.split(".")[0] in IMPURE_MODULES]
    for node in ast.walk(tree):
        if isinstance(node, WAITING):
            found.append(f"line {node.lineno}: waits")
        elif isinstance(node, ast.Global):
            found.append(f"line {node.lineno}: changes a global")
        elif isinstance(node, ast.Call) and called_name(node) in IMPURE_CALLS:
            found.append(f"line {node.lineno}: calls {called_name(node)}()")
    return found


@every_contract_module
def test_contract_module_is_pure(path: Path) -> None:
    assert impurities(parse(path)) == []


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "from os.path import join",
        "async def f(): ...",
        "datetime.now(UTC)",
        "datetime.datetime.utcnow()",
        "date.today()",
        "uuid.uuid4()",
        "open('f')",
    ],
)
def test_the_check_sees(line: str) -> None:
    assert impurities(ast.parse(line))
