"""The migration of the Django app makes what `semel outbox init` makes, on any database of Django's."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

import semel
from semel.django import database_url
from tests.django_app.conftest import ELSEWHERE
from tests.docs.pages import ROOT
from tests.outbox.catalogs import describe
from tests.outbox.conftest import new_database
from tests.transactional.django_site import add_database

DRIVERS = {"sqlite": "sqlite", "postgres": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}


class Database:
    """An empty database of Django's."""

    def __init__(self, url: str, driver: str) -> None:
        self.url = url
        self.alias = add_database(url)
        self._sqlalchemy = f"{driver}://{url.partition('://')[2]}"

    def content(self) -> dict[str, list[Any]]:
        engine = sqlalchemy.create_engine(self._sqlalchemy)
        try:
            with engine.connect() as connection:
                return describe(connection)
        finally:
            engine.dispose()

    def migrate(self, to: str | None = None) -> None:
        call_command("migrate", "semel", *filter(None, [to]), database=self.alias, verbosity=0)


@pytest.fixture(params=ELSEWHERE)
def make_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Database]]:
    yield lambda: Database(new_database(request.param, tmp_path, request).url, DRIVERS[request.param])
    connections.close_all()


def test_the_migration_makes_what_init_makes_and_takes_all_of_it_away(make_database: Callable[[], Database]) -> None:
    initialised, migrated = make_database(), make_database()
    empty = migrated.content()
    asyncio.run(semel.App("sqlite:///:memory:", config=None).outbox.init(initialised.url))
    migrated.migrate()
    assert migrated.content() == initialised.content()
    assert "outbox_events" in str(migrated.content())
    migrated.migrate("zero")
    assert migrated.content() == empty
    migrated.migrate()
    assert migrated.content() == initialised.content()


def test_it_can_be_read_as_sql(make_database: Callable[[], Database]) -> None:
    database, out = make_database(), io.StringIO()
    call_command("sqlmigrate", "semel", "0001", database=database.alias, stdout=out)
    assert "create table if not exists outbox_events" in out.getvalue()
    call_command("sqlmigrate", "semel", "0001", database=database.alias, backwards=True, stdout=out)
    assert "drop table if exists outbox_events" in out.getvalue()
    assert "outbox_events" not in str(database.content())


def test_the_url_of_an_alias_is_that_of_the_database(make_database: Callable[[], Database]) -> None:
    database = make_database()
    assert database_url(database.alias) == database.url


class Router:
    """Keeps the app away from every database."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return app_label != "semel"


def test_a_router_can_keep_it_away(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    database = Database(new_database("sqlite", tmp_path, request).url, "sqlite")
    with override_settings(DATABASE_ROUTERS=[f"{__name__}.Router"]):
        database.migrate()
    assert "outbox_events" not in str(database.content())
    connections.close_all()


def test_there_is_no_migration_missing() -> None:
    call_command("makemigrations", "semel", check=True, dry_run=True, verbosity=0)


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        (
            {"NAME": "shop", "USER": "a@b", "PASSWORD": "p:/w", "HOST": "db", "PORT": 6432},
            "postgresql://a%40b:p%3A%2Fw@db:6432/shop",
        ),
        ({"NAME": "my shop"}, "postgresql://localhost/my%20shop"),
        ({"NAME": "shop", "USER": "u", "HOST": "/run/pg"}, "postgresql://u@/shop?host=%2Frun%2Fpg"),
        (
            {"NAME": "shop", "HOST": "db", "OPTIONS": {"sslmode": "require"}},
            "postgresql://db/shop?sslmode=require",
        ),
    ],
)
def test_urls(settings: dict[str, Any], url: str) -> None:
    alias = add_database("postgresql://localhost:1/x")
    connections.databases[alias] = {"ENGINE": "django.db.backends.postgresql", **settings}
    connections.configure_settings(connections.databases)
    assert database_url(alias) == url


def test_urls_that_there_are_not() -> None:
    with pytest.raises(semel.ConfigError, match="no database 'nope'"):
        database_url("nope")
    with pytest.raises(semel.ConfigError, match="in memory"):
        database_url(add_database("sqlite:///:memory:"))


def test_the_command_line_with_django_set_up(tmp_path: Path) -> None:
    (tmp_path / "durable.py").write_text(
        "import semel\nfrom django.apps import apps\n\nassert apps.ready\napp = semel.App('sqlite:///engine.db')\n"
    )
    code = (
        "import sys; from django.conf import settings; from django.core.management import execute_from_command_line\n"
        "settings.configure(INSTALLED_APPS=['semel.django'])\n"
        "execute_from_command_line(['manage.py', 'semel', 'doctor', 'durable:app', '--json'])"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(tmp_path)])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert '"what"' in done.stdout, done.stdout + done.stderr


def test_tasks_modules_are_imported_if_the_backend_is_semels(tmp_path: Path) -> None:
    (tmp_path / "durable.py").write_text("import semel\n\napp = semel.App('sqlite:///engine.db')\n")
    (tmp_path / "till").mkdir()
    (tmp_path / "till" / "__init__.py").write_text("")
    (tmp_path / "till" / "tasks.py").write_text("from django_tasks import task\n\n@task\ndef close(): ...\n")
    code = (
        "import sys, django; from django.conf import settings\n"
        "own = {'default': {'BACKEND': 'semel.django.task_backend.SemelBackend', 'OPTIONS': {'app': 'durable:app'}}}\n"
        "settings.configure(INSTALLED_APPS=['semel.django', 'till'], TASKS=own if sys.argv[1] == 'own' else {})\n"
        "django.setup()\n"
        "import durable\n"
        "print([task.name for task in durable.app.tasks])"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(tmp_path)])}
    for which, said in (("own", "['till.tasks.close']"), ("other", "[]")):
        command = [sys.executable, "-c", code, which]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200, check=False)
        assert done.stdout.strip() == said, done.stderr
