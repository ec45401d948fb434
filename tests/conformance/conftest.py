"""One PostgreSQL database for all promises, emptied between them: a new one for each would take most of the time."""

from pathlib import Path

import pytest

from semel.engines.factory import POSTGRES, SQLITE
from semel.engines.temporal.engine import TEMPORAL
from tests.conftest import new_world
from tests.postgres import SharedPostgres
from tests.world import World

HERE = Path(__file__).parent
ENGINES = {"sqlite": SQLITE, "postgres": POSTGRES, "temporal": TEMPORAL}
JOURNALS = ("sqlite", "postgres")
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
def shared_database(postgres_server: SharedPostgres) -> str:
    postgres_server.sql("create database promises template semel_template")
    postgres_server.keep("promises")
    return "promises"


@pytest.fixture(params=list(ENGINES))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """The same promise on every engine. What spoils the tables themselves takes a `postgres_world` of its own."""
    if request.param == "sqlite":
        return new_world("sqlite", tmp_path, request)
    if request.param == "temporal":
        return new_world("temporal", tmp_path, request)
    server: SharedPostgres = request.getfixturevalue("postgres_server")
    database: str = request.getfixturevalue("shared_database")
    server.sql(EMPTY, database)
    return World("postgres", server.url(database))


MANY_PROMISES = (
    "test_workflow_",
    "test_entity_",
    "test_a_start_may_be_sent_again",
    "test_close_flushes",
    "test_drain",
    "test_errors_are_data",
    "test_events",
    "test_gathered_events",
    "test_hostile_objects",
    "test_limited_events",
    "test_log_records",
    "test_metrics",
    "test_paused_subscriptions",
    "test_rate_limit",
    "test_retry_policy",
    "test_runs_cancelled_by_events",
    "test_schedules",
    "test_sweepers",
    "test_undecodable",
    "test_worker_events",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every promise is for every engine that declares it. What an engine does not promise is not collected for it.

    Workflows, entities and what operators see are many promises: the fast tests keep them on SQLite, the slow ones on
    PostgreSQL.
    """
    left_out = [item for item in items if not promised(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    for item in items:
        many = item.path.name.startswith(MANY_PROMISES) and item.path.parent == HERE
        if "temporal" in item.name or (many and "postgres" in item.name):
            item.add_marker(pytest.mark.slow)


def promised(item: pytest.Item) -> bool:
    """Does the engine of this test declare what the test is about? See docs/reference/engines.md."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return True
    engine = item.callspec.params.get("world")
    if engine not in ENGINES:
        return True
    if item.get_closest_marker("journal") is not None and engine not in JOURNALS:
        return False
    return all(getattr(ENGINES[engine], name) for mark in item.iter_markers("needs") for name in mark.args)
