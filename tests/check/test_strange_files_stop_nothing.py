"""Whatever is in a file, the others are checked, and there is no traceback."""

from __future__ import annotations

import ast
import asyncio
import email
import json
from pathlib import Path
from types import ModuleType

import pytest

from semel.check import Kind, check
from semel.check.body import Reader
from semel.check.classes import methods
from semel.check.project import Project
from semel.check.resolve import Resolver
from semel.check.source import Module
from semel.check.values import Class, Function
from semel.errors import InvalidValue

GOOD = "import semel\napp = semel.App()\n@app.workflow\nasync def flow(ctx):\n    print(1)\n"


@pytest.mark.parametrize(
    "content",
    [
        b"def nothing(:\n",
        b"\xff\xfe\x00not text",
        "x = 'é'".encode("latin-1"),
        b"x = 1\0",
        b"# -*- coding: nonsense -*-\n",
        b"if x:\n\ty\n        z\n",
        b"(" * 5000,
        b"x = " + b"-" * 100_000 + b"1",
        b"x = " + b"+".join([b"1"] * 20_000),
    ],
)
def test_a_file_that_cannot_be_read_is_a_finding(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "strange.py").write_bytes(content)
    (tmp_path / "good.py").write_text(GOOD, encoding="utf-8")
    report = check([tmp_path])
    assert [finding.rule.name for finding in report.findings] == ["console", "unreadable"]
    assert (report.files, report.workflows) == (2, 1)


@pytest.mark.parametrize(
    "content", [b"", b"\xef\xbb\xbfx = 1\n", b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", b'x = "\\d"\n']
)
def test_what_python_reads_is_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.py").write_bytes(content)
    assert check([tmp_path]).findings == ()


def test_columns_count_characters(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(GOOD + '    "größe"; print(2)\n', encoding="utf-8")
    assert [(finding.line, finding.column) for finding in check([tmp_path]).findings] == [(5, 5), (6, 14)]


def test_workflow_code_that_is_nested_too_deeply_is_a_finding(tmp_path: Path) -> None:
    deep = "x" + ".x" * 900
    (tmp_path / "flow.py").write_text(GOOD + f"    {deep}\n    y = {'f(' * 90}{')' * 90}\n", encoding="utf-8")
    names = {finding.rule.name for finding in check([tmp_path]).findings}
    assert names <= {"console", "unreadable"}
    assert names


def test_links_in_a_circle_and_to_nowhere(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "flow.py").write_text(GOOD, encoding="utf-8")
    (inner / "up").symlink_to(tmp_path, target_is_directory=True)
    (inner / "again.py").symlink_to(inner / "flow.py")
    (inner / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (inner / "self.py").symlink_to(inner / "self.py")
    report = check([tmp_path, tmp_path / "a", inner / "flow.py"])
    assert (report.files, len(report.findings)) == (1, 1)


def test_imports_names_and_classes_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from b import *\nfrom b import x, A\nclass B(A): pass\ny = x\n", encoding="utf-8")
    (tmp_path / "b.py").write_text(
        "from a import *\nfrom a import y as x, B\nclass A(B): pass\nz = z\n", encoding="utf-8"
    )
    flow = GOOD + "    x(); B().x.y.z(); A().go(); unknown(); z(); p = p.q; p()\n    flow(ctx)\n"
    (tmp_path / "flow.py").write_text("from a import *\nfrom b import z\n" + flow, encoding="utf-8")
    assert [finding.rule.name for finding in check([tmp_path]).findings] == ["console"]


def test_a_path_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="no file or folder"):
        check([tmp_path / "nowhere"])
    with pytest.raises(InvalidValue, match="no Python file"):
        check([tmp_path])


def test_folders_that_are_not_of_the_project_are_left_out_unless_given(tmp_path: Path) -> None:
    for name in (".venv/lib", "node_modules", "src"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "flow.py").write_text(GOOD, encoding="utf-8")
    assert check([tmp_path]).files == 1
    assert check([tmp_path / ".venv" / "lib"]).files == 1


@pytest.mark.slow
@pytest.mark.parametrize("package", [asyncio, json, email], ids=lambda package: package.__name__)
def test_every_function_of_the_standard_library_can_be_read(package: ModuleType) -> None:
    """As if each were a workflow: real code of every kind."""
    folder = Path(str(package.__file__)).parent
    modules = [Module(path, path.name) for path in sorted(folder.rglob("*.py"))]
    resolver = Resolver(Project(modules))
    reader, count = Reader(resolver), 0
    for module in modules:
        for node in module.tree.body:
            functions = []
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions = [Function(module.scope, node, node.name)]
            elif isinstance(node, ast.ClassDef):
                of = Class(module.scope, node, node.name)
                functions = [Function(module.scope, method, name, of, of) for name, method in methods(of)]
            for function in functions:
                for kind in Kind:
                    reader.read(function, kind)
                    count += 1
    assert count > 40
