"""Numbered migrations, the same numbers in both databases; killed in the middle, they converge."""

from __future__ import annotations

import re
from collections.abc import Callable

from semel.engine.bounded import slow_work
from semel.engines.journal.script import ConnectionRole, Raw, Script, ScriptRunner, SqlQuery, Store, procedure
from semel.errors import MigrationNeeded, SchemaTooNew
from semel.runtime.retries import retry_unavailable

Migration = tuple[int, str, str]


@procedure(ConnectionRole.READ)
def applied() -> Script[list[int]]:
    """The numbers that are in."""
    if not (yield SqlQuery("migrations_exist"))[0][0]:
        return []
    return [row[0] for row in (yield SqlQuery("applied"))]


@procedure(ConnectionRole.CONTROL)
def begin() -> Script[None]:
    """The table that remembers the rest."""
    yield SqlQuery("lock_migrations")
    yield SqlQuery("make_migrations")


@procedure(ConnectionRole.CONTROL)
def apply(migration: Migration) -> Script[bool]:
    """One migration and its record in one transaction; False if someone else was first."""
    number, name, text = migration
    yield SqlQuery("lock_migrations")
    if number in [row[0] for row in (yield SqlQuery("applied"))]:
        return False
    for at, piece in enumerate(re.split(r";\s*\n\s*\n", text), 1):
        if piece.strip():
            yield Raw(f"migration {number:04} part {at}", piece)
    yield SqlQuery("record_migration", (number, name))
    return True


def missing(migrations: list[Migration], applied_: list[int]) -> list[Migration]:
    """What is still to be applied. Tables from the future are refused."""
    known = [number for number, _, _ in migrations]
    if applied_ and max(applied_) > max(known):
        raise SchemaTooNew(
            f"the tables are at migration {max(applied_)}, this Semel knows up to {max(known)}: upgrade Semel."
        )
    return [migration for migration in migrations if migration[0] not in applied_]


async def migrate(store: Store, progress: Callable[[str], None]) -> list[str]:
    """Apply what is missing, telling each before it begins; what was applied here."""
    if not missing(store.migrations, await retry_unavailable(store.run, applied)):
        return []  # also for a role that may not make tables
    await retry_unavailable(store.run, begin)
    done = []
    for migration in missing(store.migrations, await retry_unavailable(store.run, applied)):
        label = f"{migration[0]:04}_{migration[1]}"
        progress(label)
        with slow_work():
            if await retry_unavailable(store.run, apply, migration):
                done.append(label)
    return done


async def refuse_missing(store: Store, transaction: ScriptRunner) -> None:
    """Look from inside a transaction of the caller's whether all migrations are in. They cannot be applied there."""
    applied_ = await transaction.run(applied)
    if missing(store.migrations, applied_):
        raise MigrationNeeded(
            f"the database is at migration {max(applied_, default=0)}, this Semel needs {store.migrations[-1][0]}, and "
            "tables cannot be made inside your transaction. Make them when your program starts: await app.migrate(), "
            "or: semel migrate"
        )


async def ready(store: Store, auto_migrate: bool, what: str = "the database") -> None:
    """Look whether all migrations are in. If not, apply them, or say what to do."""
    applied_ = await retry_unavailable(store.run, applied)
    wanted = missing(store.migrations, applied_)
    if wanted and not auto_migrate:
        raise MigrationNeeded(
            f"{what} is at migration {max(applied_, default=0)}, this Semel needs {wanted[-1][0]}. "
            "Run: semel migrate (or pass auto_migrate=True)."
        )
    if wanted:
        await migrate(store, lambda _: None)
