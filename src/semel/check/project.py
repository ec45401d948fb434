"""The modules that were given, and which of them an import means."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable

from semel.check.source import Module

NOT_OURS = frozenset(sys.stdlib_module_names) | {"semel", "temporalio"}
"""Never followed, even if a file of that name is at hand: their names are what the rules speak of."""


class Project:
    """Modules by the path they are imported from."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.modules = list(modules)
        self._exact = {module.parts: module for module in self.modules}
        self._by_last: dict[str, list[Module]] = defaultdict(list)
        for module in self.modules:
            self._by_last[module.name].append(module)
        self._packages = {module.parts for module in self.modules if module.is_package}
        self._known: dict[tuple[tuple[str, ...], tuple[str, ...]], Module | None] = {}

    def at(self, parts: tuple[str, ...]) -> Module | None:
        """The module at exactly this path."""
        return self._exact.get(parts)

    def imported(self, name: tuple[str, ...], importer: Module) -> Module | None:
        """The module that an absolute import means: of several, the one nearest to who imports it.

        Where the import path begins is not known, so any folder that is not itself a package will do.
        """
        if not name or name[0] in NOT_OURS:
            return None
        key = (name, importer.package)
        if key not in self._known:
            self._known[key] = self._nearest(name, importer)
        return self._known[key]

    def _nearest(self, name: tuple[str, ...], importer: Module) -> Module | None:
        fitting = [
            module
            for module in self._by_last[name[-1]]
            if module.parts[-len(name) :] == name and module.parts[: -len(name)] not in self._packages
        ]
        return max(fitting, key=lambda module: _shared(module.parts, importer.package), default=None)


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
