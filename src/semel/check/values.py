"""What an expression can stand for, as far as reading alone can tell."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semel.check.names import Scope
    from semel.check.source import Module

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True, eq=False)
class Class:
    """A class of the project, and the scope it stands in."""

    scope: Scope
    node: ast.ClassDef
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function of the project. `receiver` is the class it was asked of, `home` the one it is written in."""

    scope: Scope
    node: FunctionNode
    name: str
    receiver: Class | None = None
    home: Class | None = None

    @property
    def module(self) -> Module:
        return self.scope.module

    @property
    def same(self) -> tuple[int, int]:
        """Equal for the same function of the same class."""
        return id(self.node), id(self.receiver.node) if self.receiver else 0


@dataclass(frozen=True, slots=True)
class Instance:
    """An object of a class of the project; `above` asks the classes above that one only, as `super()` does."""

    of: Class
    above: Class | None = None


@dataclass(frozen=True, slots=True)
class File:
    """A module of the project."""

    module: Module


@dataclass(frozen=True, slots=True)
class Outside:
    """A dotted name that leads out of the project. `made_here`: by workflow code, not at import or by a caller."""

    name: str
    made_here: bool = False


Value = Class | Function | Instance | File | Outside
