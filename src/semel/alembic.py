"""The tables of the outbox and of the inbox in a migration of Alembic's.

from alembic import op
from semel.alembic import create_outbox, drop_outbox

def upgrade() -> None:
    create_outbox(op)

def downgrade() -> None:
    drop_outbox(op)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text

from semel.errors import ConfigError
from semel.transactional.outbox.database import DIALECTS, tables_sql
from semel.transactional.statements import split_statements

if TYPE_CHECKING:
    from alembic.operations import Operations

TABLES: Final = frozenset({"outbox_events", "outbox_relays", "outbox_destinations", "inbox_keys"})
ENGINE_TABLES: Final = "semel_"
"""What the names of an engine's own tables begin with, which `semel migrate` makes."""


def create_outbox(op: Operations) -> None:
    """Make what `semel outbox init` makes, on PostgreSQL with its functions. What is there already stays as it is."""
    _run(op, drop=False)


def drop_outbox(op: Operations) -> None:
    """Remove all that `create_outbox` makes. Rows that no relay has taken yet are lost."""
    _run(op, drop=True)


def include_object(object: Any, name: str | None, type_: str, reflected: bool, compare_to: Any) -> bool:
    """For `context.configure(include_object=…)`: autogenerate leaves Semel's tables alone that your metadata has not.

    Those are the tables of the outbox, if you do not add them with `semel.sqlalchemy.add_outbox_tables`, and the tables
    of an engine in the same database.
    """
    if type_ != "table" or not reflected or compare_to is not None or name is None:
        return True
    return name not in TABLES and not name.startswith(ENGINE_TABLES)


def _run(op: Operations, *, drop: bool) -> None:
    name = op.get_context().dialect.name
    if name not in DIALECTS:
        raise ConfigError(f"an outbox can be in PostgreSQL, SQLite, MySQL and MariaDB, and not in {name}.")
    for statement in split_statements(tables_sql(DIALECTS[name], drop=drop)):
        op.execute(text(statement.replace(":", r"\:")))  # a colon would begin a parameter
