"""Excepts that are too broad: they swallow cancellation and the engine's own signals."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from semel.check.inside import own, waits
from semel.check.names import Scope
from semel.check.resolve import Resolver
from semel.check.rules import BROAD_EXCEPT, Rule
from semel.check.values import Class, Outside

_EVERYTHING = "builtins.BaseException"
_CANCELLED = frozenset(
    {"asyncio.CancelledError", "asyncio.exceptions.CancelledError", "concurrent.futures.CancelledError"}
)


def swallowed(
    node: ast.Try | ast.TryStar | ast.With | ast.AsyncWith, scope: Scope, resolver: Resolver
) -> Iterator[tuple[ast.AST, Rule, str]]:
    """Handlers, `contextlib.suppress` and ways out of `finally` that drop more than errors."""
    if isinstance(node, ast.With | ast.AsyncWith):
        for item in node.items:
            if (words := _suppressed(item.context_expr, scope, resolver)) and _in_danger(
                node.body, words, scope, resolver
            ):
                yield item.context_expr, BROAD_EXCEPT, f"suppress({words})"
        return
    for handler in node.handlers:
        words = _caught(handler.type, scope, resolver)
        if words is None or any(isinstance(part, ast.Raise) for part in own(handler.body)):
            continue
        if _in_danger(node.body, words, scope, resolver):
            yield handler, BROAD_EXCEPT, f"except {words}".strip()
    if waits([*node.body, *node.handlers]):
        for leaves in _leaving(node.finalbody):
            yield leaves, BROAD_EXCEPT, f"{type(leaves).__name__.lower()} in finally"


def _leaving(body: Sequence[ast.AST], loops: bool = False) -> Iterator[ast.AST]:
    """What leaves a `finally` and drops what was raised: `return`, and what leaves a loop around it."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
                continue
            case ast.Return():
                yield node
            case ast.Break() | ast.Continue() if not loops:
                yield node
        inside = loops or isinstance(node, ast.For | ast.AsyncFor | ast.While)
        yield from _leaving(list(ast.iter_child_nodes(node)), inside)


def _suppressed(node: ast.expr, scope: Scope, resolver: Resolver) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    callee = resolver.resolve(node.func, scope)
    if not isinstance(callee, Outside) or callee.name != "contextlib.suppress":
        return None
    return next(filter(None, (_caught(argument, scope, resolver) for argument in node.args)), None)


def _caught(node: ast.expr | None, scope: Scope, resolver: Resolver) -> str | None:
    """What of it is too broad, as it is written; None if nothing is."""
    match node:
        case None:
            return ""
        case ast.Tuple(elts=parts):
            return next((words for part in parts if (words := _caught(part, scope, resolver)) is not None), None)
    value = resolver.resolve(node, scope)
    if isinstance(value, Outside) and (value.name == _EVERYTHING or value.name in _CANCELLED):
        return ast.unparse(node)
    return None


def _in_danger(body: list[ast.stmt], words: str, scope: Scope, resolver: Resolver) -> bool:
    """Whether something can be swallowed: a wait, or for the broadest a call of what is not known to be harmless."""
    if _awaits_what_it_cancelled(body, scope):
        return False
    if waits(body):
        return True
    return "Cancelled" not in words and any(_may_signal(node, scope, resolver) for node in own(body))


def _may_signal(node: ast.AST, scope: Scope, resolver: Resolver) -> bool:
    if not isinstance(node, ast.Call):
        return False
    callee = resolver.resolve(node.func, scope)
    if isinstance(callee, Outside):
        return callee.name.startswith(("semel.", "temporalio."))
    return not isinstance(callee, Class)


def _awaits_what_it_cancelled(body: list[ast.stmt], scope: Scope) -> bool:
    """`task.cancel()`, then `await task` and nothing else: the cancellation that is caught is the task's."""
    match body:
        case [ast.Expr(value=ast.Await(value=awaited))] | [ast.Assign(value=ast.Await(value=awaited))]:
            pass
        case _:
            return False
    node = scope.node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    text = ast.unparse(awaited)
    tasks = {text} | ({ast.unparse(arg) for arg in awaited.args} if isinstance(awaited, ast.Call) else set())
    return any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr == "cancel"
        and ast.unparse(part.func.value) in tasks
        for part in own(node.body)
    )
