"""Functions that are handed on: which of them are run by the workflow, and which by a task or a step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from semel.check.inside import own
from semel.check.names import Scope
from semel.check.resolve import Resolver
from semel.check.roots import TEMPORAL, is_context
from semel.check.values import Class, Function, Outside, Value
from semel.check.words import words

_RECORDED = frozenset({"step", "transaction", "execute_task", "execute_activity", "execute_local_activity"})
_CALLERS = frozenset(f"builtins.{name}" for name in ("map", "filter", "sorted", "min", "max", "iter"))
_CALLING_ROOMS = ("itertools.", "functools.reduce", "toolz.", "more_itertools.")
_CALL_THEIR_ARGUMENTS = frozenset(
    f"{TEMPORAL}{name}"
    for name in words("""
        wait_condition set_signal_handler set_query_handler set_update_handler set_dynamic_signal_handler
        set_dynamic_query_handler set_dynamic_update_handler
    """)
)
_CALL_LATER = dict.fromkeys(("add_done_callback", "call_soon", "push_async_callback", "callback"), 0) | {
    "call_later": 1,
    "call_at": 1,
}
"""Methods that call one of their arguments, by its place; those after it are handed to it."""
_ELSEWHERE = (
    "asyncio.",
    "threading.",
    "multiprocessing.",
    "concurrent.",
    "temporalio.",
    "semel.",
    "_thread.",
    "anyio.",
)


def called_arguments(
    call: ast.Call, callee: Value | None, scope: Scope, resolver: Resolver
) -> Iterator[tuple[ast.expr, Function | Outside]]:
    """The arguments of a call that are functions, and will be run in the workflow by what is called."""
    if _is_recorded(call, callee, scope, resolver):
        return
    arguments: list[tuple[int | str, ast.expr]] = [*enumerate(call.args)]
    arguments += [(keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg is not None]
    for place, argument in arguments:
        value = resolver.resolve(argument, scope) if _may_be_function(argument) else None
        if not isinstance(value, Function | Outside):
            continue
        if isinstance(value, Outside) and (value.name.endswith("()") or place == "default"):
            continue
        later = isinstance(call.func, ast.Attribute) and _CALL_LATER.get(call.func.attr) == place
        if _is_run(value, place, callee, resolver) or (later and not isinstance(callee, Function)):
            yield argument, value


def handed_over(call: ast.Call, scope: Scope, resolver: Resolver) -> bool:
    """Whether the first argument is the name of a function that is run elsewhere: to name it does nothing."""
    first = call.args[0] if call.args else None
    return isinstance(first, ast.Name | ast.Attribute) and _is_recorded(
        call, resolver.resolve(call.func, scope), scope, resolver
    )


def _may_be_function(argument: ast.expr) -> bool:
    return isinstance(argument, ast.Name | ast.Attribute | ast.Lambda) or (
        isinstance(argument, ast.Call) and ast.unparse(argument.func).endswith("partial")
    )


def _is_recorded(call: ast.Call, callee: Value | None, scope: Scope, resolver: Resolver) -> bool:
    """Whether what is handed over runs outside of the workflow, with its result recorded."""
    if isinstance(call.func, ast.Attribute):
        held = call.func.value
        if is_context(resolver.resolve(held, scope), held):
            return True
        if callee is None and call.func.attr in (*_RECORDED, "run_in_executor"):
            return True
    return False


def _is_run(value: Function | Outside, place: int | str, callee: Value | None, resolver: Resolver) -> bool:
    match callee:
        case Function():
            return _calls_parameter(callee, place, resolver)
        case Class():
            return False  # kept for later: it is read where it is called, if that can be seen
        case Outside(name=name):
            if name in _CALL_THEIR_ARGUMENTS or name in _CALLERS or name.startswith(_CALLING_ROOMS):
                return True
            return not name.startswith((*_ELSEWHERE, "functools.")) and _is_local(value)
        case None:
            return _is_local(value)
    return False


def _is_local(value: Function | Outside) -> bool:
    """A lambda, or a function inside of the function: it was written for this place."""
    return isinstance(value, Function) and (isinstance(value.node, ast.Lambda) or value.scope.node is not None)


def _calls_parameter(callee: Function, place: int | str, resolver: Resolver) -> bool:
    """Whether a function of the project calls this parameter of its own."""
    positional = [*callee.node.args.posonlyargs, *callee.node.args.args]
    if callee.receiver is not None:
        positional = positional[1:]
    if isinstance(place, int):
        if place >= len(positional):
            return False
        name = positional[place].arg
    else:
        name = place
    body = callee.node.body if isinstance(callee.node.body, list) else [callee.node.body]
    return any(isinstance(node, ast.Call) and _runs_name(node, name) for node in own(body))


def _runs_name(call: ast.Call, name: str) -> bool:
    """`name(...)`, or `map(name, ...)` and its like."""
    if not isinstance(call.func, ast.Name):
        return False
    handed = [*call.args, *(keyword.value for keyword in call.keywords)]
    return call.func.id == name or (
        f"builtins.{call.func.id}" in _CALLERS
        and any(isinstance(argument, ast.Name) and argument.id == name for argument in handed)
    )
