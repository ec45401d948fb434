"""`settings.py` alone reads the environment, so that one page can list every setting."""

import ast

from tests.tidy.house import SRC, parse, short, sources

READERS = {"environ", "environb", "getenv", "getenvb"}


def reads_environment(tree: ast.AST) -> bool:
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return bool(READERS & (attributes | names))


def test_only_settings_reads_the_environment() -> None:
    readers = [short(path) for path in sources(".py") if reads_environment(parse(path))]
    assert readers == [short(SRC / "settings.py")]
