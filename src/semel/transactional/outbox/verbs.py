"""The verbs of an engine in a transaction of the caller's, where the engine cannot take part in it: rows of an outbox.

A row holds all that a relay needs. The call asks the engine nothing, commits nothing and wakes nobody by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import WeakSet

from semel.contract.decision import Admit
from semel.contract.events import EventState
from semel.contract.keys import check_key
from semel.contract.lifecycle import Status
from semel.engine.caller_connection import CallerConnection
from semel.engine.ids import new_id
from semel.engine.protocol import Admission, Message
from semel.engine.schedules import EngineSchedules
from semel.engine.start_request import StartRequest
from semel.engine.subscriptions import Publication, Receipt
from semel.errors import InvalidValue, MigrationNeeded
from semel.flow.entity_messages import PRIVATE
from semel.transactional.outbox.events import (
    MAX_RETRIES,
    NewRow,
    RowOptions,
    row_of_cancel,
    row_of_message,
    row_of_publication,
    row_of_signal,
    row_of_start,
)
from semel.transactional.outbox.scripts import add
from semel.transactional.outbox.trace import add_trace, current_trace
from semel.transactional.statements import Many, One, Row, Statements, folder_of

SAVEPOINT: Final = "semel"
ADMITTED: Final = Admit(None, 0)
_options: Final[ContextVar[RowOptions]] = ContextVar("semel_outbox_options", default=RowOptions())  # noqa: B039
_known: Final[WeakSet[Any]] = WeakSet()
"""Connections of callers to databases that have an outbox."""
_statements: Final[dict[str, Statements]] = {}


@contextlib.contextmanager
def row_options(
    aggregate_id: str | None, order_key: str | None, on_failure: str | None, max_retries: int | None
) -> Iterator[None]:
    """Rows that are written inside of this have these options; None leaves them as they were."""
    if on_failure not in (None, "hold", "continue"):
        raise InvalidValue(f"on_failure={on_failure!r}: use 'hold' or 'continue'.")
    if max_retries is not None and (isinstance(max_retries, bool) or max_retries < 1):
        raise InvalidValue(f"max_retries={max_retries!r}: use a whole number, 1 or more.")
    old = _options.get()
    new = RowOptions(
        old.aggregate_id if aggregate_id is None else check_key(aggregate_id, "aggregate_id"),
        old.order_key if order_key is None else check_key(order_key, "order_key"),
        on_failure or old.on_failure,
        max_retries or old.max_retries or MAX_RETRIES,
    )
    before = _options.set(new)
    try:
        yield
    finally:
        _options.reset(before)


class OutboxVerbs:
    """Writes rows on a connection of the caller's. What they ask for happens after the commit, by a relay."""

    def __init__(self, connection: CallerConnection, namespace: str, engine: str) -> None:
        self._connection = connection
        self._namespace = namespace
        self._engine = engine

    async def start(self, request: StartRequest) -> Admission:
        """See EngineVerbs. Whether it is a duplicate is not known yet."""
        return (await self.start_many([request]))[0]

    async def start_many(self, requests: Sequence[StartRequest]) -> list[Admission]:
        """See EngineVerbs. A delay begins now."""
        now = datetime.now(UTC)
        await self._write([row_of_start(self._namespace, one.asked_at(now), _options.get()) for one in requests])
        return [Admission(request.id, ADMITTED) for request in requests]

    async def send(self, message: Message) -> str:
        """See EngineVerbs. A relay may have to send it twice, so it has a key in any case."""
        if message.key is None:
            message = Message(message.start, message.name, message.payload, f"{PRIVATE}{new_id()}")
        await self._write([row_of_message(self._namespace, message, _options.get())])
        return message.start.id

    async def signal_later(
        self, execution: str, start: StartRequest | None, name: str, payload: bytes | None, key: str | None
    ) -> None:
        """Signal an execution, or what a request will have started."""
        key = f"outbox:{new_id()}" if key is None else key
        await self._write([row_of_signal(self._namespace, execution, start, name, payload, key, _options.get())])

    async def cancel_later(self, execution: str, start: StartRequest | None) -> Status:
        """Cancel an execution, or what a request will have started."""
        await self._write([row_of_cancel(self._namespace, execution, start, _options.get())])
        return Status.RUNNING

    async def publish(self, publication: Publication) -> Receipt:
        """Publish an event. Which runs it starts is not known yet."""
        await self._write([row_of_publication(self._namespace, publication, _options.get())])
        return Receipt(publication.id, False, EventState.WAITING, (), None)

    async def schedules(self) -> EngineSchedules:
        """InvalidValue: schedules are changed by their engine alone."""
        raise InvalidValue(
            f"connection= is a {self._connection.kind} to another database than this app's engine, {self._engine}: a "
            "schedule cannot be changed in its transaction. Change it after your commit."
        )

    async def add(self, event_type: str, payload: bytes, key: str | None) -> None:
        """A row for a handler of the caller's own."""
        options = _options.get()
        aggregate = key if options.aggregate_id is None else options.aggregate_id
        row = NewRow(self._namespace, event_type, aggregate, payload.decode(), key, None, *options[1:])
        await self._write([row])

    async def _write(self, rows: list[NewRow]) -> None:
        await self._check()
        if (trace := current_trace()) is not None:
            rows = [row._replace(payload=add_trace(row.payload, trace)) if row.is_own else row for row in rows]
        statement = next(add(rows))
        await self._connection.play(lambda: execute(self._connection, statement))

    async def _check(self) -> None:
        """MigrationNeeded: the database has no outbox."""
        connection = self._connection
        with contextlib.suppress(TypeError):
            if connection.driver_connection in _known:
                return
        if not await connection.play(lambda: execute(connection, One("outbox_exists"))):
            found = await connection.play(lambda: execute(connection, One("database_name")))
            database = found[0][0] if found else None
            name = f"the {connection.dialect} database {database or 'in memory'!r}"
            advice = "Make its tables with: semel outbox init --database …"
            if database and urlsplit(self._engine).path == f"/{database}":
                advice = f"If it is the engine's own database, run instead: semel migrate. If not: {advice}"
            raise MigrationNeeded(
                f"connection= is a {connection.kind} to {name}, and this app's engine is {self._engine}: what is asked "
                f"for on it is written to an outbox there, and there is none yet. {advice}"
            )
        with contextlib.suppress(TypeError):
            _known.add(connection.driver_connection)


async def execute(connection: CallerConnection, statement: One | Many) -> list[Row]:
    """Run a statement of the outbox on a connection of the caller's. Several rows: all of them or none."""
    dialect = connection.dialect
    if dialect not in _statements:
        _statements[dialect] = Statements(folder_of(dialect), arrays=dialect == "postgres")
    rendered = _statements[dialect].render(statement)
    if len(rendered) == 1:
        return await connection.fetch(*rendered[0])
    await connection.fetch(f"savepoint {SAVEPOINT}", ())
    try:
        rows = [row for sql, args in rendered for row in await connection.fetch(sql, args)]
    except Exception:
        await connection.fetch(f"rollback to savepoint {SAVEPOINT}", ())
        raise
    await connection.fetch(f"release savepoint {SAVEPOINT}", ())
    return rows
