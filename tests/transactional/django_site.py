"""A Django without a project: connections to any database of a test."""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings

_numbers = itertools.count(1)


def connection_to(url: str) -> tuple[Any, Any]:
    """A connection of Django's to a database of a test, and `transaction.atomic`."""
    if not settings.configured:
        settings.configure(DATABASES={}, INSTALLED_APPS=[], USE_TZ=True)
        django.setup()
    from django.db import connections, transaction

    parts, alias = urlsplit(url), f"test{next(_numbers)}"
    if parts.scheme == "sqlite":
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    else:
        database = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.path[1:],
            "USER": parts.username,
            "HOST": parts.hostname,
            "PORT": str(parts.port),
        }
    connections.databases[alias] = database
    connections.configure_settings(connections.databases)
    return connections[alias], transaction.atomic
