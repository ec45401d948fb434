"""Orders that differ between processes: sets that decide in which order things happen."""

from __future__ import annotations

import ast

from semel.check.finding import Kind
from semel.check.inside import asks_itself, commands
from semel.check.names import Comprehension, Scope
from semel.check.resolve import Resolver
from semel.check.rules import OBJECT_IDENTITY, SET_ORDER, Rule
from semel.check.sets import Sets
from semel.check.values import Outside, Value

Broken = tuple[Rule, str]

_GATHERERS = frozenset({"asyncio.gather", "asyncio.wait", "asyncio.as_completed", "temporalio.workflow.wait"})
_UNORDERED = frozenset({"asyncio.wait", "asyncio.as_completed"})


class Order:
    """Knows where the order of a set matters: where commands follow from it."""

    def __init__(self, resolver: Resolver, kind: Kind) -> None:
        self._resolver = resolver
        self._kind = kind
        self._sets = Sets(resolver)

    def loop(self, node: ast.For | ast.AsyncFor, scope: Scope) -> Broken | None:
        """A loop over a set with a command in its body."""
        if self._sets.ordered(node.iter, scope) and commands(node.body, scope, self._resolver):
            return SET_ORDER, f"the loop over the set {_short(node.iter)}"
        return None

    def comprehension(self, node: Comprehension, scope: Scope) -> Broken | None:
        """A comprehension over a set that makes commands."""
        if not self._sets.ordered(node.generators[0].iter, scope):
            return None
        made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        if commands(made, scope, self._resolver):
            return SET_ORDER, f"the comprehension over the set {_short(node.generators[0].iter)}"
        return None

    def call(self, node: ast.Call, callee: Value | None, scope: Scope) -> Broken | None:
        """A set that is gathered or popped from, an order by id or hash, and what Temporal has replaced."""
        name = callee.name if isinstance(callee, Outside) else ""
        if name in _GATHERERS and (found := self._gathered(node, scope)) is not None:
            return SET_ORDER, f"{name}() over the set {_short(found)}"
        if name in _UNORDERED and self._kind is Kind.TEMPORAL:
            return SET_ORDER, f"{name}()"
        popped = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "pop" else None
        if popped is not None and not node.args and self._sets.ordered(popped, scope):
            return SET_ORDER, f"{_short(popped)}.pop() of a set"
        if (taken := self.taken(node, scope)) is not None:
            return SET_ORDER, f"{_short(taken)}, which goes by the order of a set,"
        for keyword in node.keywords:
            if keyword.arg == "key" and isinstance(keyword.value, ast.Name):
                found_key = self._resolver.resolve(keyword.value, scope)
                known = isinstance(found_key, Outside) and found_key.name in ("builtins.id", "builtins.hash")
                if known and not name.startswith("builtins."):  # sorted(key=id) is told as a call of id
                    return OBJECT_IDENTITY, f"key={keyword.value.id}"
        return None

    def taken(self, node: ast.Call, scope: Scope) -> ast.expr | None:
        """What a command is asked for with, if that is taken out of a set by its order: `list(names)[0]`."""
        if not asks_itself(node, scope, self._resolver):
            return None
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        return next((one for one in given if self._sets.decides(one, scope)), None)

    def numbers(self, node: ast.AST, scope: Scope) -> list[ast.expr]:
        """Calls of `id` whose number matters: it is compared by size, reckoned with or written down."""
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                sized = any(isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for operator in ops)
                parts = [left, *others] if sized else []
            case ast.BinOp(left=left, right=right):
                parts = [left, right]
            case ast.FormattedValue(value=value):
                parts = [value]
            case ast.Call(func=ast.Name(id="str" | "repr" | "hex" | "hash" | "format"), args=args):
                parts = args
            case _:
                return []
        calls = [part for part in parts if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)]
        return [call for call in calls if self._resolver.resolve(call.func, scope) == Outside("builtins.id")]

    def _gathered(self, node: ast.Call, scope: Scope) -> ast.expr | None:
        for argument in node.args:
            inner = argument.value if isinstance(argument, ast.Starred) else argument
            if isinstance(inner, ast.ListComp | ast.GeneratorExp):
                source = inner.generators[0].iter
                told = commands([inner.elt], scope, self._resolver)  # by the comprehension itself
                if not told and self._sets.ordered(source, scope):
                    return source
            elif isinstance(argument, ast.Starred) and self._sets.ordered(inner, scope):
                return inner
        return None


def _short(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 40 else f"{text[:37]}..."
