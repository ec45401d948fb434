"""Sites and fork servers for the fault tests, and how the time of `make proof` is shared."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.server import Postgres
from tests.faults.forks import Forks, forks
from tests.faults.site import Site

_databases = iter(range(1, 10_000))


def new_site(engine: str, folder: Path, request: pytest.FixtureRequest) -> Site:
    """A database with tables and triggers."""
    if engine == "sqlite":
        site = Site("sqlite", f"sqlite:///{folder}/semel.db", str(folder))
    else:
        server: Postgres = request.getfixturevalue("postgres_server")
        name = f"faults{next(_databases)}"
        server.sql(f"create database {name}")
        site = Site("postgres", server.url(name), str(folder))
    asyncio.run(site.build())
    return site


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """A site on each engine."""
    return new_site(request.param, tmp_path, request)


@pytest.fixture(scope="session")
def fork_server() -> Iterator[Forks]:
    """One for all; it does one thing at a time."""
    with forks() as server:
        yield server
