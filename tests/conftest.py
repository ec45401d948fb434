"""Async tests without a plug-in, and a real database for each test."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from bench.server import postgres
from semel.testing.temporal_server import TemporalServer, temporal_server
from tests.faults.forks import Forks, forks
from tests.outbox.mariadb import INSTALL, MISSING, SERVER, mariadb
from tests.postgres import SharedPostgres
from tests.scratch import keep_scratch_files_in_memory
from tests.temporal_world import TemporalWorld
from tests.world import SKEWED_NOW, World

keep_scratch_files_in_memory()

# How long an example takes says something about the machine, which may be busy.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

_numbers = itertools.count(1)
HERE = Path(__file__).parent
TEMPORAL, CLI, FAULTS = HERE / "engines" / "temporal", HERE / "cli", HERE / "faults"
TRANSACTIONAL = HERE / "transactional"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests in an event loop of their own, and close the world inside of it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    worlds = [value for value in pyfuncitem.funcargs.values() if isinstance(value, World)]

    async def main() -> None:
        for world in worlds:
            world.in_one_loop = True
        try:
            await pyfuncitem.obj(**wanted)
        finally:
            for world in worlds:
                await world.close()

    asyncio.run(main())
    return True


async def make_tables(url: str) -> None:
    """Apply every migration."""
    import semel

    async with semel.App(url, config=None, auto_migrate=True) as app:
        await app.migrate()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with Semel's tables and nothing in them, to copy: to make them takes ten times as long."""
    file = tmp_path_factory.mktemp("template") / "semel.db"
    asyncio.run(make_tables(f"sqlite:///{file}"))
    return file


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[SharedPostgres]:
    """One real PostgreSQL for the whole run."""
    with (
        tempfile.TemporaryDirectory(prefix="semel-tests-") as name,
        postgres(_open_to_all(name), throwaway=True) as process,
        closing(SharedPostgres(process)) as server,
    ):
        server.sql("create database semel_template")
        asyncio.run(make_tables(server.url("semel_template")))
        server.sql(SKEWED_NOW, "semel_template")
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[str]:
    """One real MariaDB for the whole run."""
    if SERVER is None or INSTALL is None:
        pytest.skip(MISSING)
    with tempfile.TemporaryDirectory(prefix="semel-tests-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        with mariadb(Path(name)) as url:
            yield url


@pytest.fixture(scope="session")
def fork_server() -> Iterator[Forks]:
    """One for all; it does one thing at a time."""
    with forks() as server:
        yield server


HASTY = {
    "history.defaultWorkflowTaskTimeout": '"4s"',  # ten otherwise: for so long waits what a dead worker held
    "worker.perNamespaceWorkerCount": "0",  # of the server's own, for each of many hundred namespaces
}


TESTS_OF_A_SERVER = 40
"""Every second a server goes through the metrics of every namespace that it has seen: after hundreds of them that is
most of what it does. A new one takes a second."""
_uses = itertools.count()


@pytest.fixture(scope="session")
def temporal_process() -> Iterator[TemporalServer]:
    """One real Temporal server for the whole run."""
    with (
        tempfile.TemporaryDirectory(prefix="semel-tests-") as name,
        temporal_server(Path(name), config=HASTY) as server,
    ):
        yield server


@pytest.fixture(name="temporal_server")
def _temporal_server(temporal_process: TemporalServer) -> TemporalServer:
    """A real Temporal server; a new namespace takes it some 20 ms. Now and then it begins anew, with nothing in it."""
    before = next(_uses)
    if before and before % TESTS_OF_A_SERVER == 0:
        temporal_process.kill()
        for file in temporal_process.database.parent.glob(f"{temporal_process.database.name}*"):
            file.unlink()
        temporal_process.start()
    return temporal_process


def _open_to_all(folder: str) -> Path:
    """Run as root, PostgreSQL becomes another user, who must be able to walk in."""
    Path(folder).chmod(0o755)
    return Path(folder)


def new_world(engine: str, folder: Path, request: pytest.FixtureRequest) -> World:
    """An empty database with Semel's tables."""
    if engine == "postgres":
        server: SharedPostgres = request.getfixturevalue("postgres_server")
        name = f"t{next(_numbers)}"
        server.sql(f"create database {name} template semel_template")
        request.addfinalizer(lambda: server.sql(f"drop database {name} with (force)"))
        return World("postgres", server.url(name))
    file = folder / ("semel.db" if engine == "sqlite" else "records.db")
    shutil.copyfile(request.getfixturevalue("sqlite_template"), file)
    if engine == "sqlite":
        return World("sqlite", f"sqlite:///{file}")
    cluster: TemporalServer = request.getfixturevalue("temporal_server")
    namespace = f"t{next(_numbers)}-{os.getpid()}"
    return TemporalWorld(cluster.url(namespace), namespace, f"sqlite:///{file}")


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """The same promise on every engine: a test that takes `world` runs on each."""
    return new_world(request.param, tmp_path, request)


@pytest.fixture
def sqlite_world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """For what only SQLite does."""
    return new_world("sqlite", tmp_path, request)


@pytest.fixture
def new_file(tmp_path: Path) -> World:
    """A SQLite file that nobody has opened yet, without tables."""
    return World("sqlite", f"sqlite:///{tmp_path}/new.db")


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

    So is what the command line, the faults and callers' connections do on PostgreSQL: the fast tests try SQLite.

    Of the slow ones the faults come first, and long proofs before short ones: so none is left to the end, when other
    processes have no more work.
    """
    for item in items:
        beside = {"world"} if item.path.parent == TEMPORAL else set()
        if not ({"temporal_server", "cluster"} | beside).isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
        if item.path.parent in (CLI, FAULTS, TRANSACTIONAL) and "postgres" in item.name:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: FAULTS not in item.path.parents)
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)
    items.sort(key=lambda item: not any(mark.kwargs.get("long") for mark in item.iter_markers("proof")))
