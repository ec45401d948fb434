"""Numbered migrations, the same numbers in both databases; killed in the middle, they converge."""

from __future__ import annotations

import re

from semel.engines.journal.script import Ask, Line, Raw, Script, procedure
from semel.errors import SchemaTooNew

Migration = tuple[int, str, str]


@procedure(Line.CONTROL)
def applied() -> Script[list[int]]:
    """The numbers that are in."""
    if not (yield Ask("migrations_exist"))[0][0]:
        return []
    return [row[0] for row in (yield Ask("applied"))]


@procedure(Line.CONTROL)
def begin() -> Script[None]:
    """The table that remembers the rest."""
    yield Ask("lock_migrations")
    yield Ask("make_migrations")


@procedure(Line.CONTROL)
def apply(migration: Migration) -> Script[bool]:
    """One migration and its record in one transaction; False if someone else was first."""
    number, name, text = migration
    yield Ask("lock_migrations")
    if number in [row[0] for row in (yield Ask("applied"))]:
        return False
    for at, piece in enumerate(re.split(r";\s*\n\s*\n", text), 1):
        if piece.strip():
            yield Raw(f"migration {number:04} part {at}", piece)
    yield Ask("record_migration", (number, name))
    return True


def missing(migrations: list[Migration], applied_: list[int]) -> list[Migration]:
    """What is still to be applied. Tables from the future are refused."""
    known = [number for number, _, _ in migrations]
    if applied_ and max(applied_) > max(known):
        raise SchemaTooNew(
            f"the tables are at migration {max(applied_)}, this Semel knows up to {max(known)}: upgrade Semel."
        )
    return [migration for migration in migrations if migration[0] not in applied_]
