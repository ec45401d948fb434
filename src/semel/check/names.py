"""Scopes: which names a module, a function or a comprehension binds, and to what."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from semel.check.source import Module
from semel.check.values import Class

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Scoped = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef | Comprehension
BUILTINS = frozenset(vars(builtins))


@dataclass(frozen=True, slots=True)
class Imported:
    """`name` is dotted; `package` is where a relative import begins."""

    name: str
    package: tuple[str, ...] | None
    line: int


@dataclass(frozen=True, slots=True)
class Defined:
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    line: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """`unpacked`: the name is one of several on the left."""

    value: ast.expr
    line: int
    unpacked: bool = False


@dataclass(frozen=True, slots=True)
class Annotated:
    annotation: ast.expr
    line: int


@dataclass(frozen=True, slots=True)
class Opaque:
    """Bound, and nothing is known: a parameter, a loop variable, an exception."""

    line: int


Binding = Imported | Defined | Assigned | Annotated | Opaque


class Scope:
    """Names that belong together. A class is no scope to its methods, as in Python."""

    def __init__(self, module: Module, node: Scoped | None, parent: Scope | None, qualname: str) -> None:
        self.module = module
        self.node = node
        self.parent = parent
        self.qualname = qualname
        self.stars: list[Imported] = []
        self.globals: set[str] = set()
        self.receiver: Class | None = None
        self.home: Class | None = None
        self._children: dict[tuple[int, int], Scope] = {}

    @cached_property
    def bindings(self) -> dict[str, list[Binding]]:
        """Every name that is bound here, with each of its bindings in the order of the lines."""
        found: dict[str, list[Binding]] = {}
        for name, binding in self._bound():
            if name not in self.globals:
                found.setdefault(name, []).append(binding)
        for name in self.globals:
            found.pop(name, None)
        return found

    def inner(self, node: Scoped, name: str, receiver: Class | None = None, home: Class | None = None) -> Scope:
        """The scope of a function, a class body or a comprehension that stands here."""
        key = (id(node), id(receiver.node) if receiver else 0)
        if key not in self._children:
            child = Scope(self.module, node, self, name)
            child.receiver, child.home = receiver, home
            self._children[key] = child
        return self._children[key]

    def forget(self) -> None:
        """Let go of the scopes inside."""
        children, self._children = self._children, {}
        for child in children.values():
            child.forget()

    def lookup(self, name: str, line: int) -> tuple[Scope, list[Binding]] | None:
        """Where the name is bound, likeliest binding first: the last one above the line where it is used."""
        scope: Scope | None = self
        while scope is not None:
            if bound := scope.bindings.get(name):
                if scope is not self or len(bound) == 1:
                    return scope, bound[::-1]
                above = [b for b in bound if b.line <= line]
                return scope, above[::-1] or bound
            scope = scope.parent
        return None

    @cached_property
    def written_to_self(self) -> dict[str, list[tuple[Binding, ast.FunctionDef | ast.AsyncFunctionDef]]]:
        """For a class body: what its methods assign to attributes of their first parameter."""
        found: dict[str, list[tuple[Binding, ast.FunctionDef | ast.AsyncFunctionDef]]] = {}
        for bindings in self.bindings.values():
            for method in bindings:
                if isinstance(method, Defined) and not isinstance(method.node, ast.ClassDef):
                    for name, binding in _attributes(method.node):
                        found.setdefault(name, []).append((binding, method.node))
        return found

    @property
    def top(self) -> Scope:
        """The module's scope."""
        return self.module.scope

    def _bound(self) -> Iterator[tuple[str, Binding]]:
        match self.node:
            case None:
                yield from self._in(self.module.tree.body)
            case ast.ClassDef():
                yield from self._in(self.node.body)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _parameters(self.node.args)
                yield from self._in(self.node.body)
            case ast.Lambda():
                yield from _parameters(self.node.args)
            case _:
                for generator in self.node.generators:
                    yield from _targets(generator.target, None)

    def _in(self, body: list[ast.stmt]) -> Iterator[tuple[str, Binding]]:
        todo: list[ast.AST] = list(reversed(body))
        while todo:
            node = todo.pop()
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    yield node.name, Defined(node, node.lineno)
                    continue
                case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                    yield from _walruses(node)
                    continue
                case ast.Import():
                    yield from _imports(node)
                case ast.ImportFrom():
                    yield from self._imports_from(node)
                case ast.Global() | ast.Nonlocal():
                    self.globals.update(node.names)
                case ast.Assign():
                    for target in node.targets:
                        yield from _targets(target, node.value)
                case ast.AnnAssign(target=ast.Name(id=name)):
                    yield name, Annotated(node.annotation, node.lineno)
                    if node.value is not None:
                        yield name, Assigned(node.value, node.lineno)
                case ast.NamedExpr(target=ast.Name(id=name)):
                    yield name, Assigned(node.value, node.lineno)
                case ast.For() | ast.AsyncFor():
                    yield from _targets(node.target, None)
                case ast.withitem(optional_vars=ast.expr() as target):
                    yield from _targets(target, node.context_expr)
                case ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name):
                    yield name, Opaque(node.lineno)
                case ast.MatchStar(name=str() as name) | ast.MatchMapping(rest=str() as name):
                    yield name, Opaque(node.lineno)
                case _:
                    pass
            todo.extend(reversed(list(ast.iter_child_nodes(node))))

    def _imports_from(self, node: ast.ImportFrom) -> Iterator[tuple[str, Binding]]:
        package = None
        if node.level:
            up = node.level - 1
            package = self.module.package[: len(self.module.package) - up]
        for alias in node.names:
            name = ".".join(filter(None, (node.module, alias.name if alias.name != "*" else None)))
            imported = Imported(name, package, node.lineno)
            if alias.name == "*":
                self.stars.append(imported)
            else:
                yield alias.asname or alias.name, imported


def _imports(node: ast.Import) -> Iterator[tuple[str, Binding]]:
    for alias in node.names:
        if alias.asname:
            yield alias.asname, Imported(alias.name, None, node.lineno)
        else:
            first = alias.name.partition(".")[0]
            yield first, Imported(first, None, node.lineno)


def _parameters(args: ast.arguments) -> Iterator[tuple[str, Binding]]:
    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
        yield arg.arg, Annotated(arg.annotation, arg.lineno) if arg.annotation else Opaque(arg.lineno)
    for rest in (args.vararg, args.kwarg):
        if rest is not None:
            yield rest.arg, Opaque(rest.lineno)


def _targets(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, Binding]]:
    match target:
        case ast.Name(id=name):
            yield name, Opaque(target.lineno) if value is None else Assigned(value, target.lineno)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            matching = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(parts)
            for at, part in enumerate(parts):
                if matching and isinstance(value, ast.Tuple | ast.List):
                    yield from _targets(part, value.elts[at])
                elif isinstance(part, ast.Name) and value is not None:
                    yield part.id, Assigned(value, part.lineno, unpacked=True)
                else:
                    yield from _targets(part, None)
        case ast.Starred(value=inner):
            yield from _targets(inner, None)
        case _:
            pass


def _walruses(node: ast.AST) -> Iterator[tuple[str, Binding]]:
    """`:=` in a comprehension binds in the function around it."""
    for part in ast.walk(node):
        if isinstance(part, ast.NamedExpr) and isinstance(part.target, ast.Name):
            yield part.target.id, Assigned(part.value, part.lineno)


def _attributes(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, Binding]]:
    receiver = next((arg.arg for arg in (*method.args.posonlyargs, *method.args.args)), None)
    for node in ast.walk(method):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=held), attr=attr)], value=value):
                if held == receiver:
                    yield attr, Assigned(value, node.lineno)
            case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id=held), attr=attr), value=value):
                if held == receiver:
                    if value is not None:
                        yield attr, Assigned(value, node.lineno)
                    yield attr, Annotated(node.annotation, node.lineno)
