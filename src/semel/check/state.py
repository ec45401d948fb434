"""State that outlives a run: names of a module, things at module level, attributes of classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from semel.check.classes import body_scope, lineage
from semel.check.inside import own
from semel.check.names import Assigned, Imported, Scope
from semel.check.resolve import Resolver
from semel.check.rules import GLOBAL_STATE, Rule
from semel.check.values import Class, File, Outside
from semel.check.words import words

Broken = tuple[ast.AST, Rule, str]

_CHANGES = words(
    """
    append extend insert remove pop clear sort reverse add discard update setdefault popitem appendleft popleft
    extendleft subtract intersection_update difference_update symmetric_difference_update move_to_end
    """
)
_CHANGING = (ast.Global, ast.Assign, ast.Delete, ast.AugAssign, ast.AnnAssign, ast.Call)
_MADE_BY = words(
    """
    builtins.list builtins.dict builtins.set builtins.bytearray collections.defaultdict collections.deque
    collections.Counter collections.OrderedDict
    """
)


def changed_globals(
    function: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope, resolver: Resolver
) -> Iterator[Broken]:
    """Every place in a function that changes what is not its own."""
    nodes = [node for node in own(function.body) if isinstance(node, _CHANGING)]
    declared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    for node in nodes:
        match node:
            case ast.Global(names=names):
                yield node, GLOBAL_STATE, f"global {', '.join(names)}"
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                yield from _stored(targets, scope, resolver, declared)
            case ast.AugAssign(target=target):
                yield from _stored([target], scope, resolver, declared)
            case ast.AnnAssign(target=target, value=ast.expr()):
                yield from _stored([target], scope, resolver, declared)
            case ast.Call(func=ast.Attribute(value=held, attr=attr)) if attr in _CHANGES:
                if (name := _shared(held, scope, resolver)) is not None and name not in declared:
                    yield node, GLOBAL_STATE, f"{name}.{attr}()"
            case ast.Call(func=ast.Name(id="next"), args=[held, *_]):
                if (name := _counter(held, scope, resolver)) is not None:
                    yield node, GLOBAL_STATE, f"next({name})"


def _stored(targets: list[ast.expr], scope: Scope, resolver: Resolver, declared: set[str]) -> Iterator[Broken]:
    for target in targets:
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                yield from _stored(parts, scope, resolver, declared)
            case ast.Subscript(value=held):
                if (name := _shared(held, scope, resolver)) is not None and name not in declared:
                    yield target, GLOBAL_STATE, f"{name}[...]"
            case ast.Attribute(value=held, attr=attr):
                value = resolver.resolve(held, scope)
                if isinstance(value, Class | File):
                    yield target, GLOBAL_STATE, f"{ast.unparse(held)}.{attr} ="


def _shared(node: ast.expr, scope: Scope, resolver: Resolver) -> str | None:
    """The name of a list, dict or set at the top of a module, or in a class body; None if it is not one."""
    made = _made_at_top(node, scope, resolver)
    if made is None:
        return None
    value, where = made
    match value:
        case ast.List() | ast.Dict() | ast.Set() | ast.ListComp() | ast.DictComp() | ast.SetComp():
            return ast.unparse(node)
        case ast.Call(func=func):
            callee = resolver.resolve(func, where)
            if isinstance(callee, Outside) and callee.name in _MADE_BY:
                return ast.unparse(node)
    return None


def _counter(node: ast.expr, scope: Scope, resolver: Resolver) -> str | None:
    made = _made_at_top(node, scope, resolver)
    if made is None:
        return None
    value, where = made
    callee = resolver.resolve(value.func, where) if isinstance(value, ast.Call) else None
    return ast.unparse(node) if isinstance(callee, Outside) and callee.name.startswith("itertools.") else None


def _made_at_top(node: ast.expr, scope: Scope, resolver: Resolver) -> tuple[ast.expr, Scope] | None:
    """What a name of a module was assigned, at its top or in an imported one of the project."""
    match node:
        case ast.Name(id=name):
            found = scope.lookup(name, node.lineno)
            if found is None or found[0].parent is not None:
                return None
            where, bindings = found
        case ast.Attribute(value=held, attr=name):
            value = resolver.resolve(held, scope)
            if isinstance(value, Class):
                return _in_class(value, name, resolver)
            if not isinstance(value, File):
                return None
            where, bindings = value.module.scope, value.module.scope.bindings.get(name, [])
        case _:
            return None
    assigned = [binding for binding in bindings if isinstance(binding, Assigned)]
    if assigned:
        return assigned[0].value, where
    return _imported(name, where, resolver)


def _in_class(of: Class, name: str, resolver: Resolver) -> tuple[ast.expr, Scope] | None:
    """`Shop.open`, made in the body of the class: one for all of its objects."""
    for each in lineage(resolver, of):
        body = body_scope(each)
        for binding in body.bindings.get(name, []):
            if isinstance(binding, Assigned):
                return binding.value, body
    return None


def _imported(name: str, where: Scope, resolver: Resolver) -> tuple[ast.expr, Scope] | None:
    """`from shop.state import CACHE`: the list is at the top of the other module."""
    for binding in where.bindings.get(name, []):
        if isinstance(binding, Imported):
            room, _, last = binding.name.rpartition(".")
            source = resolver.imported(Imported(room, binding.package, binding.line), where)
            if isinstance(source, File):
                made = source.module.scope.bindings.get(last, [])
                found = [b for b in made if isinstance(b, Assigned)]
                if found:
                    return found[0].value, source.module.scope
    return None
