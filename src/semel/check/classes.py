"""Classes of the project: the classes above them, their methods, and where their attributes come from."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from semel.check.names import Annotated, Binding, Defined, Scope
from semel.check.values import Class, Function

if TYPE_CHECKING:
    from semel.check.resolve import Resolver

_PROPERTIES = frozenset({"property", "cached_property", "functools.cached_property"})

MethodNode = ast.FunctionDef | ast.AsyncFunctionDef


def lineage(resolver: Resolver, of: Class) -> list[Class]:
    """The class and those above it that are in the project, nearest first."""
    found: list[Class] = []
    todo = [of]
    while todo:
        each = todo.pop(0)
        if any(each.node is known.node for known in found):
            continue
        found.append(each)
        for above in each.node.bases:
            outer = above.value if isinstance(above, ast.Subscript) else above  # Generic[T]
            value = resolver.resolve(outer, each.scope)
            if isinstance(value, Class):
                todo.append(value)
    return found


def body_scope(of: Class) -> Scope:
    """The names of the class body."""
    return of.scope.inner(of.node, of.name)


def methods(of: Class) -> Iterator[tuple[str, MethodNode]]:
    """The functions in the class body."""
    for name, bindings in body_scope(of).bindings.items():
        for binding in bindings:
            if isinstance(binding, Defined) and isinstance(binding.node, MethodNode):
                yield name, binding.node


def method_of(resolver: Resolver, of: Class, name: str, above: Class | None = None) -> Function | None:
    """The method that the name means on this class; with `above`, only in the classes above that one."""
    line = lineage(resolver, of)
    if above is not None:
        at = [known.node for known in line].index(above.node) if above.node in [k.node for k in line] else -1
        line = line[at + 1 :]
    for each in line:
        bindings = body_scope(each).bindings.get(name, [])
        for binding in reversed(bindings):
            if isinstance(binding, Defined) and isinstance(binding.node, MethodNode):
                return Function(each.scope, binding.node, f"{each.name}.{name}", of, each)
    return None


def given_fields(call: ast.Call | None, line: Sequence[Class]) -> set[str]:
    """The fields of a dataclass that a call gives by itself: by name, or in the order of the fields."""
    if call is None:
        return set()
    by_name = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
    plain = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
    if len(plain) < len(call.args) or any("__init__" in body_scope(each).bindings for each in line):
        return by_name  # which ones come in order is not to be seen
    fields = dict.fromkeys(
        name
        for each in reversed(line)
        for name, bindings in body_scope(each).bindings.items()
        if any(isinstance(binding, Annotated) for binding in bindings)
    )
    return by_name | set(list(fields)[: len(plain)])


def is_property(method: Function) -> bool:
    """Whether looking at the attribute calls it."""
    if isinstance(method.node, ast.Lambda):
        return False
    return any(ast.unparse(decorator) in _PROPERTIES for decorator in method.node.decorator_list)


def attribute_sources(resolver: Resolver, of: Class, name: str) -> Iterator[tuple[Binding, Scope]]:
    """What is assigned to an attribute: in the class body, or to `self` in a method."""
    for each in lineage(resolver, of):
        body = body_scope(each)
        for binding in body.bindings.get(name, []):
            yield binding, body
        for binding, node in body.written_to_self.get(name, []):
            yield binding, each.scope.inner(node, f"{each.name}.{node.name}", of, each)
