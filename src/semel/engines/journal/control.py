"""What people ask for from outside: cancel, terminate, signal, redrive, settings of queues."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from semel.contract.lifecycle import RELEASED, Status
from semel.contract.times import micros
from semel.engines.journal.admit import insert
from semel.engines.journal.rows import ExecutionRow
from semel.engines.journal.script import ConnectionRole, Row, Script, SqlBatch, SqlQuery, Store, procedure
from semel.errors import EngineUnavailable, InvalidValue
from semel.runtime.retries import retry_unavailable
from semel.settings import QueueSettings

_TRIES = 10


@procedure(ConnectionRole.CONTROL)
def cancel(namespace: str, id_: str) -> Script[Status | None]:
    """Cancel what waits, ask what runs. The status afterwards, None if there is no such execution."""
    for _ in range(_TRIES):
        rows = yield SqlQuery("flow_kind", (namespace, id_))
        if not rows:
            return None
        kind, status, flows, begun = rows[0]
        if Status(status).terminal:
            return Status(status)
        if kind != "task" and flows and begun:
            yield SqlBatch("deliver", [(id_, "cancel", "", None, None, None)])
            return Status.RUNNING
        waiting = yield SqlQuery("withdraw", (id_,))
        if waiting:
            yield SqlBatch("end", [(id_, Status.CANCELLED.value, None, waiting[0][0])])
            if kind != "task":
                yield from close([id_])
            return Status.CANCELLED
        if kind != "task":
            yield SqlBatch("deliver", [(id_, "cancel", "", None, None, None)])
            return Status.RUNNING
        if (yield SqlQuery("ask_to_stop", (id_,))):
            return Status.RUNNING
        # It changed hands between two statements; look again.
    found = yield SqlQuery("get", (namespace, id_))
    if found and found[0][-1]:  # stranded: nobody will ever run it
        yield SqlBatch("end", [(id_, Status.CANCELLED.value, None, 0)])
        return Status.CANCELLED
    return Status.PENDING


@procedure(ConnectionRole.CONTROL)
def terminate(namespace: str, id_: str, error: bytes) -> Script[Status | None]:
    """End a flow at once, wherever it is; its code hears nothing of it. Who runs it finds its claim gone."""
    rows = yield SqlQuery("flow_kind", (namespace, id_))
    if not rows:
        return None
    kind, status, *_ = rows[0]
    if kind == "task":
        raise InvalidValue(f"execution {id_} is a task, which cannot be terminated: cancel it.")
    if Status(status).terminal:
        return Status(status)
    yield from _terminate(id_, error)
    return Status.CANCELLED


def _terminate(id_: str, error: bytes | None) -> Script[None]:
    yield from close([id_])  # first: from then on nothing that comes can wake it
    taken = yield SqlQuery("evict", (id_,))
    yield SqlBatch("end", [(id_, Status.CANCELLED.value, error, taken[0][0] if taken else 0)])


def give_up(namespace: str, id_: str) -> Script[None]:
    """The flow that asked for an execution stops wanting it: it is cancelled, unless others want it too."""
    if not (yield SqlQuery("give_up", (id_,))):
        yield from cancel.script(namespace, id_)


def close(ids: list[str]) -> Script[None]:
    """Flows have ended: they take nothing in any more, and their children go the way that was agreed.

    Those that others have joined go on.
    """
    children = yield SqlBatch("children_of", [(id_,) for id_ in ids])
    yield SqlBatch("close_flows", [(id_,) for id_ in ids])
    for child, on_close in children:
        if (yield SqlQuery("give_up", (child,))):
            continue
        if on_close == "terminate":
            yield from _terminate(child, None)
        else:
            yield SqlBatch("deliver", [(child, "cancel", "", None, None, None)])


@procedure(ConnectionRole.CONTROL)
def deliver(namespace: str, row: Row) -> Script[Status | None]:
    """Put something into the inbox of a flow. The status if it has ended, None if there is no such execution."""
    rows = yield SqlQuery("flow_kind", (namespace, row[0]))
    if not rows:
        return None
    if rows[0][0] == "task":
        raise InvalidValue(f"execution {row[0]} is a task, and a task takes no signals: send them to a workflow.")
    if rows[0][0] == "entity":
        raise InvalidValue(f"execution {row[0]} is an entity, which takes messages: app.entity(…).send(…).")
    reached = yield SqlBatch("deliver", [row])
    # On PostgreSQL it may have ended in the middle of that, and what came was dropped. If it is there now it stays
    # there until the end of this transaction: what comes for a flow holds its row.
    _, status, lives, _ = (yield SqlQuery("flow_kind", (namespace, row[0])))[0]
    return Status.RUNNING if reached and lives else Status(status)


@procedure(ConnectionRole.CONTROL)
def redrive(namespace: str, id_: str, new_id: str) -> Script[str | None]:
    """A new execution with the input of a failed one, which gives up its place as the newest."""
    rows = yield SqlQuery("copy_for_redrive", (namespace, id_))
    if not rows:
        return None
    (
        kind,
        name,
        key,
        lane,
        generation,
        print_,
        input_,
        most,
        concurrency_key,
        retention,
        window,
        status,
        current,
        stripped,
        root,
    ) = rows[0]
    if Status(status) not in RELEASED or not current or stripped:
        return None
    if not (yield SqlQuery("release_key", (id_,))):
        return None
    row = ExecutionRow(
        new_id, kind, name, key, lane, generation, id_, print_, input_, most, concurrency_key, retention, window
    )
    yield from insert.script(namespace, [row if key is not None else row._replace(root_id=root)])
    return new_id


@procedure(ConnectionRole.CONTROL, atomic=True)
def wake(lane: int) -> Script[None]:
    """Tell every worker to look at a lane again."""
    yield SqlQuery("wake", (lane,))


CHECK_EVERY = 60.0
"""Seconds after which a process that goes on sending requests fills in what the database may have lost."""


@procedure(ConnectionRole.CONTROL)
def set_queues(namespace: str, rows: list[Row]) -> Script[None]:
    """Queue settings, for every worker: name, rate_limit, concurrency, retention, dedup_window."""
    for row in rows:
        yield SqlQuery("set_queue", (namespace, *row))


@procedure(ConnectionRole.CONTROL)
def fill_queues(namespace: str, rows: list[Row]) -> Script[None]:
    """Queue settings where there are none; what the database has stays as it is."""
    for row in rows:
        yield SqlQuery("fill_queue", (namespace, *row))


class WrittenQueueSettings:
    """The settings that this process has written last, and when they are to be written again.

    A value that is missing was lost with a restore or a failover, since settings are never deleted: it is filled in. A
    value that is there may be somebody's later wish: it is overwritten only if the database is known to have gone back.
    """

    def __init__(self, store: Store, namespace: str) -> None:
        self._store = store
        self._namespace = namespace
        self._rows: list[Row] = []
        self._went_back = False
        self.due_at = math.inf
        """When to write again, in monotonic seconds."""

    async def write(self, queues: Mapping[str, QueueSettings]) -> None:
        """Write these settings, all of them, and remember them."""
        if rows := [_row(name, settings) for name, settings in queues.items()]:
            await retry_unavailable(self._store.run, set_queues, self._namespace, rows)
            self._rows = rows
            self.due_at = time.monotonic() + CHECK_EVERY

    def doubt(self) -> None:
        """Some may be lost."""
        if self._rows:
            self.due_at = -math.inf

    def database_went_back(self) -> None:
        """The database is as it was at an earlier time, and so are the settings."""
        self._went_back = bool(self._rows)
        self.doubt()

    async def write_again(self) -> None:
        """Write them again if it is time. If the database does not answer it is still time."""
        if time.monotonic() < self.due_at:
            return
        went_back, self._went_back = self._went_back, False
        self.due_at = time.monotonic() + CHECK_EVERY
        try:
            await self._store.run(set_queues if went_back else fill_queues, self._namespace, self._rows)
        except EngineUnavailable:
            self._went_back = self._went_back or went_back
            self.doubt()


def _row(name: str, settings: QueueSettings) -> Row:
    return (
        name,
        None if settings.rate_limit is None else str(settings.rate_limit),
        settings.concurrency,
        None if settings.retention is None else micros(settings.retention),
        None if settings.dedup_window is None else micros(settings.dedup_window),
    )
