"""Every kind of database that an outbox can be in, and an app whose engine is elsewhere."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path

import pytest

from bench.server import Postgres
from tests.conftest import new_world
from tests.outbox.places import PLACES, Place
from tests.world import World

_numbers = itertools.count(1)


def new_database(kind: str, folder: Path, request: pytest.FixtureRequest) -> Place:
    """An empty database."""
    number = next(_numbers)
    if kind == "sqlite":
        (folder / f"shop{number}.db").touch()
        place = PLACES[kind](f"sqlite:///{folder}/shop{number}.db")
    elif kind == "postgres":
        server: Postgres = request.getfixturevalue("postgres_server")
        name = f"shop{number}"
        server.sql(f"create database {name}")
        request.addfinalizer(lambda: server.sql(f"drop database {name} with (force)"))
        place = PLACES[kind](server.url(name))
    else:
        address: str = request.getfixturevalue("mariadb_server")
        name = f"shop{number}_{os.getpid()}"
        make = PLACES[kind](f"{address}mysql")
        asyncio.run(make.sql(f"create database {name} character set utf8mb4"))
        place = PLACES[kind](f"{address}{name}")
    return place


def new_place(kind: str, folder: Path, request: pytest.FixtureRequest) -> Place:
    """A database with an outbox, and with nothing of Semel's engine."""
    place = new_database(kind, folder, request)
    asyncio.run(place.prepare())
    return place


@pytest.fixture(params=list(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The same promise wherever the business keeps its rows."""
    return new_place(request.param, tmp_path, request)


@pytest.fixture
def postgres_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """For what only PostgreSQL does."""
    return new_place("postgres", tmp_path, request)


@pytest.fixture
def sqlite_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """For what does not depend on the database."""
    return new_place("sqlite", tmp_path, request)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """The engine: a file, which is the quickest."""
    return new_world("sqlite", tmp_path, request)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The fast tests try SQLite."""
    for item in items:
        if item.path.parent == Path(__file__).parent and ("postgres" in item.name or "mariadb" in item.name):
            item.add_marker(pytest.mark.slow)
