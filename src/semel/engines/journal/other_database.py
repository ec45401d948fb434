"""The refusal of a connection that is to another database than the engine's."""

from __future__ import annotations

from semel.engine.caller_connection import CallerConnection
from semel.engines.journal.script import Row
from semel.errors import InvalidValue


def refuse_other_database(connection: CallerConnection, theirs: Row | None, ours: str) -> InvalidValue:
    """The error, which names both. `theirs`: what their database says of itself, its name first."""
    name = connection.dialect if theirs is None else f"the {connection.dialect} database {theirs[0] or 'in memory'!r}"
    return InvalidValue(
        f"connection= is a {connection.kind} to {name}, and this app's engine is {ours}: one transaction cannot be in "
        "both. Give a connection to the engine's database, or keep Semel's tables where your rows are."
    )
