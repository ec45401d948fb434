"""One file: its bytes, its tree, and why there is none."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semel.check.names import Scope


class Module:
    """A Python file. `parts` is where it can be imported from: its path without suffix, or its folder.

    It is parsed once, when its tree is first asked for; trees are large, so a file that no workflow comes to is only
    tried with `test`, which keeps none.
    """

    def __init__(self, path: Path, shown: str, on_parsed: Callable[[], None] | None = None) -> None:
        self.path = path
        self.shown = shown
        self.is_package = path.name == "__init__.py"
        self.parts = path.parent.parts if self.is_package else path.with_suffix("").parts
        self.package = path.parent.parts
        self.trouble: tuple[str, int, int] | None = None
        self.raw = self._read()
        self._on_parsed = on_parsed

    @property
    def name(self) -> str:
        return self.parts[-1] if self.parts else self.path.stem

    @cached_property
    def tree(self) -> ast.Module:
        """The tree; an empty one, and `trouble`, if the file cannot be parsed."""
        return self._parse()

    @cached_property
    def scope(self) -> Scope:
        """The names of the module."""
        from semel.check.names import Scope  # they know each other

        return Scope(self, None, None, "")

    @cached_property
    def _lines(self) -> list[str]:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(self.raw).readline)
        return io.StringIO(self.raw.decode(encoding, "replace"), newline=None).readlines()

    def column(self, line: int, offset: int) -> int:
        """The column, in characters from 1, of what a tree gives in bytes of UTF-8 from 0."""
        if self.raw.isascii() or line > len(self._lines):
            return offset + 1
        return len(self._lines[line - 1].encode()[:offset].decode(errors="ignore")) + 1

    def test(self) -> None:
        """Find out if there is trouble."""
        if "tree" not in self.__dict__:
            self._parse()

    def forget(self) -> None:
        """Let go of tree and names: without circles between them they are gone at once, not when collected."""
        scope = self.__dict__.pop("scope", None)
        self.__dict__.pop("tree", None)
        if scope is not None:
            scope.forget()

    def _read(self) -> bytes:
        try:
            return self.path.read_bytes()
        except OSError as error:
            self.trouble = (error.strerror or type(error).__name__, 1, 1)
            return b""

    def _parse(self) -> ast.Module:
        """A strange file must not stop the others, so nothing is raised."""
        if self._on_parsed is not None:
            self._on_parsed()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as an escape that is none: not our matter
                return ast.parse(self.raw, self.shown)
        except SyntaxError as error:
            self.trouble = (error.msg, error.lineno or 1, error.offset or 1)
        except (ValueError, RecursionError, MemoryError) as error:
            self.trouble = (f"{type(error).__name__}: {error}", 1, 1)
        return ast.Module(body=[], type_ignores=[])
