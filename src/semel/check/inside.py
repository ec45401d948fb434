"""What stands inside a piece of code, without the functions that it only defines."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from semel.check.names import Scope
from semel.check.resolve import Resolver
from semel.check.roots import TEMPORAL, is_context
from semel.check.values import Outside
from semel.check.words import words

_ASKS_ONLY = frozenset(
    f"{TEMPORAL}{name}"
    for name in words("""
        now random uuid4 time time_ns info memo memo_value instance patched deprecate_patch logger payload_converter
        in_workflow all_handlers_finished current_update_info get_current_details unsafe.is_replaying
    """)
)
"""What Temporal answers without a command."""


def own(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Every node, without those of functions, classes and lambdas inside."""
    todo = list(nodes)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            todo.extend(ast.iter_child_nodes(node))


def waits(nodes: Iterable[ast.AST]) -> bool:
    """Whether something is awaited here."""
    return any(
        isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith)
        or (isinstance(node, ast.comprehension) and node.is_async)
        for node in own(nodes)
    )


def commands(nodes: Iterable[ast.AST], scope: Scope, resolver: Resolver) -> bool:
    """Whether something here is written into the workflow's history: it waits, or it asks the engine."""
    listed = list(nodes)
    return waits(listed) or any(isinstance(node, ast.Call) and _asks(node, scope, resolver) for node in own(listed))


def asks_itself(call: ast.Call, scope: Scope, resolver: Resolver) -> bool:
    """Whether a call is a command, whose input a replay compares."""
    held = call.func.value if isinstance(call.func, ast.Attribute) else None
    if held is not None and isinstance(call.func, ast.Attribute) and is_context(resolver.resolve(held, scope), held):
        return call.func.attr not in ("now", "uuid4", "publish")
    callee = resolver.resolve(call.func, scope)
    return isinstance(callee, Outside) and _asks_temporal(callee.name)


def _asks_temporal(name: str) -> bool:
    logs = name.startswith(f"{TEMPORAL}logger.")
    return name.startswith(TEMPORAL) and "()" not in name and name not in _ASKS_ONLY and not logs


def _asks(call: ast.Call, scope: Scope, resolver: Resolver) -> bool:
    if isinstance(call.func, ast.Attribute):
        if call.func.attr in ("create_task", "ensure_future"):
            return True
        held = call.func.value
        if is_context(resolver.resolve(held, scope), held) and call.func.attr not in ("now", "uuid4"):
            return True
    if any(is_context(resolver.resolve(argument, scope), argument) for argument in call.args):
        return True
    callee = resolver.resolve(call.func, scope)
    return isinstance(callee, Outside) and (
        _asks_temporal(callee.name) or callee.name in ("asyncio.create_task", "asyncio.ensure_future")
    )
