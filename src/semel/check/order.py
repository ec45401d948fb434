"""Orders that differ between processes: sets that decide in which order things happen."""

from __future__ import annotations

import ast

from semel.check.finding import Kind
from semel.check.inside import commands
from semel.check.names import Annotated, Assigned, Comprehension, Scope
from semel.check.resolve import Resolver
from semel.check.rules import OBJECT_IDENTITY, SET_ORDER, Rule
from semel.check.values import Outside, Value
from semel.check.words import words

Broken = tuple[Rule, str]

_SETS = words(
    """
    builtins.set builtins.frozenset typing.Set typing.FrozenSet typing.AbstractSet typing.MutableSet
    collections.abc.Set collections.abc.MutableSet
    """
)
_SAME_ORDER = frozenset(
    f"builtins.{name}" for name in ("list", "tuple", "enumerate", "iter", "reversed", "map", "filter", "zip")
)
_SET_METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
_SET_OPERATORS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
_GATHERERS = frozenset({"asyncio.gather", "asyncio.wait", "asyncio.as_completed", "temporalio.workflow.wait"})
_UNORDERED = frozenset({"asyncio.wait", "asyncio.as_completed"})
_DEEPEST = 16


class Order:
    """Knows sets when it sees them, and where their order matters: where commands follow from it."""

    def __init__(self, resolver: Resolver, kind: Kind) -> None:
        self._resolver = resolver
        self._kind = kind

    def loop(self, node: ast.For | ast.AsyncFor, scope: Scope) -> Broken | None:
        """A loop over a set with a command in its body."""
        if self._is_set(node.iter, scope) and commands(node.body, scope, self._resolver):
            return SET_ORDER, f"the loop over the set {_short(node.iter)}"
        return None

    def comprehension(self, node: Comprehension, scope: Scope) -> Broken | None:
        """A comprehension over a set that makes commands."""
        if not self._is_set(node.generators[0].iter, scope):
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
        if popped is not None and not node.args and self._is_set(popped, scope):
            return SET_ORDER, f"{_short(popped)}.pop() of a set"
        for keyword in node.keywords:
            if keyword.arg == "key" and isinstance(keyword.value, ast.Name):
                found_key = self._resolver.resolve(keyword.value, scope)
                known = isinstance(found_key, Outside) and found_key.name in ("builtins.id", "builtins.hash")
                if known and not name.startswith("builtins."):  # sorted(key=id) is told as a call of id
                    return OBJECT_IDENTITY, f"key={keyword.value.id}"
        return None

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
                if not told and self._is_set(source, scope):
                    return source
            elif isinstance(argument, ast.Starred) and self._is_set(inner, scope):
                return inner
        return None

    def _is_set(self, node: ast.expr, scope: Scope, depth: int = 0) -> bool:
        """Whether iterating over it gives the order of a set."""
        if depth > _DEEPEST:
            return False
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.BinOp(left=left, op=operator, right=right) if isinstance(operator, _SET_OPERATORS):
                keys = isinstance(left, ast.Call) and isinstance(left.func, ast.Attribute) and left.func.attr == "keys"
                return keys or any(
                    self._is_set(side, scope, depth + 1)
                    for side in ([left] if isinstance(operator, ast.Sub) else [left, right])
                )
            case ast.ListComp(generators=[first, *_]) | ast.GeneratorExp(generators=[first, *_]):
                return self._is_set(first.iter, scope, depth + 1)
            case ast.Call():
                return self._makes_set(node, scope, depth)
            case ast.Name():
                return self._names_set(node, scope, depth)
            case ast.Attribute():
                return self._is_set_type(node, scope)
        return False

    def _makes_set(self, node: ast.Call, scope: Scope, depth: int) -> bool:
        callee = self._resolver.resolve(node.func, scope)
        if isinstance(callee, Outside) and callee.name in _SETS:
            return True
        if isinstance(callee, Outside) and callee.name in _SAME_ORDER:
            return any(self._is_set(argument, scope, depth + 1) for argument in node.args)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SET_METHODS:
            return self._is_set(node.func.value, scope, depth + 1)
        return self._is_set_type(node, scope)  # a function that is annotated to return one

    def _names_set(self, node: ast.Name, scope: Scope, depth: int) -> bool:
        found = scope.lookup(node.id, node.lineno)
        if found is None:
            return False
        where, bindings = found
        match bindings[0]:
            case Assigned(value=value, unpacked=False, line=line):
                around = value is not node and (where is not scope or line < node.lineno or len(bindings) == 1)
                return around and self._is_set(value, where, depth + 1)
            case Assigned(value=ast.Await(value=ast.Call(func=func)), unpacked=True):
                callee = self._resolver.resolve(func, where)
                return isinstance(callee, Outside) and callee.name == "asyncio.wait"
            case Annotated(annotation=annotation):
                value_of = self._resolver.annotated(annotation, where)
                return isinstance(value_of, Outside) and value_of.name.removesuffix("()") in _SETS
        return False

    def _is_set_type(self, node: ast.expr, scope: Scope) -> bool:
        """`self.names`, or what a call gives: made as a set, or annotated as one."""
        value = self._resolver.resolve(node, scope)
        return isinstance(value, Outside) and value.name.removesuffix("()") in _SETS


def _short(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 40 else f"{text[:37]}..."
