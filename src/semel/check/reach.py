"""From workflows through everything they call: each function is read once, by the shortest way."""

from __future__ import annotations

import ast
import contextlib
import gc
import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from semel.check import task_effects
from semel.check.allow import sieve
from semel.check.body import Reader
from semel.check.files import python_files
from semel.check.finding import Finding, Kind, Report
from semel.check.project import Project
from semel.check.resolve import Resolver
from semel.check.roots import Root, is_activity, roots, task_roots
from semel.check.rules import UNREADABLE
from semel.check.schedule_verbs import TELLTALES
from semel.check.source import Module
from semel.check.task_effects import has_key
from semel.check.values import Function

Progress = Callable[[int, int], None]


def check(paths: Iterable[str | Path], *, progress: Progress | None = None) -> Report:
    """Read the Python files under the paths and find what workflow code must not do. Nothing is imported or run.

    `progress` is told (files read, files in all). InvalidValue if a path leads to no Python file.
    """
    files = python_files(Path(path) for path in paths)
    parsed = itertools.count(1)
    on_parsed = (lambda: progress(next(parsed), len(files))) if progress is not None else None
    modules = [Module(real, shown, on_parsed) for real, shown in files]
    with _uncollected():
        try:
            return _check(modules)
        finally:
            for module in modules:
                module.forget()


def _check(modules: list[Module]) -> Report:
    resolver = Resolver(Project(modules))
    begun: list[Root] = []
    findings: list[Finding] = []
    for module in modules:
        try:
            begun += list(roots(module, resolver))
        except RecursionError:
            findings.append(_too_deep(module, 1))
    if any(word in module.raw for module in modules for word in (*TELLTALES, *task_effects.TELLTALES)):
        tasks = [root for module in modules for root in _roots_of_tasks(module, resolver)]
    else:
        tasks = []
    findings += _follow([*begun, *tasks], resolver)
    for module in modules:
        module.test()
        if module.trouble is not None:
            findings.append(_unreadable(module))
    left = sieve(findings, modules)
    left.sort(key=lambda finding: (finding.path, finding.line, finding.column, finding.rule.id))
    return Report(len(modules), len({root.workflow for root in begun}), tuple(left))


def _roots_of_tasks(module: Module, resolver: Resolver) -> list[Root]:
    with contextlib.suppress(RecursionError):  # told already
        return list(task_roots(module, resolver))
    return []


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector: trees have no circles, and walking them over and over takes most of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _follow(begun: Iterable[Root], resolver: Resolver) -> list[Finding]:
    """Breadth first, so that a chain is the shortest; of two ways to the same place the first is told."""
    reader = Reader(resolver)
    todo: deque[tuple[Function, tuple[str, ...], Root, bool]] = deque()
    todo.extend((root.function, (root.function.name,), root, is_activity(root.function, resolver)) for root in begun)
    seen: set[tuple[tuple[int, int], bool]] = set()
    found: dict[tuple[str, int, int, str], Finding] = {}
    while todo:
        function, chain, root, keyed = todo.popleft()
        keyed = root.kind is Kind.TASK and (keyed or has_key(function.node))
        if (function.same, keyed) in seen:
            continue
        seen.add((function.same, keyed))
        try:
            body = reader.read(function, root.kind, keyed)
        except RecursionError:
            finding = _too_deep(function.module, function.node.lineno)
            found.setdefault((finding.path, finding.line, finding.column, finding.rule.id), finding)
            continue
        for node, rule, subject in body.broken:
            place = _place(node, function.module)
            key = (function.module.shown, *place[:2], rule.id)
            if key not in found:
                found[key] = Finding(
                    function.module.shown, *place[:2], rule, subject, chain, root.kind, place[2], place[3]
                )
        todo.extend((called, (*chain, _link(called, function)), root, keyed) for called in body.runs)
    return list(found.values())


def _link(called: Function, caller: Function) -> str:
    """A function in a chain; of another file, with the name of that."""
    if called.module is not caller.module:
        return f"{called.module.name}.{called.name}"
    return called.name.removeprefix(f"{caller.name}.")


def _place(node: ast.AST, module: Module) -> tuple[int, int, int | None, int | None]:
    line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    end, end_offset = getattr(node, "end_lineno", None), getattr(node, "end_col_offset", None)
    until = None if end is None or end_offset is None else module.column(end, end_offset)
    return line, module.column(line, offset), end, until


def _unreadable(module: Module) -> Finding:
    words, line, column = module.trouble or ("", 1, 1)
    python = ".".join(map(str, sys.version_info[:2]))  # newer syntax is an error to an older one
    return Finding(module.shown, max(line, 1), max(column, 1), UNREADABLE, f"this file (Python {python}: {words})")


def _too_deep(module: Module, line: int) -> Finding:
    return Finding(module.shown, line, 1, UNREADABLE, "this code (nested too deeply)")
