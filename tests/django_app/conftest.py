"""A Django project for each kind of database: its engine elsewhere, with an outbox, or in the same database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import new_world
from tests.django_app.site import Site
from tests.outbox.conftest import new_database
from tests.transactional.django_site import add_database, set_up

set_up()

ELSEWHERE = ["sqlite", "postgres", "mariadb"]
TOGETHER = ["sqlite-together", "postgres-together"]


def new_site(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """A migrated database with a table of orders, and the task backend on it."""
    name, _, together = kind.partition("-")
    world = new_world(name if together else "sqlite", folder, request)
    url = world.url if together else new_database(name, folder, request).url
    site = Site(world, add_database(url), url)
    with site.open():
        yield site
    asyncio.run(world.close())


@pytest.fixture(params=[*ELSEWHERE, *TOGETHER])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """The same promise wherever the rows and the engine are."""
    yield from new_site(request.param, tmp_path, request)


@pytest.fixture(params=ELSEWHERE)
def outbox_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """The engine is elsewhere."""
    yield from new_site(request.param, tmp_path, request)


@pytest.fixture
def sqlite_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """For what does not depend on the database."""
    yield from new_site("sqlite", tmp_path, request)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """The fast tests try SQLite."""
    for item in items:
        if item.path.parent == Path(__file__).parent and ("postgres" in item.name or "mariadb" in item.name):
            item.add_marker(pytest.mark.slow)
