"""One PostgreSQL database for all promises, emptied between them: a new one for each would take most of the time."""

from pathlib import Path

import pytest

from bench.server import Postgres
from tests.conftest import new_world
from tests.world import World

HERE = Path(__file__).parent
EMPTY = """
do $$ declare name text; begin
  for name in select tablename from pg_tables where schemaname = 'public' and tablename like 'semel\\_%'
                 and tablename not in ('semel_migration', 'semel_skew')
  loop execute 'delete from ' || name; end loop;
  delete from semel_migration where number > 1000;
  update semel_skew set micros = 0;
end $$
"""


@pytest.fixture(scope="session")
def shared_database(postgres_server: Postgres) -> str:
    postgres_server.sql("create database promises template semel_template")
    return "promises"


@pytest.fixture(params=["sqlite", "postgres", "temporal"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """The same promise on every engine. What spoils the tables themselves takes a `postgres_world` of its own."""
    if request.param == "sqlite":
        return new_world("sqlite", tmp_path, request)
    if request.param == "temporal":
        return new_world("temporal", tmp_path, request)
    server: Postgres = request.getfixturevalue("postgres_server")
    database: str = request.getfixturevalue("shared_database")
    server.sql(EMPTY, database)
    return World("postgres", server.url(database))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Workflows and entities are many promises: the fast tests keep them on SQLite, the slow ones on PostgreSQL."""
    for item in items:
        flows = item.path.name.startswith(("test_workflow_", "test_entity_")) and item.path.parent == HERE
        if "temporal" in item.name or (flows and "postgres" in item.name):
            item.add_marker(pytest.mark.slow)
