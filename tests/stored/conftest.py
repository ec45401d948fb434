"""A world for each kept database: the SQLite file, and the PostgreSQL dump."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.server import Postgres
from tests.stored.kept import (
    KEPT,
    Kept,
    RestoredWorld,
    restore_postgres,
    restored_postgres,
    restored_sqlite,
)

HERE = Path(__file__).parent
JOURNALS = ("sqlite", "postgres")


@pytest.fixture(scope="session")
def stored_template(postgres_server: Postgres) -> Callable[[Kept], str]:
    """Restores each dump once."""
    done: dict[str, str] = {}

    def template(kept: Kept) -> str:
        if kept.name not in done:
            done[kept.name] = restore_postgres(kept, postgres_server)
        return done[kept.name]

    return template


@pytest.fixture(
    params=[(kept, engine) for kept in KEPT for engine in JOURNALS], ids=lambda one: f"{one[0].name}-{one[1]}"
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> RestoredWorld:
    """A copy of what a release has stored, at the time at which it did."""
    kept, engine = request.param
    if engine == "sqlite":
        return RestoredWorld(kept, engine, f"sqlite:///{restored_sqlite(kept, tmp_path)}")
    server: Postgres = request.getfixturevalue("postgres_server")
    template = request.getfixturevalue("stored_template")(kept)
    name = restored_postgres(server, template, kept.ahead(engine))
    return RestoredWorld(kept, engine, server.url(name))


@pytest.fixture(params=KEPT, ids=lambda kept: kept.name)
def kept(request: pytest.FixtureRequest) -> Kept:
    """What one release has stored."""
    one: Kept = request.param
    return one


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The fast tests go on with the SQLite file, the slow ones with the dump too."""
    for item in items:
        if item.path.parent == HERE and "postgres" in item.name:
            item.add_marker(pytest.mark.slow)
