"""Which expressions have the order of a set, and which take something out of a set by it."""

from __future__ import annotations

import ast

from semel.check.inside import own
from semel.check.names import Annotated, Assigned, Scope
from semel.check.resolve import Resolver
from semel.check.values import Outside
from semel.check.words import words

_SETS = words(
    """
    builtins.set builtins.frozenset typing.Set typing.FrozenSet typing.AbstractSet typing.MutableSet
    collections.abc.Set collections.abc.MutableSet
    """
)
_SAME_ORDER = frozenset(
    f"builtins.{name}"
    for name in ("list", "tuple", "enumerate", "iter", "reversed", "map", "filter", "zip", "dict", "dict.fromkeys")
)
_SET_METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
_SET_OPERATORS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
_VIEWS = frozenset({"keys", "items", "values"})
_LISTS = frozenset({"builtins.list", "builtins.tuple"})
_SPOKEN = frozenset({"builtins.str", "builtins.repr", "builtins.format", "json.dumps"})
_DEEPEST = 16


class Sets:
    """Knows sets when it sees them."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def ordered(self, node: ast.expr, scope: Scope, depth: int = 0) -> bool:
        """Whether iterating over it gives the order of a set."""
        if depth > _DEEPEST:
            return False
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.BinOp(left=left, op=operator, right=right) if isinstance(operator, _SET_OPERATORS):
                keys = isinstance(left, ast.Call) and isinstance(left.func, ast.Attribute) and left.func.attr == "keys"
                return keys or any(
                    self.ordered(side, scope, depth + 1)
                    for side in ([left] if isinstance(operator, ast.Sub) else [left, right])
                )
            case (
                ast.ListComp(generators=[first, *_])
                | ast.GeneratorExp(generators=[first, *_])
                | ast.DictComp(generators=[first, *_])
            ):
                return self.ordered(first.iter, scope, depth + 1)
            case ast.Subscript(value=held):
                return self._holds_sets(held, scope) or self._listed(node, scope, depth)
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
            return any(self.ordered(argument, scope, depth + 1) for argument in node.args)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SET_METHODS | _VIEWS:
            return self.ordered(node.func.value, scope, depth + 1)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            return self._holds_sets(node.func.value, scope)
        return self._is_set_type(node, scope)  # a function that is annotated to return one

    def _names_set(self, node: ast.Name, scope: Scope, depth: int) -> bool:
        found = scope.lookup(node.id, node.lineno)
        if found is None:
            return False
        where, bindings = found
        match bindings[0]:
            case Assigned(value=value, unpacked=False, line=line):
                around = value is not node and (where is not scope or line < node.lineno or len(bindings) == 1)
                return around and not _sorted_later(node.id, where) and self.ordered(value, where, depth + 1)
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

    def _holds_sets(self, node: ast.expr, scope: Scope) -> bool:
        """`dict[str, set[str]]`, `list[set[str]]`, `defaultdict(set)`: what is looked up in it is a set."""
        found = scope.lookup(node.id, node.lineno) if isinstance(node, ast.Name) else None
        if found is None:
            return False
        where, bindings = found
        for binding in bindings:
            match binding:
                case Annotated(annotation=ast.Subscript(slice=inner)):
                    last = inner.elts[-1] if isinstance(inner, ast.Tuple) and inner.elts else inner
                    value = self._resolver.annotated(last, where)
                    return isinstance(value, Outside) and value.name.removesuffix("()") in _SETS
                case Assigned(value=ast.Call(func=func, args=[made, *_]), unpacked=False):
                    made_by, of = self._resolver.resolve(func, where), self._resolver.resolve(made, where)
                    known = isinstance(made_by, Outside) and made_by.name == "collections.defaultdict"
                    return known and isinstance(of, Outside) and of.name in _SETS
        return False

    def _listed(self, node: ast.expr, scope: Scope, depth: int = 0) -> bool:
        """Whether it is a list or a tuple in the order of a set, or a slice of one."""
        if depth > _DEEPEST:
            return False
        match node:
            case ast.Call(func=func, args=[first]):
                callee = self._resolver.resolve(func, scope)
                return isinstance(callee, Outside) and callee.name in _LISTS and self.ordered(first, scope, depth + 1)
            case ast.ListComp():
                return self.ordered(node, scope, depth + 1)
            case ast.Subscript(value=held, slice=ast.Slice()):
                return self._listed(held, scope, depth + 1)
            case ast.Name():
                bound = _assigned(node, scope)
                return bound is not None and not bound[0].unpacked and self._listed(bound[0].value, bound[1], depth + 1)
        return False

    def decides(self, node: ast.expr, scope: Scope, depth: int = 0) -> bool:
        """Whether a value depends on the order of a set: its first element, a list of it, a text that is joined."""
        if depth > _DEEPEST:
            return False
        match node:
            case ast.Subscript(value=held):
                return self._listed(held, scope, depth) and not _only_one(held, scope)
            case ast.ListComp():
                return self._listed(node, scope, depth) and not _only_one(node.generators[0].iter, scope)
            case ast.Call():
                return self._decided_by_call(node, scope, depth)
            case ast.Name():
                bound = _assigned(node, scope)
                if bound is None:
                    return False
                binding, where = bound
                if binding.unpacked:
                    return self.ordered(binding.value, where, depth + 1) and not _alone(binding, where)
                return self.decides(binding.value, where, depth + 1)
            case ast.JoinedStr(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
                return any(self.decides(part, scope, depth + 1) for part in parts)
            case ast.FormattedValue(value=inner):
                return self.decides(inner, scope, depth + 1)
            case ast.BinOp(left=left, right=right):
                return self.decides(left, scope, depth + 1) or self.decides(right, scope, depth + 1)
        return False

    def _decided_by_call(self, node: ast.Call, scope: Scope, depth: int) -> bool:
        callee = self._resolver.resolve(node.func, scope)
        name = callee.name if isinstance(callee, Outside) else ""
        if name in _LISTS:
            return self._listed(node, scope, depth) and not _only_one(node, scope)
        match node:
            case ast.Call(args=[ast.Call(func=ast.Name(id="iter"), args=[held]), *_]) if name == "builtins.next":
                return self.ordered(held, scope, depth + 1) and not _only_one(held, scope)
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="join"), args=[parts]):
                return self.ordered(parts, scope, depth + 1)
            case ast.Call(func=ast.Attribute(attr="call" | "format"), args=args):
                return any(self.decides(arg, scope, depth + 1) for arg in args)
        return name in _SPOKEN and any(self.decides(arg, scope, depth + 1) for arg in node.args)


def _assigned(node: ast.Name, scope: Scope) -> tuple[Assigned, Scope] | None:
    """The assignment above that a name got its value from; None if that is not plain to see."""
    found = scope.lookup(node.id, node.lineno)
    if found is None:
        return None
    where, bindings = found
    first = bindings[0]
    if not isinstance(first, Assigned) or first.value is node or first.line >= node.lineno:
        return None
    return None if _sorted_later(node.id, where) else (first, where)


def _body(scope: Scope) -> list[ast.stmt]:
    return scope.node.body if isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef) else []


def _sorted_later(name: str, scope: Scope) -> bool:
    """`names.sort()`: the order it was made in does not last."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "sort"
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == name
        for node in own(_body(scope))
    )


def _only_one(node: ast.expr, scope: Scope) -> bool:
    """`if len(names) == 1` stands somewhere: whoever asks that knows what he takes."""
    while isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    text = ast.unparse(node)
    return any(
        isinstance(part, ast.Compare)
        and any(isinstance(other, ast.Constant) and other.value in (1, 2) for other in part.comparators)
        and ast.unparse(part.left) == f"len({text})"
        for part in own(_body(scope))
    )


def _alone(binding: Assigned, scope: Scope) -> bool:
    """`(only,) = names` takes the only one."""
    return any(
        isinstance(node, ast.Assign)
        and node.value is binding.value
        and any(isinstance(t, ast.Tuple | ast.List) and len(t.elts) == 1 for t in node.targets)
        for node in own(_body(scope))
    )
