"""The operation of a migration that makes the tables of the outbox, on whichever database it is run."""

from __future__ import annotations

from typing import Any, Final

from django.db.migrations.operations.base import Operation

from semel.errors import ConfigError
from semel.transactional.outbox.database import tables_sql
from semel.transactional.statements import split_statements

DIALECTS: Final = {"postgresql": "postgres", "sqlite": "sqlite", "mysql": "mysql"}
"""The kinds of databases by the names that Django has for them."""


class CreateOutbox(Operation):
    """Make what `semel outbox init` makes; backwards, remove all of it. Routers decide where, by the label `semel`."""

    reversible = True
    reduces_to_sql = True

    def state_forwards(self, app_label: str, state: Any) -> None:
        """There are no models: Semel reads and writes the tables by itself."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Make the tables."""
        _run(app_label, schema_editor, drop=False)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Remove the tables. Rows that no relay has taken yet are lost."""
        _run(app_label, schema_editor, drop=True)

    def describe(self) -> str:
        """For the output of `migrate`."""
        return "Create the tables of the outbox and of the inbox"


def _run(app_label: str, schema_editor: Any, *, drop: bool) -> None:
    from django.db import router

    connection = schema_editor.connection
    if not router.allow_migrate(connection.alias, app_label):
        return
    dialect = DIALECTS.get(connection.vendor)
    if dialect is None:
        raise ConfigError(
            f"the database {connection.alias!r} is a {connection.vendor}, in which no outbox can be: keep the app "
            f"{app_label!r} away from it with a database router (allow_migrate)."
        )
    for statement in split_statements(tables_sql(dialect, drop=drop)):
        schema_editor.execute(statement, params=None)
