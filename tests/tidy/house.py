"""Where things are, for the tests that read the source instead of running it."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "semel"


def sources(*suffixes: str, under: Path = SRC) -> list[Path]:
    """Every source file with one of these suffixes; an empty list is a failure, not a pass."""
    found = sorted(path for path in under.rglob("*") if path.suffix in suffixes)
    assert found, f"no {' or '.join(suffixes)} file under {short(under)}"
    return found


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=short(path))


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Each imported module with its line, wherever in the file the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
