"""Sites and fork servers for the fault tests, and how the time of `make proof` is shared."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.faults.site import Site
from tests.postgres import SharedPostgres

_databases = iter(range(1, 10_000))


@pytest.fixture(scope="session")
def built_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with tables and triggers, to copy."""
    folder = tmp_path_factory.mktemp("site")
    site = Site("sqlite", f"sqlite:///{folder}/semel.db", str(folder))
    asyncio.run(site.build())
    return site.template


@pytest.fixture(scope="session")
def built_postgres(postgres_server: SharedPostgres, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with tables and triggers, as a template."""
    name = "faults_template"
    postgres_server.sql(f"create database {name}")
    site = Site("postgres", postgres_server.url(name), str(tmp_path_factory.mktemp("site")))
    asyncio.run(site.build())
    return name


def new_site(engine: str, folder: Path, request: pytest.FixtureRequest) -> Site:
    """A database with tables and triggers."""
    if engine == "sqlite":
        site = Site("sqlite", f"sqlite:///{folder}/semel.db", str(folder))
        for copy in (site.path, site.template):
            shutil.copyfile(request.getfixturevalue("built_sqlite"), copy)
        return site
    template = request.getfixturevalue("built_postgres")
    server: SharedPostgres = request.getfixturevalue("postgres_server")
    name = f"faults{next(_databases)}"
    server.sql(f"create database {name} template {template}")
    return Site("postgres", server.url(name), str(folder))


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """A site on each engine."""
    return new_site(request.param, tmp_path, request)
