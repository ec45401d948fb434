"""Which functions living workers have, what waits for one that none of them has, and names that stand for two."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from semel.contract.lifecycle import Status
from semel.contract.records import Execution
from semel.define.entity import Entity
from semel.define.registry import Definition, Registry
from semel.engine.protocol import Engine, Finding, Waiting, WorkerState
from semel.errors import EngineError

MOST_SHOWN = 5
PATIENCE = 30.0
"""Seconds for which a function may be without a worker before a log says so: a restart takes less."""


def home_of(definition: Definition) -> str:
    """Where the code of a definition is, such as `shop.tasks.charge`; of a script by the name of its file."""
    code: Any = definition.cls if isinstance(definition, Entity) else definition.fn
    module = code.__module__
    if module == "__main__":
        file = getattr(getattr(code, "__code__", None), "co_filename", "")
        module = Path(file).stem or module
    return f"{module}.{code.__qualname__}"


def functions_of(registry: Registry) -> dict[str, str]:
    """What a worker tells of itself: the names that it serves, and where the code of each is."""
    return {one.name: home_of(one) for one in registry}


def serves(worker: WorkerState, name: str, queue: str) -> bool:
    """Does this worker run what waits for `name` on `queue`? One that does not tell is taken to do so."""
    if worker.queues != "all" and queue not in worker.queues.split(","):
        return False
    return worker.functions is None or name in worker.functions


def is_unserved(workers: Sequence[WorkerState], name: str, queue: str) -> bool:
    """Are there workers, and does none of them have it?"""
    return bool(workers) and not any(serves(worker, name, queue) for worker in workers)


def unserved(waiting: Iterable[Waiting], workers: Sequence[WorkerState]) -> list[Waiting]:
    """What waits although there are workers, since none of them has its function."""
    return [one for one in waiting if is_unserved(workers, one.name, one.queue)]


def describe_unserved(kind: str, name: str, queue: str) -> str:
    """Why it does not go on, and what to do about it."""
    one = f"{'an' if kind == 'entity' else 'a'} {kind} {name!r}"
    return (
        f"no worker that runs has {one} on queue {queue!r}: its function was renamed or removed, or its workers are "
        "not started. It waits. Deploy a worker whose app has that name, or cancel it."
    )


async def explain_waiting(engine: Engine, executions: Sequence[Execution]) -> str:
    """What keeps the newest of some executions from running, if no worker has its function; empty otherwise."""
    newest = executions[0] if executions else None
    if newest is None or newest.status not in (Status.PENDING, Status.WAITING):
        return ""
    try:
        workers = await engine.workers()
    except EngineError:  # a server that keeps no list of workers
        return ""
    missing = is_unserved(workers, newest.name, newest.queue)
    return describe_unserved(newest.kind, newest.name, newest.queue) if missing else ""


def examine_service(waiting: Sequence[Waiting], workers: Sequence[WorkerState]) -> list[Finding]:
    """What doctor says: work that no worker has the function of, and names that stand for two functions."""
    return [_functions(waiting, workers), *_twins(workers)]


def _functions(waiting: Sequence[Waiting], workers: Sequence[WorkerState]) -> Finding:
    if not workers:
        return _finding_without_workers([one for one in waiting if one.ready])
    missing = unserved(waiting, workers)
    if not missing:
        return Finding(True, "functions", "some worker has each that is waited for")
    told = _list_groups([(one, one.count) for one in missing])
    return Finding(False, "functions", f"no worker has {told}: deploy one that has them, or cancel what waits")


def _finding_without_workers(ready: Sequence[Waiting]) -> Finding:
    """No worker runs: that is wrong only if something waits for one."""
    if not ready:
        return Finding(True, "functions", "no worker runs, and nothing waits for one")
    count = sum(one.ready for one in ready)
    told = _list_groups([(one, one.ready) for one in sorted(ready, key=lambda one: -one.ready)])
    what = "1 execution waits" if count == 1 else f"{count} executions wait"
    return Finding(False, "functions", f"no worker runs, and {what} for one: {told}. Start one with: semel worker")


def _list_groups(groups: Sequence[tuple[Waiting, int]]) -> str:
    told = [
        f"{one.kind} {one.name!r} on queue {one.queue!r} ({count} waiting{_since(one)}, such as {one.key or one.id})"
        for one, count in groups[:MOST_SHOWN]
    ]
    return "; ".join(told + [f"and {len(groups) - MOST_SHOWN} more"] * (len(groups) > MOST_SHOWN))


def _since(one: Waiting) -> str:
    return "" if one.since is None else f" since {one.since:%Y-%m-%d %H:%M:%S} UTC"


def find_twins(workers: Iterable[WorkerState]) -> dict[str, list[str]]:
    """Names that stand for different functions in different workers, and where each of them is."""
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for worker in workers:
        for name, home in worker.homes.items():
            homes[name].add(home)
    return {name: sorted(found) for name, found in sorted(homes.items()) if len(found) > 1}


def describe_twins(name: str, homes: Sequence[str]) -> str:
    """What is wrong with one name for two functions, and what to do about it."""
    return (
        f"{name!r} is {' and '.join(homes)} in different workers: either of them may take the other's work. Give each "
        "service a namespace of its own, or its functions other names. (After a move within a deploy this passes.)"
    )


def _twins(workers: Sequence[WorkerState]) -> list[Finding]:
    return [
        Finding(False, "one name, two functions", describe_twins(name, homes))
        for name, homes in list(find_twins(workers).items())[:MOST_SHOWN]
    ]


class ServiceWarner:
    """Warns of what `examine_service` finds: once of each thing, for as long as it stays so.

    Only of what has been so for `patience` seconds: within that time a worker that was restarted is back.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._warned: set[tuple[str, str]] = set()
        self._noticed: dict[tuple[str, str], float] = {}
        """When each thing was first seen, in monotonic seconds."""
        self.patience = PATIENCE

    def warn(self, waiting: Iterable[Waiting], workers: Sequence[WorkerState], own: Collection[str]) -> None:
        """`own` are the names that this worker serves: of two functions under one name it warns for these."""
        missing = {(one.kind, one.name): one for one in unserved(waiting, workers)}
        twins = {("twins", name): homes for name, homes in find_twins(workers).items() if name in own}
        now = monotonic()
        self._noticed = {what: self._noticed.get(what, now) for what in missing.keys() | twins.keys()}
        ripe = {what for what, at in self._noticed.items() if now - at >= self.patience}
        for what, one in missing.items():
            if what in ripe - self._warned:
                told = describe_unserved(one.kind, one.name, one.queue)
                self._log.warning("%s (such as %s)", told, one.key or one.id)
        for what, homes in twins.items():
            if what in ripe - self._warned:
                self._log.warning("%s", describe_twins(what[1], homes))
        self._warned = ripe
