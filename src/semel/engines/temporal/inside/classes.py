"""Workflow classes of Temporal, made from what people have defined.

Temporal's sandbox imports a class by module and name each time a workflow begins. `__getattr__` below imports the
module of the people's code then, which the sandbox loads afresh, and the class takes from there what it runs. So their
code stays in the sandbox and needs no import of Temporal.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from temporalio import workflow
from temporalio.common import RawValue

from semel.define.entity import Entity
from semel.define.registry import Definition, Registry
from semel.define.task import Task
from semel.define.workflow import Workflow
from semel.engines.temporal.coverage import Coverage
from semel.engines.temporal.inside.entity import MESSAGES, EntityHost
from semel.engines.temporal.inside.host import FlowHost, WorkflowHost
from semel.engines.temporal.inside.task import TaskFlow
from semel.engines.temporal.parking import POKE
from semel.engines.temporal.payloads import NOTHING, unwrap
from semel.errors import DefinitionError
from semel.flow.entries import Signalled, raw
from semel.runtime.events import FromThreads
from semel.settings import Settings


@dataclass(frozen=True, slots=True)
class _Recipe:
    """Where the code of a class is. The class is the same for all; the code is loaded afresh for each workflow."""

    module: str
    kind: str
    name: str

    def load(self) -> Any:
        """Its module, in the sandbox one of the sandbox's own."""
        return __import__(self.module, fromlist=["*"])  # not import_module: the sandbox minds only this one

    def versions(self) -> Sequence[Definition]:
        """What is defined there under its name."""
        return _versions(_registry_in(self.load(), self), self.name)


_made: Final[dict[str, tuple[_Recipe, type]]] = {}
_numbers: Final = itertools.count(1)


def __getattr__(label: str) -> type:
    if label not in _made:
        raise AttributeError(label)
    recipe, made = _made[label]
    recipe.load()
    return made


def class_of(
    registry: Registry,
    one: Definition,
    settings: Settings,
    coverage: Coverage | None = None,
    events: FromThreads | None = None,
) -> type:
    """The class for a task, a workflow or an entity. Code that can be imported again goes into the sandbox."""
    label = f"C{next(_numbers)}_{''.join(c if c.isalnum() else '_' for c in one.name)}"
    if isinstance(one, Task):
        return _task_class(label, one, settings, events)
    versions = _versions(registry, one.name)
    if not importable(registry, one):
        return _flow_class(label, one, lambda: versions, settings, coverage, events, sandboxed=False)
    recipe = _Recipe(home(one).__module__, one.kind, one.name)
    made = _flow_class(label, one, recipe.versions, settings, coverage, events)
    _made[label] = (recipe, made)
    return made


def home(one: Definition) -> Any:
    """The function or class that people wrote."""
    return one.cls if isinstance(one, Entity) else one.fn


def importable(registry: Registry, one: Definition) -> bool:
    """Can the sandbox load it afresh? Not what was defined inside of a function, or for an app that was made in one."""
    code = home(one)
    module = sys.modules.get(code.__module__)
    if module is None or "<locals>" in code.__qualname__ or code.__module__ == "__main__":
        return False
    return any(getattr(value, "tasks", None) is registry for value in vars(module).values())


def _registry_in(module: Any, recipe: _Recipe) -> Registry:
    for value in list(vars(module).values()):
        registry = getattr(value, "tasks", None)
        if isinstance(registry, Registry) and registry.get(recipe.name) is not None:
            return registry
    raise DefinitionError(
        f"{recipe.kind} {recipe.name!r} is defined in {recipe.module!r}, where its app is not to be found: "
        "import the app into that module by name (from … import app)."
    )


def _versions(registry: Registry, name: str) -> Sequence[Definition]:
    one = registry[name]
    return list(registry.versions(name)) if isinstance(one, Workflow) else [one]


def _task_class(label: str, task: Task[..., Any], settings: Settings, events: FromThreads | None) -> type:
    async def run(self: Any, input: RawValue) -> RawValue:
        found: RawValue = await self.flow.run(input)
        return found

    return _finish(label, _task_members(label, run, settings, events), task.name, sandboxed=False)


def unknown_task_class(settings: Settings, events: FromThreads | None = None) -> type:
    """The class for tasks that are not known here. Only their activity needs the function: another worker has it."""

    async def run(self: Any, args: Sequence[RawValue]) -> RawValue:
        found: RawValue = await self.flow.run(args[0])
        return found

    label = f"C{next(_numbers)}_unknown"
    members = _task_members(label, run, settings, events)
    made = type(label, (), {**members, "__module__": __name__, "__qualname__": label})
    return workflow.defn(dynamic=True, sandboxed=False)(made)


def _task_members(
    label: str, run: Callable[..., Any], settings: Settings, events: FromThreads | None
) -> dict[str, Any]:
    def begin(self: Any) -> None:
        self.flow = TaskFlow(settings.worker.lease, events)

    def poke(self: Any) -> None:
        """Wake it: it looks at the clock again."""

    members = _members(label, __init__=begin, run=run, poke=poke)
    members["run"] = workflow.run(members["run"])
    members["poke"] = workflow.signal(name=POKE)(members["poke"])
    return members


def _flow_class(
    label: str,
    one: Definition,
    versions: Callable[[], Sequence[Definition]],
    settings: Settings,
    coverage: Coverage | None,
    events: FromThreads | None,
    *,
    sandboxed: bool = True,
) -> type:
    def begin(self: Any) -> None:
        self.host = _host(versions(), settings)
        self.host.coverage = coverage
        self.host.events = events

    async def run(self: Any, input: RawValue, carried: RawValue = NOTHING) -> RawValue:
        found: RawValue = await self.host.run(input, carried)
        return found

    def poke(self: Any) -> None:
        self.host.poke()

    members = _members(label, __init__=begin, run=run, poke=poke)
    members["run"] = workflow.run(members["run"])
    members["poke"] = workflow.signal(name=POKE)(members["poke"])
    members |= _entity_members(label) if isinstance(one, Entity) else _workflow_members(label)
    return _finish(label, members, one.name, sandboxed=sandboxed)


def _host(versions: Sequence[Definition], settings: Settings) -> FlowHost:
    first = versions[0]
    if isinstance(first, Entity):
        return EntityHost(first, settings)
    return WorkflowHost([one for one in versions if isinstance(one, Workflow)], settings)


def _workflow_members(label: str) -> dict[str, Any]:
    def signalled(self: Any, name: str, args: Sequence[RawValue]) -> None:
        payload = unwrap(args[0]) if args else None
        key = msgspec.json.decode(unwrap(args[1]) or b"null") if len(args) > 1 else None
        self.host.arrive(Signalled(name, raw(payload), key), source=self.host.count_signal(name))

    members = _members(label, signalled=signalled)
    members["signalled"] = workflow.signal(dynamic=True)(members["signalled"])
    return members


def _entity_members(label: str) -> dict[str, Any]:
    def receive(self: Any, letters: RawValue) -> None:
        self.host.receive(letters)

    members = _members(label, receive=receive)
    members["receive"] = workflow.signal(name=MESSAGES)(members["receive"])
    return members


def _members(label: str, **functions: Callable[..., Any]) -> dict[str, Any]:
    """Functions as if they had been written in a class of this module: Temporal takes no local ones."""
    for name, function in functions.items():
        function.__qualname__ = f"{label}.{name}"
        function.__module__ = __name__
        function.__annotations__.pop("self", None)  # Temporal would take it for an argument
    return dict(functions)


def _finish(label: str, members: dict[str, Any], name: str, *, sandboxed: bool) -> type:
    made = type(label, (), {**members, "__module__": __name__, "__qualname__": label})
    return workflow.defn(name=name, sandboxed=sandboxed)(made)
