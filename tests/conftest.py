"""Async tests without a plug-in, and a real database for each test."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.server import Postgres, postgres
from semel.testing.temporal_server import TemporalServer, temporal_server
from tests.temporal_world import TemporalWorld
from tests.world import SKEWED_NOW, World

_numbers = itertools.count(1)
HERE = Path(__file__).parent
TEMPORAL, CLI, FAULTS = HERE / "engines" / "temporal", HERE / "cli", HERE / "faults"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests in an event loop of their own, and close the world inside of it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    worlds = [value for value in pyfuncitem.funcargs.values() if isinstance(value, World)]

    async def main() -> None:
        try:
            await pyfuncitem.obj(**wanted)
        finally:
            for world in worlds:
                await world.close()

    asyncio.run(main())
    return True


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One real PostgreSQL for the whole run."""
    with (
        tempfile.TemporaryDirectory(prefix="semel-tests-") as name,
        postgres(_open_to_all(name), throwaway=True) as server,
    ):
        server.sql("create database semel_template")
        url = server.url("semel_template")

        async def prepare() -> None:
            import semel

            async with semel.App(url, config=None, auto_migrate=True) as app:
                await app.migrate()

        asyncio.run(prepare())
        server.sql(SKEWED_NOW, "semel_template")
        yield server


HASTY = {
    "history.defaultWorkflowTaskTimeout": '"4s"',  # ten otherwise: for so long waits what a dead worker held
    "worker.perNamespaceWorkerCount": "0",  # of the server's own, for each of many hundred namespaces
}


@pytest.fixture(scope="session", name="temporal_server")
def _temporal_server() -> Iterator[TemporalServer]:
    """One real Temporal server for the whole run; a new namespace takes it some 20 ms."""
    with (
        tempfile.TemporaryDirectory(prefix="semel-tests-") as name,
        temporal_server(Path(name), config=HASTY) as server,
    ):
        yield server


def _open_to_all(folder: str) -> Path:
    """Run as root, PostgreSQL becomes another user, who must be able to walk in."""
    Path(folder).chmod(0o755)
    return Path(folder)


def new_world(engine: str, folder: Path, request: pytest.FixtureRequest) -> World:
    """An empty database with Semel's tables."""
    if engine == "sqlite":
        return World("sqlite", f"sqlite:///{folder}/semel.db")
    if engine == "temporal":
        cluster: TemporalServer = request.getfixturevalue("temporal_server")
        namespace = f"t{next(_numbers)}-{os.getpid()}"
        return TemporalWorld(cluster.url(namespace), namespace, f"sqlite:///{folder}/records.db")
    server: Postgres = request.getfixturevalue("postgres_server")
    name = f"t{next(_numbers)}"
    server.sql(f"create database {name} template semel_template")
    return World("postgres", server.url(name))


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """The same promise on every engine: a test that takes `world` runs on each."""
    return new_world(request.param, tmp_path, request)


@pytest.fixture
def sqlite_world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """For what only SQLite does."""
    return new_world("sqlite", tmp_path, request)


@pytest.fixture
def postgres_world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """For what only PostgreSQL does."""
    return new_world("postgres", tmp_path, request)


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Say what a proof did: printed at the end of the run, also from a process whose output nobody sees."""

    def say(line: str) -> None:
        print(line, flush=True)
        record_property("told", line)

    return say


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what the proofs said they did."""
    reports = [one for kind in ("passed", "failed") for one in terminalreporter.getreports(kind) if one.when == "call"]
    told = [str(line) for one in reports for name, line in one.user_properties if name == "told"]
    if told:
        terminalreporter.section("what was tried")
        terminalreporter.write_line("\n".join(told))


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Fast ones first, so that a broken build says so early. What needs a cluster, or stands beside one, is slow.

    So is what the command line and the faults do on PostgreSQL: the fast tests try them on SQLite.

    Long proofs come before short ones: handed out one by one, they leave no process without work at the end.
    """
    for item in items:
        beside = {"world"} if item.path.parent == TEMPORAL else set()
        if not ({"temporal_server", "cluster"} | beside).isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
        if item.path.parent in (CLI, FAULTS) and "postgres" in item.name:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)
    items.sort(key=lambda item: not any(mark.kwargs.get("long") for mark in item.iter_markers("proof")))
