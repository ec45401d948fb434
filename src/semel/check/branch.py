"""Branches that a replay of a workflow never takes, so that what stands in them may do anything."""

from __future__ import annotations

import ast

from semel.check.inside import own
from semel.check.names import Scope
from semel.check.resolve import Resolver
from semel.check.roots import TEMPORAL
from semel.check.values import Function, Outside

_ALWAYS = {
    f"{TEMPORAL}in_workflow": True,
    f"{TEMPORAL}unsafe.is_replaying": True,
    "typing.TYPE_CHECKING": False,
    "typing_extensions.TYPE_CHECKING": False,
}
_DEEPEST = 4


def taken(node: ast.If, scope: Scope, resolver: Resolver) -> tuple[list[ast.stmt], bool]:
    """The statements that a replay can come to, and whether it can also come to what follows."""
    answer = _answer(node.test, scope, resolver, 0)
    if answer is None:
        return [*node.body, *node.orelse], True
    branch = node.body if answer else node.orelse
    return branch, not (branch and isinstance(branch[-1], ast.Return | ast.Raise | ast.Continue | ast.Break))


def _answer(test: ast.expr, scope: Scope, resolver: Resolver, depth: int) -> bool | None:
    """What the test always gives in a replay; None if that depends."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            answer = _answer(operand, scope, resolver, depth)
            return None if answer is None else not answer
        case ast.Name() | ast.Attribute():
            value = resolver.resolve(test, scope)
            return _ALWAYS.get(value.name) if isinstance(value, Outside) else None
        case ast.Call(func=func, args=[], keywords=[]):
            value = resolver.resolve(func, scope)
            if isinstance(value, Outside):
                return _ALWAYS.get(value.name)
            if isinstance(value, Function) and depth < _DEEPEST:
                return _returned(value, resolver, depth + 1)
    return None


def _returned(function: Function, resolver: Resolver, depth: int) -> bool | None:
    """For a function that only asks: `return workflow.in_workflow()`, perhaps with `return False` on an error."""
    if isinstance(function.node, ast.Lambda):
        return None
    scope = resolver.function_scope(function)
    asked = [
        node.value
        for node in own(function.node.body)
        if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant)
    ]
    return _answer(asked[0], scope, resolver, depth) if len(asked) == 1 else None
