"""A Django without a project: connections to any database of a test."""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings

_numbers = itertools.count(1)
ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mysql": "mysql"}


def set_up() -> None:
    """Once in a process."""
    if not settings.configured:
        settings.configure(DATABASES={}, INSTALLED_APPS=["semel.django"], USE_TZ=True)
        django.setup()


def add_database(url: str) -> str:
    """Add a database of a test to Django's settings; its alias."""
    set_up()
    from django.db import connections

    parts, alias = urlsplit(url), f"test{next(_numbers)}"
    database: dict[str, Any] = {"ENGINE": f"django.db.backends.{ENGINES[parts.scheme]}"}
    if parts.scheme == "sqlite":
        database["NAME"] = url.removeprefix("sqlite:///")
    else:
        database |= {
            "NAME": parts.path[1:],
            "USER": parts.username,
            "HOST": parts.hostname,
            "PORT": str(parts.port),
        }
    if parts.scheme == "mysql":
        import pymysql

        pymysql.install_as_MySQLdb()
    connections.databases[alias] = database
    connections.configure_settings(connections.databases)
    return alias


def connection_to(url: str) -> tuple[Any, Any]:
    """A connection of Django's to a database of a test, and `transaction.atomic`."""
    alias = add_database(url)
    from django.db import connections, transaction

    return connections[alias], transaction.atomic
