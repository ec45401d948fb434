"""One database of each engine for all kinds of connections, emptied between them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

import semel
from tests.conformance.conftest import EMPTY
from tests.conftest import new_world
from tests.postgres import SharedPostgres
from tests.transactional.kinds import KINDS, Caller
from tests.world import World

ORDERS = "create table if not exists orders (id integer primary key)"
Callers = Callable[[semel.App], AbstractAsyncContextManager[Caller]]


@pytest.fixture(scope="session")
def business(postgres_server: SharedPostgres) -> str:
    postgres_server.sql("create database business template semel_template")
    postgres_server.keep("business")
    postgres_server.sql(ORDERS, "business")
    return "business"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `kind` runs with every kind of connection, unless it names some."""
    named = any(mark.args[0] == "kind" for mark in metafunc.definition.iter_markers("parametrize"))
    if "kind" in metafunc.fixturenames and not named:
        every = [(engine, one) for engine, kinds in KINDS.items() for one in kinds]
        metafunc.parametrize("kind", every, ids=[f"{engine}-{one.__name__}" for engine, one in every])


@pytest.fixture
def world(kind: tuple[str, type[Caller]], request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """The database of the engine and of the business."""
    if kind[0] == "sqlite":
        return new_world("sqlite", tmp_path, request)
    server: SharedPostgres = request.getfixturevalue("postgres_server")
    database: str = request.getfixturevalue("business")
    server.sql(EMPTY + "; delete from orders", database)
    return World("postgres", server.url(database))


@pytest.fixture
def caller(kind: tuple[str, type[Caller]], world: World) -> Callers:
    """`async with caller(app) as connection`: a new connection of the kind."""

    @asynccontextmanager
    async def connected(app: semel.App) -> AsyncIterator[Caller]:
        if kind[0] == "sqlite":
            await app.migrate()
            await world.sql(ORDERS)
        made = kind[1](world.url, app)
        await made.connect()
        try:
            yield made
        finally:
            await made.close()
            app.sync.close()

    return connected
