"""Reads one function of workflow code: what breaks a rule, and which functions of the project it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from semel.check.branch import taken
from semel.check.callbacks import called_arguments, handed_over
from semel.check.classes import body_scope, given_fields, lineage, method_of
from semel.check.effects import BY_METHOD, effect_of, load_of, spoken
from semel.check.finding import Kind
from semel.check.inside import own
from semel.check.names import Assigned, Binding, Comprehension, Scope
from semel.check.order import Order
from semel.check.resolve import Resolver
from semel.check.roots import TEMPORAL, is_context, is_task
from semel.check.rules import DIRECT_CALL, OBJECT_IDENTITY, SCHEDULE_CHANGE, UNKEYED_EFFECT, Rule
from semel.check.schedule_verbs import schedule_verb
from semel.check.state import changed_globals
from semel.check.swallow import swallowed
from semel.check.task_effects import outside_effect
from semel.check.values import Class, Function, Instance, Outside, Value

_UNSAFE = f"{TEMPORAL}unsafe."
_LEAVES = (ast.expr_context, ast.Constant, ast.operator, ast.cmpop, ast.unaryop, ast.boolop, ast.Pass)
_SKIPPED = frozenset({f"{_UNSAFE}imports_passed_through()", f"{_UNSAFE}sandbox_unrestricted()"})


@dataclass
class Body:
    """What one function does."""

    broken: list[tuple[ast.AST, Rule, str]] = field(default_factory=list)
    runs: list[Function] = field(default_factory=list)


class Reader:
    """Reads functions of one project, each by itself."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def read(self, function: Function, kind: Kind, keyed: bool = False) -> Body:
        """What the function does when it is called. `keyed`: whoever calls it has an effect key."""
        body = _Reading(self._resolver, kind, keyed).function(function)
        if kind is Kind.TASK:  # a task may do all that a workflow must not, but for this
            body.broken = [one for one in body.broken if one[1] in (SCHEDULE_CHANGE, UNKEYED_EFFECT)]
        return body


class _Reading:
    def __init__(self, resolver: Resolver, kind: Kind, keyed: bool) -> None:
        self._resolver = resolver
        self._kind = kind
        self._keyed = keyed
        self._order = Order(resolver, kind)
        self._body = Body()

    def function(self, function: Function) -> Body:
        scope = self._resolver.function_scope(function)
        node = function.node
        if isinstance(node, ast.Lambda):
            self._visit(node.body, scope)
        else:
            self._body.runs.extend(_wrappers(function, self._resolver))
            self._each(node.body, scope)
            self._body.broken.extend(changed_globals(node, scope, self._resolver))
        return self._body

    def _break(self, node: ast.AST, rule: Rule, subject: str) -> None:
        self._body.broken.append((node, rule, subject))

    def _each(self, nodes: Iterable[object], scope: Scope) -> None:
        for node in nodes:
            if isinstance(node, ast.AST):
                self._visit(node, scope)
            if isinstance(node, ast.If) and not taken(node, scope, self._resolver)[1]:
                break

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, _LEAVES):
            return
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for part in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
                    self._visit(part, scope)
                return
            case ast.ClassDef():
                return
            case ast.Lambda():
                return  # read where it is called
            case ast.If():
                self._visit(node.test, scope)
                self._each(taken(node, scope, self._resolver)[0], scope)
                return
            case ast.With() | ast.AsyncWith():
                if self._enters(node, scope):
                    return
            case ast.Try() | ast.TryStar():
                self._body.broken.extend(swallowed(node, scope, self._resolver))
            case ast.For() | ast.AsyncFor():
                if (subject := self._order.loop(node, scope)) is not None:
                    self._break(node.iter, *subject)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._comprehension(node, scope)
                return
            case ast.Call():
                self._call(node, scope)
                if handed_over(node, scope, self._resolver):
                    self._each([node.func, *node.args[1:], *node.keywords], scope)
                    return
            case ast.Attribute() | ast.Name():
                if self._load(node, scope):
                    return
            case ast.AnnAssign():
                for part in filter(None, (node.target, node.value)):
                    self._visit(part, scope)
                return  # annotations are not run
            case _:
                pass
        if isinstance(node, ast.expr):
            for number in self._order.numbers(node, scope):
                self._break(number, OBJECT_IDENTITY, "id()")
        for _, part in ast.iter_fields(node):
            if isinstance(part, ast.AST):
                self._visit(part, scope)
            elif isinstance(part, list):
                self._each(part, scope)

    def _comprehension(self, node: Comprehension, scope: Scope) -> None:
        if (broken := self._order.comprehension(node, scope)) is not None:
            self._break(node.generators[0].iter, *broken)
        inner = scope.inner(node, scope.qualname, scope.receiver, scope.home)
        for child in ast.iter_child_nodes(node):
            self._visit(child, inner)

    def _enters(self, node: ast.With | ast.AsyncWith, scope: Scope) -> bool:
        """Follow `__enter__` and `__exit__`; true if the block is marked as not for the checker."""
        self._body.broken.extend(swallowed(node, scope, self._resolver))
        names = ("__enter__", "__exit__") if isinstance(node, ast.With) else ("__aenter__", "__aexit__")
        for item in node.items:
            value = self._resolver.resolve(item.context_expr, scope)
            if isinstance(value, Outside) and value.name in _SKIPPED:
                return True
            if isinstance(value, Instance):
                found = (method_of(self._resolver, value.of, name) for name in names)
                self._body.runs.extend(filter(None, found))
        return False

    def _load(self, node: ast.Attribute | ast.Name, scope: Scope) -> bool:
        """What is broken by looking alone, and properties; true if nothing inside is of interest any more."""
        if isinstance(node, ast.Attribute) and (getter := self._resolver.getter(node, scope)) is not None:
            self._body.runs.append(getter)
            return False
        value = self._resolver.resolve(node, scope)
        rule = load_of(value.name) if isinstance(value, Outside) else None
        if rule is None or not isinstance(value, Outside):
            return False
        self._break(node, rule, spoken(value.name))
        return True

    def _call(self, node: ast.Call, scope: Scope) -> None:
        if (verb := schedule_verb(node, scope, self._resolver)) is not None:
            self._break(node, SCHEDULE_CHANGE, verb)
            return
        callee = self._resolver.resolve(node.func, scope)
        if callee is None:
            self._unknown(node, scope)
        else:
            self._runs(callee, node, node)
        if (broken := self._order.call(node, callee, scope)) is not None:
            self._break(node, *broken)
        for argument, value in called_arguments(node, callee, scope, self._resolver):
            self._runs(value, argument, None)

    def _unknown(self, node: ast.Call, scope: Scope) -> None:
        if isinstance(node.func, ast.Attribute) and (rule := BY_METHOD.get(node.func.attr)) is not None:
            receiver = self._resolver.resolve(node.func.value, scope)
            if receiver is None and not is_context(None, node.func.value):
                self._break(node, rule, f".{node.func.attr}()")

    def _runs(self, callee: Value, node: ast.AST, call: ast.Call | None) -> None:
        match callee:
            case Function():
                if is_task(callee, self._resolver):
                    self._break(node, DIRECT_CALL, f"{callee.name}()")
                else:
                    self._body.runs.append(callee)
            case Class():
                self._makes(callee, call)
            case Instance(of=of):
                if (method := method_of(self._resolver, of, "__call__")) is not None:
                    self._body.runs.append(method)
            case Outside(name=name) if self._kind is Kind.TASK:
                if call is not None and not self._keyed and outside_effect(name, call):
                    self._break(node, UNKEYED_EFFECT, f"{spoken(name)}()")
            case Outside(name=name, made_here=made_here):
                rule = effect_of(name, call, made_here)
                if rule is None and name.startswith("asyncio.") and "()" in name:
                    rule = BY_METHOD.get(name.rpartition(".")[2])  # a method of the loop
                if rule is OBJECT_IDENTITY and call is not None and (name == "builtins.id" or _of_number(call)):
                    return  # an id that only tells objects apart does no harm; where its number matters, Order sees it
                if rule is not None:
                    self._break(node, rule, f"{spoken(name)}()")

    def _makes(self, of: Class, call: ast.Call | None) -> None:
        """Making an object runs its constructors, and the factories of fields that are not given."""
        for name in ("__new__", "__init__", "__post_init__"):
            if (method := method_of(self._resolver, of, name)) is not None:
                self._body.runs.append(method)
        line = lineage(self._resolver, of)
        given = given_fields(call, line)
        for each in line:
            scope = body_scope(each)
            for name, bindings in scope.bindings.items():
                for factory in [] if name in given else _factories(bindings):
                    self._factory(factory, scope)

    def _factory(self, factory: ast.expr, scope: Scope) -> None:
        value = self._resolver.resolve(factory, scope)
        if isinstance(value, Function):
            self._body.runs.append(value)
        elif isinstance(value, Outside) and effect_of(value.name, None, False) is not None:
            # It stands in another place, and perhaps in another file, than the function that is read.
            self._body.runs.append(Function(scope, _as_lambda(factory), f"{scope.qualname}.default_factory"))


def _as_lambda(factory: ast.expr) -> ast.Lambda:
    """The factory as a function that calls it, standing where the factory stands."""
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    call = ast.copy_location(ast.Call(func=factory, args=[], keywords=[]), factory)
    return ast.copy_location(ast.Lambda(args=nothing, body=call), factory)


def _factories(bindings: list[Binding]) -> Iterator[ast.expr]:
    for binding in bindings:
        if isinstance(binding, Assigned) and isinstance(binding.value, ast.Call):
            yield from (keyword.value for keyword in binding.value.keywords if keyword.arg == "default_factory")


def _of_number(call: ast.Call) -> bool:
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and not isinstance(call.args[0].value, str)


def _wrappers(function: Function, resolver: Resolver) -> Iterator[Function]:
    """What a decorator of the project returns: the function that is really called."""
    if isinstance(function.node, ast.Lambda):
        return
    for decorator in function.node.decorator_list:
        made_by = decorator.func if isinstance(decorator, ast.Call) else decorator
        found = resolver.resolve(made_by, function.scope)
        depth = 2 if isinstance(decorator, ast.Call) else 1
        layer = [found] if isinstance(found, Function) else []
        for _ in range(depth):
            layer = [inner for outer in layer for inner in _returned(outer, resolver)]
        yield from layer


def _returned(function: Function, resolver: Resolver) -> Iterator[Function]:
    if isinstance(function.node, ast.Lambda):
        return
    scope = resolver.function_scope(function)
    for statement in own(function.node.body):
        if isinstance(statement, ast.Return) and statement.value is not None:
            value = resolver.resolve(statement.value, scope)
            if isinstance(value, Function) and value.scope is scope:
                yield value
