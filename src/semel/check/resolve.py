"""From an expression to what it stands for: through imports, aliases, attributes, objects and annotations."""

from __future__ import annotations

import ast
from dataclasses import replace

from semel.check.classes import attribute_sources, is_property, method_of
from semel.check.effects import CALLS, PATH_STAYS_PATH, ROOMS, SEEDED
from semel.check.names import BUILTINS, Annotated, Assigned, Binding, Defined, Imported, Opaque, Scope
from semel.check.project import Project
from semel.check.values import Class, File, Function, Instance, Outside, Value

DEEPEST = 24
"""Aliases of aliases; beyond this, or in a circle, nothing is known."""

_SEE_THROUGH = frozenset({"typing.Optional", "typing.Annotated", "typing.Final", "typing.ClassVar", "typing.Required"})
_ENTERED = frozenset({"contextlib.closing", "contextlib.aclosing", "contextlib.nullcontext", "typing.cast"})


class Resolver:
    """Answers `what is this?` for one project. None: nothing is known."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._depth = 0
        self._known: dict[tuple[int, int], Value | None] = {}
        self._texts: dict[str, ast.expr | None] = {}  # kept: what is known is known by the identity of nodes
        self._assigned: dict[tuple[int, int], Value | None] = {}

    def resolve(self, node: ast.expr, scope: Scope) -> Value | None:
        """What the expression stands for."""
        key = (id(node), id(scope))
        if key in self._known:
            return self._known[key]
        if self._depth > DEEPEST:
            return None
        self._depth += 1
        try:
            self._known[key] = self._resolve(node, scope)
        finally:
            self._depth -= 1
        return self._known[key]

    def _resolve(self, node: ast.expr, scope: Scope) -> Value | None:
        match node:
            case ast.Name(id=name):
                return self._name(name, node.lineno, scope)
            case ast.Attribute(value=inner, attr=attr):
                return self.attribute(self.resolve(inner, scope), attr)
            case ast.Call():
                return self._called(node, scope)
            case ast.Await(value=inner) | ast.NamedExpr(value=inner):
                return self.resolve(inner, scope)
            case ast.Lambda():
                return Function(scope, node, f"{scope.qualname}.<lambda>".lstrip("."))
            case ast.IfExp(body=one, orelse=other):
                return self.resolve(one, scope) or self.resolve(other, scope)
            case ast.BoolOp(values=values):
                known = (self.resolve(value, scope) for value in values)
                return next((value for value in known if value is not None), None)
            case ast.BinOp(left=left, op=ast.Div()):
                found = self.resolve(left, scope)
                return found if isinstance(found, Outside) and found.name == "pathlib.Path()" else None
        return None

    def _name(self, name: str, line: int, scope: Scope) -> Value | None:
        found = scope.lookup(name, line)
        if found is None:
            return self._starred(name, scope.top) or (Outside(f"builtins.{name}") if name in BUILTINS else None)
        where, bindings = found
        if where is scope and len(bindings) > 1 and isinstance(bindings[0], Opaque):
            return None  # bound anew: what it was before does not count
        for binding in bindings:
            value = self._binding(name, binding, where)
            if value is not None:
                return replace(value, made_here=False) if isinstance(value, Outside) and where.parent is None else value
        return self._receiver(name, where)

    def _receiver(self, name: str, scope: Scope) -> Value | None:
        """`self` or `cls`, if that is what the name is."""
        if scope.receiver is None or not isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        first = [*scope.node.args.posonlyargs, *scope.node.args.args][:1]
        if not first or first[0].arg != name:
            return None
        kinds = {decorator.id for decorator in scope.node.decorator_list if isinstance(decorator, ast.Name)}
        if "staticmethod" in kinds:
            return None
        return scope.receiver if "classmethod" in kinds or scope.node.name == "__new__" else Instance(scope.receiver)

    def _binding(self, name: str, binding: Binding, scope: Scope) -> Value | None:
        match binding:
            case Imported():
                return self.imported(binding, scope)
            case Defined(node=ast.ClassDef() as node):
                return Class(scope, node, qualified(scope, node.name))
            case Defined(node=ast.FunctionDef() | ast.AsyncFunctionDef() as node):
                return Function(scope, node, qualified(scope, node.name))
            case Assigned(value=value, unpacked=False):
                # Once each: names that are assigned from each other are many ways to the same end, or a circle.
                key = (id(value), id(scope))
                if key not in self._assigned:
                    self._assigned[key] = None
                    self._assigned[key] = self.resolve(value, scope)
                return self._assigned[key]
            case Annotated(annotation=annotation):
                return self.annotated(annotation, scope)
        return None

    def imported(self, binding: Imported, scope: Scope) -> Value | None:
        """What an import brings in: something of the project, or a dotted name."""
        parts = tuple(filter(None, binding.name.split(".")))
        if binding.package is None:
            return self._dotted(parts, scope)
        for end in range(len(parts), -1, -1):
            if (module := self.project.at(binding.package + parts[:end])) is not None:
                return self._members(File(module), parts[end:])
        return None

    def _dotted(self, parts: tuple[str, ...], scope: Scope) -> Value | None:
        for end in range(len(parts), 0, -1):
            if (module := self.project.imported(parts[:end], scope.module)) is not None:
                return self._members(File(module), parts[end:])
        return Outside(".".join(parts))

    def _members(self, value: Value | None, names: tuple[str, ...]) -> Value | None:
        for name in names:
            value = self.attribute(value, name)
        return value

    def _starred(self, name: str, top: Scope) -> Value | None:
        """A name that only a star import can have brought."""
        if not top.bindings and not top.stars:
            return None
        for star in top.stars:
            source = self.imported(star, top)
            if isinstance(source, File):
                if (found := self.attribute(source, name)) is not None:
                    return found
            elif isinstance(source, Outside):
                dotted = f"{source.name}.{name}"
                if dotted in CALLS or dotted in SEEDED or (source.name in ROOMS and name not in BUILTINS):
                    return Outside(dotted)
        return None

    def attribute(self, value: Value | None, attr: str) -> Value | None:
        """`value.attr`."""
        if self._depth > DEEPEST:
            return None
        self._depth += 1
        try:
            match value:
                case Outside(name=name) if name == "pathlib.Path()" and attr == "parent":
                    return value
                case Outside(name=name):
                    return replace(value, name=f"{name}.{attr}")
                case File(module=module):
                    top = module.scope
                    if attr in top.bindings:
                        return self._name(attr, top.bindings[attr][-1].line, top)
                    below = self.project.at((*module.parts, attr)) if module.is_package else None
                    return File(below) if below is not None else self._starred(attr, top)
                case Class() | Instance():
                    return self._member(value, attr)
                case _:
                    return None
        finally:
            self._depth -= 1

    def _member(self, value: Class | Instance, attr: str) -> Value | None:
        of = value if isinstance(value, Class) else value.of
        above = value.above if isinstance(value, Instance) else None
        if (method := method_of(self, of, attr, above)) is not None:
            if isinstance(value, Class) or not is_property(method) or isinstance(method.node, ast.Lambda):
                return method
            return self.annotated(method.node.returns, method.scope) if method.node.returns is not None else None
        for source, scope in attribute_sources(self, of, attr):
            found = self._binding(attr, source, scope)
            if found is not None:
                at_import = isinstance(scope.node, ast.ClassDef)
                return replace(found, made_here=False) if isinstance(found, Outside) and at_import else found
        return None

    def getter(self, node: ast.Attribute, scope: Scope) -> Function | None:
        """The property that looking at this attribute calls."""
        held = self.resolve(node.value, scope)
        method = method_of(self, held.of, node.attr, held.above) if isinstance(held, Instance) else None
        return method if method is not None and is_property(method) else None

    def _called(self, node: ast.Call, scope: Scope) -> Value | None:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            around: Scope | None = scope
            while around is not None and around.home is None:
                around = around.parent
            if around is None or around.home is None or around.receiver is None:
                return None
            return Instance(around.receiver, above=around.home)
        callee = self.resolve(node.func, scope)
        match callee:
            case Class():
                return Instance(callee)
            case Function(node=ast.FunctionDef(returns=ast.expr() as returns) as made):
                return self._returned(callee, made, returns)
            case Function(node=ast.AsyncFunctionDef(returns=ast.expr() as returns)):
                return self.annotated(returns, callee.scope)
            case Outside(name="functools.partial" | "functools.partialmethod") if node.args:
                return self.resolve(node.args[0], scope)
            case Outside(name="builtins.getattr") if len(node.args) > 1:
                attr = node.args[1]
                known = isinstance(attr, ast.Constant) and isinstance(attr.value, str)
                return self.attribute(self.resolve(node.args[0], scope), ast.literal_eval(attr)) if known else None
            case Outside(name=name) if name in _ENTERED and node.args:
                return self.resolve(node.args[-1], scope)
            case Outside(name=name):
                path, _, method = name.rpartition(".")
                if path == "pathlib.Path()" and method in PATH_STAYS_PATH:
                    return Outside(path, made_here=True)
                return Outside(f"{name}()", made_here="()" not in name or callee.made_here)
        return None

    def _returned(self, callee: Function, node: ast.FunctionDef, returns: ast.expr) -> Value | None:
        if isinstance(returns, ast.Name) and returns.id == "Self" and callee.receiver is not None:
            return Instance(callee.receiver)
        return self.annotated(returns, callee.scope)

    def annotated(self, annotation: ast.expr, scope: Scope) -> Value | None:
        """An object of the annotated type."""
        match annotation:
            case ast.Constant(value=str() as text):
                parsed = self._parsed(text.strip())
                return self.annotated(parsed, scope) if parsed is not None else None
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self.annotated(left, scope) or self.annotated(right, scope)
            case ast.Subscript(value=outer, slice=inner):
                found = self.resolve(outer, scope)
                if isinstance(found, Outside) and found.name in _SEE_THROUGH:
                    first = inner.elts[0] if isinstance(inner, ast.Tuple) and inner.elts else inner
                    return self.annotated(first, scope)
                return _object(found)
            case ast.Name() | ast.Attribute():
                return _object(self.resolve(annotation, scope))
        return None

    def _parsed(self, annotation: str) -> ast.expr | None:
        if annotation not in self._texts:
            try:
                self._texts[annotation] = ast.parse(annotation, mode="eval").body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                self._texts[annotation] = None
        return self._texts[annotation]

    def function_scope(self, function: Function) -> Scope:
        """The scope inside a function."""
        return function.scope.inner(function.node, function.name, function.receiver, function.home)


def _object(found: Value | None) -> Value | None:
    match found:
        case Class():
            return Instance(found)
        case Outside(name=name) if not name.endswith("()"):
            return Outside(f"{name}()")
    return None


def qualified(scope: Scope, name: str) -> str:
    """The name with those of the functions around it."""
    return f"{scope.qualname}.{name}" if scope.qualname else name
