"""A start that is in an outbox, found by what it goes by: for answers before a relay has taken it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from semel.engine.caller_connection import CallerConnection
from semel.engine.start_request import StartRequest
from semel.transactional.caller_thread import complete
from semel.transactional.outbox.events import OutboxStatus, read_time
from semel.transactional.outbox.verbs import execute
from semel.transactional.recognise import recognise_sync
from semel.transactional.statements import One


class RecordedStart(NamedTuple):
    """A start in an outbox."""

    status: OutboxStatus
    request: StartRequest
    last_error: str | None
    created_at: datetime


def find_start_sync(connection: Any, namespace: str, aggregate_id: str) -> RecordedStart | None:
    """The newest start with this `aggregate_id`: its key or, without one, its id. None also where is no outbox."""
    return complete(_find(recognise_sync(connection), namespace, aggregate_id))


async def _find(connection: CallerConnection, namespace: str, aggregate_id: str) -> RecordedStart | None:
    if not await execute(connection, One("outbox_exists")):
        return None
    for status, payload, last_error, created_at in await execute(
        connection, One("find_start", (namespace, aggregate_id))
    ):
        request = StartRequest.from_bytes(payload.encode())
        return RecordedStart(OutboxStatus(status), request, last_error, read_time(created_at))
    return None
