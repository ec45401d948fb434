"""Effects that happen once in the caller's own database: the key of each is recorded in the same transaction."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from semel.contract.durations import Duration, parse_duration
from semel.contract.keys import check_key
from semel.engine.bounded import give_up_after
from semel.engine.caller_connection import CallerConnection
from semel.errors import MigrationNeeded
from semel.transactional.caller_thread import complete
from semel.transactional.outbox.verbs import execute
from semel.transactional.recognise import recognise, recognise_sync
from semel.transactional.statements import One

KEEP: Final = timedelta(days=30)
TIMEOUT: Final = timedelta(seconds=30)


async def once(connection: Any, key: str, *, keep: Duration = KEEP, timeout: Duration = TIMEOUT) -> bool:
    """Record a key in your transaction: True the first time, False if its effect has happened before.

    Inside a task or a handler, with a key that is the same at every attempt: `if await semel.once(session,
    semel.effect_key("debit")): …`. What you write next on the connection is committed with the key, or not at all. Two
    transactions with one key: the second waits for the first. The key counts for `keep`, and then is forgotten.
    EngineUnavailable: the database did not answer within `timeout`. For a connection without await there is
    `once_sync`, which waits as long as its driver does.
    """
    seconds = parse_duration(keep, "keep").total_seconds()
    limit = parse_duration(timeout, "timeout").total_seconds()
    key = check_key(key, "key")

    async def record() -> bool:
        found = await recognise(connection)
        return await found.play(lambda: _record(found, key, seconds))

    return await give_up_after(limit, "once", record())


def once_sync(connection: Any, key: str, *, keep: Duration = KEEP) -> bool:
    """The same as `once` for connections without await, such as `sqlite3`, psycopg2, a Session or Django's."""
    seconds = parse_duration(keep, "keep").total_seconds()
    key = check_key(key, "key")
    return complete(_record(recognise_sync(connection), key, seconds))


async def _record(connection: CallerConnection, key: str, seconds: float) -> bool:
    if not await execute(connection, One("inbox_exists")):
        raise MigrationNeeded(
            f"connection= is a {connection.kind} to a database without the table inbox_keys. Make it with: "
            "semel outbox init --database …"
        )
    if await execute(connection, One("record_key", (key, seconds))):
        return True
    return bool(await execute(connection, One("renew_key", (key, seconds))))
