"""Calls that change or trigger a schedule: `app.schedules.put(…)`, `app.sync.schedules.pause(…)`, `app.apply()`."""

from __future__ import annotations

import ast
from typing import Final

from semel.check.names import Scope
from semel.check.resolve import Resolver
from semel.check.roots import is_app, may_be_app
from semel.check.values import Outside
from semel.check.words import words

VERBS: Final = words("put edit pause resume trigger delete backfill")
TELLTALES: Final = (b"schedules", b"apply")
"""A file without any of these words changes no schedule."""


def schedule_verb(call: ast.Call, scope: Scope, resolver: Resolver) -> str | None:
    """What a call that changes a schedule is called in a message; None: it does not."""
    verb = call.func
    if not isinstance(verb, ast.Attribute):
        return None
    if verb.attr == "apply" and _is_surely_app(_without_sync(verb.value), scope, resolver):
        return "app.apply()"
    if verb.attr not in VERBS:
        return None
    of = verb.value
    if (
        isinstance(of, ast.Attribute)
        and of.attr == "schedules"
        and may_be_app(_without_sync(of.value), scope, resolver)
    ):
        return f"app.schedules.{verb.attr}()"
    known = resolver.resolve(of, scope)
    if isinstance(known, Outside) and known.name.startswith("semel.") and known.name.endswith(".schedules"):
        return f"app.schedules.{verb.attr}()"
    return None


def _without_sync(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Attribute) and node.attr == "sync" else node


def _is_surely_app(node: ast.expr, scope: Scope, resolver: Resolver) -> bool:
    """Whether it is an App, or is called `app` and comes from a module that was not given: much else has an apply()."""
    value = resolver.resolve(node, scope)
    if is_app(value):
        return True
    called_app = isinstance(node, ast.Name) and node.id == "app"
    return called_app and (value is None or (isinstance(value, Outside) and value.name.endswith(".app")))
