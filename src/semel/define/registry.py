"""The tasks and workflows of an app, by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from semel.codec import Shape
from semel.define.entity import Entity
from semel.define.task import Task
from semel.define.workflow import Workflow
from semel.errors import DefinitionError, InvalidValue, NonDeterminism, NotFound

Definition = Task[..., Any] | Workflow[..., Any] | Entity[Any]


class Registry:
    """Names are unique: a worker finds the function by the name that was stored."""

    def __init__(self) -> None:
        self._known: dict[str, Definition] = {}
        self._versions: dict[str, dict[int, Workflow[..., Any]]] = {}

    def add(self, one: Definition) -> None:
        """Register it; another function under the same name is refused, unless it is another version of a workflow."""
        if not isinstance(one, Task) and one.registry is None:
            one.registry = self
        other = self._known.get(one.name)
        if isinstance(one, Workflow) and (other is None or isinstance(other, Workflow)):
            versions = self._versions.setdefault(one.name, {})
            _refuse_twins(versions.get(one.version), one)
            versions[one.version] = one
            one = versions[max(versions)]
            for version in versions.values():
                version.newest = one
        else:
            _refuse_twins(other, one)
        self._known[one.name] = one

    def get(self, name: str) -> Definition | None:
        """What has that name, if this app has it; of a workflow the newest version."""
        return self._known.get(name)

    def shape_of(self, name: str) -> Shape | None:
        """The signature of a task or a workflow, if this app has it."""
        found = self._known.get(name)
        return None if found is None or isinstance(found, Entity) else found.shape

    def task(self, name: str) -> Task[..., Any]:
        """The task of that name; NotFound with the nearest one."""
        found = self[name]
        if not isinstance(found, Task):
            raise NotFound(f"{name!r} is a workflow, not a task.")
        return found

    def workflow(self, name: str, version: int | None = None) -> Workflow[..., Any]:
        """The workflow of that name and version; None is the newest. NonDeterminism: the version is not here."""
        versions = self._versions.get(name)
        if not versions:
            raise NotFound(f"this app has no workflow {name!r}. There are: {', '.join(self._versions) or 'none'}.")
        found = versions.get(max(versions) if version is None else version)
        if found is None:
            there = ", ".join(map(str, sorted(versions)))
            raise NonDeterminism(
                f"workflow {name!r} began with version {version}, and this code has {there}. It waits. Keep the old "
                f"function, with @app.workflow(name={name!r}, version={version}), until all that began with it ended.",
                expected=f"version {version}",
                found=f"versions {there}",
            )
        return found

    def refuse_foreign(self, one: Task[..., Any] | Workflow[..., Any]) -> None:
        """InvalidValue: this is a function of another app, and no worker of this one would run it as it is meant."""
        known = self._known.get(one.name)
        if known is one or one in self._versions.get(one.name, {}).values():
            return
        if known is not None and (_is_same_code(known, one) or _where(known) == _where(one)):
            return  # defined twice, or imported a second time, as Temporal's sandbox does
        mine = "has none of that name" if known is None else f"has {known.kind} {_where(known)} under that name"
        raise InvalidValue(
            f"{one.kind} {one.name!r} ({_where(one)}) belongs to another app: this one {mine}. Ask for it with the app "
            "that it was defined with, or define it with this one."
        )

    def versions(self, name: str) -> Sequence[Workflow[..., Any]]:
        """All versions of a workflow."""
        return list(self._versions.get(name, {}).values())

    def entity(self, name: str | type) -> Entity[Any]:
        """The entity of that name, or of that class."""
        for one in self._known.values():
            if isinstance(one, Entity) and name in (one.name, one.cls):
                return one
        called = name if isinstance(name, str) else name.__name__
        raise NotFound(f"this app has no entity {called!r}: decorate the class with @app.entity.")

    def __getitem__(self, name: str) -> Definition:
        found = self._known.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self._known, 1)
            tasks = [one.name for one in self._known.values() if isinstance(one, Task)]
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(tasks) or 'none'}."
            raise NotFound(f"this app has no task {name!r}. {hint}")
        return found

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)


def _refuse_twins(other: Definition | None, one: Definition) -> None:
    if other is None:
        return
    old, new = _home(other), _home(one)
    if (isinstance(other, Entity) or isinstance(one, Entity)) and (other.kind, old.__qualname__) == (
        one.kind,
        new.__qualname__,
    ):
        return
    if not _is_same_code(other, one):
        raise DefinitionError(
            f"two {one.kind}s are called {one.name!r}: {_where(other)} and {_where(one)}. Give one of them name='…'."
        )


def _is_same_code(one: Definition, other: Definition) -> bool:
    first, second = _home(one), _home(other)
    return getattr(first, "__code__", first) is getattr(second, "__code__", second)


def _where(one: Definition) -> str:
    home = _home(one)
    return f"{home.__module__}.{home.__qualname__}"


def _home(one: Definition) -> Any:
    return one.cls if isinstance(one, Entity) else one.fn
