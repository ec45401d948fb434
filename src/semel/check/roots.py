"""Where workflow code begins: workflows and entities of Semel, workflow classes of Temporal; and what is a task."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from semel.check.classes import lineage, method_of, methods
from semel.check.finding import Kind
from semel.check.names import Scope
from semel.check.resolve import Resolver, qualified
from semel.check.source import Module
from semel.check.values import Class, Function, Outside, Value

TEMPORAL = "temporalio.workflow."
_TEMPORAL_METHODS = frozenset(f"{TEMPORAL}{name}" for name in ("run", "signal", "query", "update", "init"))
_ENTITY_METHODS = frozenset(
    f"semel.{room}{name}" for room in ("", "define.handler.") for name in ("handler", "query", "idle")
)
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_WORDS = (b"workflow", b"semel", b"entity")

FunctionDef = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Root:
    """A function that an engine calls. Those of one workflow or entity share their `workflow`."""

    function: Function
    kind: Kind
    workflow: int


def roots(module: Module, resolver: Resolver) -> Iterator[Root]:
    """Every beginning of workflow code in a file, also inside functions, as tests have them."""
    if any(word in module.raw for word in _WORDS):
        yield from _within(module.tree.body, module.scope, resolver)


def task_roots(module: Module, resolver: Resolver) -> Iterator[Root]:
    """Every task of Semel in a file, also inside functions."""
    for node, scope in _functions(module.tree.body, module.scope, resolver) if b"task" in module.raw else ():
        function = Function(scope, node, qualified(scope, node.name))
        if is_task(function, resolver):
            yield Root(function, Kind.TASK, id(node))


def _functions(body: list[ast.stmt], scope: Scope, resolver: Resolver) -> Iterator[tuple[FunctionDef, Scope]]:
    """Functions, and those inside them, but for methods."""
    todo: list[ast.AST] = list(reversed(body))
    while todo:
        node = todo.pop()
        if isinstance(node, FunctionDef):
            yield node, scope
            inside = resolver.function_scope(Function(scope, node, qualified(scope, node.name)))
            yield from _functions(node.body, inside, resolver)
        elif not isinstance(node, ast.ClassDef):
            todo.extend(reversed([part for name in _BLOCKS for part in getattr(node, name, ())]))


def is_task(function: Function, resolver: Resolver) -> bool:
    """Whether an engine should have been asked to run it: a task of Semel, an activity of Temporal."""
    if isinstance(function.node, ast.Lambda):
        return False
    for decorator in function.node.decorator_list:
        bare = _bare(decorator)
        if isinstance(bare, ast.Attribute) and bare.attr == "task" and may_be_app(bare.value, function.scope, resolver):
            return True
    return is_activity(function, resolver)


def is_activity(function: Function, resolver: Resolver) -> bool:
    """Whether it is an activity of Temporal, which knows nothing of Semel's effect keys."""
    if isinstance(function.node, ast.Lambda):
        return False
    decorators = [_bare(decorator) for decorator in function.node.decorator_list]
    return any(_name_of(resolver.resolve(one, function.scope)) == "temporalio.activity.defn" for one in decorators)


def is_context(value: Value | None, node: ast.expr) -> bool:
    """Whether an expression is the `ctx` of a Semel workflow."""
    if value is None:
        return isinstance(node, ast.Name) and node.id == "ctx"
    return isinstance(value, Outside) and value.name.startswith("semel.") and value.name.endswith("Context()")


def _within(body: list[ast.stmt], scope: Scope, resolver: Resolver) -> Iterator[Root]:
    todo: list[ast.AST] = list(reversed(body))
    while todo:
        node = todo.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                function = Function(scope, node, qualified(scope, node.name))
                if _is_workflow(function, node, resolver):
                    yield Root(function, Kind.SEMEL, id(node))
                yield from _within(node.body, resolver.function_scope(function), resolver)
            case ast.ClassDef():
                of = Class(scope, node, qualified(scope, node.name))
                yield from _of_class(of, resolver)
                for name, method in methods(of):
                    inside = scope.inner(method, f"{of.name}.{name}", of, of)
                    yield from _within(method.body, inside, resolver)
                todo.extend(reversed([part for part in node.body if isinstance(part, ast.ClassDef)]))
            case _:
                todo.extend(reversed([part for name in _BLOCKS for part in getattr(node, name, ())]))


def _is_workflow(function: Function, node: FunctionDef, resolver: Resolver) -> bool:
    for decorator in node.decorator_list:
        bare = decorator.func if isinstance(decorator, ast.Call) else decorator
        if not isinstance(bare, ast.Attribute) or bare.attr != "workflow":
            continue
        app = resolver.resolve(bare.value, function.scope)
        if is_app(app):
            return True
        if may_be_app(bare.value, function.scope, resolver) and _takes_context(function, node, resolver):
            return True
    return False


def _takes_context(function: Function, node: FunctionDef, resolver: Resolver) -> bool:
    first = next(iter((*node.args.posonlyargs, *node.args.args)), None)
    if first is None:
        return False
    if first.annotation is None:
        return first.arg in ("ctx", "context")
    value = resolver.annotated(first.annotation, function.scope)
    return is_context(value, ast.Name(id=first.arg, ctx=ast.Load()))


def _of_class(of: Class, resolver: Resolver) -> Iterator[Root]:
    names = {_name_of(resolver.resolve(_bare(decorator), of.scope)) for decorator in of.node.decorator_list}
    temporal = f"{TEMPORAL}defn" in names
    entity = any(
        isinstance(bare := _bare(decorator), ast.Attribute)
        and bare.attr == "entity"
        and may_be_app(bare.value, of.scope, resolver)
        for decorator in of.node.decorator_list
    )
    kind = Kind.TEMPORAL if temporal else Kind.SEMEL
    seen: set[str] = set()
    for each in lineage(resolver, of) if temporal or entity else [of]:
        for name, method in methods(each):
            wanted = _TEMPORAL_METHODS if temporal else _ENTITY_METHODS
            if name not in seen and (_is_entered(method, each.scope, wanted, resolver)):
                seen.add(name)
                yield Root(Function(each.scope, method, f"{of.name}.{name}", of, each), kind, id(of.node))
    if temporal or entity:
        made = method_of(resolver, of, "__init__")
        if made is not None and "__init__" not in seen:
            yield Root(made, kind, id(of.node))


def _is_entered(method: FunctionDef, scope: Scope, wanted: frozenset[str], resolver: Resolver) -> bool:
    for decorator in method.decorator_list:
        bare = _bare(decorator)
        name = _name_of(resolver.resolve(bare, scope))
        if name in wanted:
            return True
        if wanted is _TEMPORAL_METHODS and isinstance(bare, ast.Attribute) and bare.attr == "validator":
            return True
    return False


def _bare(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _name_of(value: Value | None) -> str:
    return value.name if isinstance(value, Outside) else ""


def is_app(value: Value | None) -> bool:
    """Whether it is an App."""
    return isinstance(value, Outside) and value.name.startswith("semel.") and value.name.endswith("App()")


def may_be_app(node: ast.expr, scope: Scope, resolver: Resolver) -> bool:
    """Whether it is an App, or comes from where nothing can be seen: a factory, a module that was not given."""
    value = resolver.resolve(node, scope)
    if value is None or is_app(value):
        return True
    if not isinstance(value, Outside) or "()" in value.name or value.name.startswith(("temporalio.", "builtins.")):
        return False
    _, dot, name = value.name.rpartition(".")
    return bool(dot) and name.islower()  # `from shop import app`, not `import prefect` nor `dbos.DBOS`
