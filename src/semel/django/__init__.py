"""Semel in a Django project: the tables of the outbox as a migration, a backend for Django's tasks, a command.

Add `"semel.django"` to INSTALLED_APPS. Nothing of Django is imported until it is used.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode

from semel.errors import ConfigError

_SCHEMES = {"postgresql": "postgresql", "sqlite": "sqlite", "mysql": "mysql"}


def database_url(alias: str = "default") -> str:
    """A database of Django's settings as a URL, such as `semel.App(outbox=database_url())` wants it.

    ConfigError: there is no such alias, or Semel cannot use a database of its kind.
    """
    from django.db import connections

    if alias not in connections.settings:
        raise ConfigError(f"there is no database {alias!r} in DATABASES. There are: {', '.join(connections.settings)}.")
    connection = connections[alias]
    scheme = _SCHEMES.get(connection.vendor)
    if scheme is None:
        raise ConfigError(
            f"the database {alias!r} is a {connection.vendor}: Semel can use PostgreSQL, SQLite, MySQL and MariaDB."
        )
    given = connection.settings_dict
    name = str(given["NAME"])
    if scheme == "sqlite":
        if connection.is_in_memory_db():
            raise ConfigError(f"the database {alias!r} is in memory, where no other connection finds it: use a file.")
        return f"sqlite:///{name}"
    query: dict[str, str] = {}
    host, user, password, port = (str(given.get(key) or "") for key in ("HOST", "USER", "PASSWORD", "PORT"))
    if host.startswith("/"):  # a socket
        query["host" if scheme == "postgresql" else "unix_socket"] = host
        host = ""
    elif not host:
        host = "localhost"
    if sslmode := given.get("OPTIONS", {}).get("sslmode"):
        query["sslmode"] = str(sslmode)
    who = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    where = (f"{who}@" if who else "") + host + (f":{port}" if port and host else "")
    return f"{scheme}://{where}/{quote(name, safe='')}" + (f"?{urlencode(query)}" if query else "")
