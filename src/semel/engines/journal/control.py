"""What people ask for from outside: cancel, run again, set limits."""

from __future__ import annotations

from semel.contract.lifecycle import RELEASED, Status
from semel.engines.journal.admit import insert
from semel.engines.journal.rows import ExecutionRow
from semel.engines.journal.script import Ask, Each, Line, Row, Script, procedure
from semel.errors import InvalidValue

_TRIES = 10


@procedure(Line.CONTROL)
def cancel(namespace: str, id_: str) -> Script[Status | None]:
    """Cancel what waits, ask what runs. The status afterwards, None if there is no such execution."""
    for _ in range(_TRIES):
        rows = yield Ask("flow_kind", (namespace, id_))
        if not rows:
            return None
        kind, status, flows, begun = rows[0]
        if Status(status).terminal:
            return Status(status)
        if kind != "task" and flows and begun:
            yield Each("deliver", [(id_, "cancel", "", None, None, None)])
            return Status.RUNNING
        waiting = yield Ask("withdraw", (id_,))
        if waiting:
            yield Each("end", [(id_, Status.CANCELLED.value, None, waiting[0][0])])
            if kind != "task":
                yield from close([id_])
            return Status.CANCELLED
        if kind != "task":
            yield Each("deliver", [(id_, "cancel", "", None, None, None)])
            return Status.RUNNING
        if (yield Ask("ask_to_stop", (id_,))):
            return Status.RUNNING
        # It changed hands between two statements; look again.
    found = yield Ask("get", (namespace, id_))
    if found and found[0][-1]:  # stranded: nobody will ever run it
        yield Each("end", [(id_, Status.CANCELLED.value, None, 0)])
        return Status.CANCELLED
    return Status.PENDING


@procedure(Line.CONTROL)
def terminate(namespace: str, id_: str, error: bytes) -> Script[Status | None]:
    """End a flow at once, wherever it is; its code hears nothing of it. Who runs it finds its claim gone."""
    rows = yield Ask("flow_kind", (namespace, id_))
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
    taken = yield Ask("evict", (id_,))
    yield Each("end", [(id_, Status.CANCELLED.value, error, taken[0][0] if taken else 0)])


def give_up(namespace: str, id_: str) -> Script[None]:
    """The flow that asked for an execution stops wanting it: it is cancelled, unless others want it too."""
    if not (yield Ask("give_up", (id_,))):
        yield from cancel.script(namespace, id_)


def close(ids: list[str]) -> Script[None]:
    """Flows have ended: they take nothing in any more, and their children go the way that was agreed.

    Those that others have joined go on.
    """
    children = yield Each("children_of", [(id_,) for id_ in ids])
    yield Each("close_flows", [(id_,) for id_ in ids])
    for child, on_close in children:
        if (yield Ask("give_up", (child,))):
            continue
        if on_close == "terminate":
            yield from _terminate(child, None)
        else:
            yield Each("deliver", [(child, "cancel", "", None, None, None)])


@procedure(Line.CONTROL)
def deliver(namespace: str, row: Row) -> Script[Status | None]:
    """Put something into the inbox of a flow. The status if it has ended, None if there is no such execution."""
    rows = yield Ask("flow_kind", (namespace, row[0]))
    if not rows:
        return None
    if rows[0][0] == "task":
        raise InvalidValue(f"execution {row[0]} is a task, and a task takes no signals: send them to a workflow.")
    if rows[0][0] == "entity":
        raise InvalidValue(f"execution {row[0]} is an entity, which takes messages: app.entity(…).send(…).")
    reached = yield Each("deliver", [row])
    # On PostgreSQL it may have ended in the middle of that, and what came was dropped. If it is there now it stays
    # there until the end of this transaction: what comes for a flow holds its row.
    _, status, lives, _ = (yield Ask("flow_kind", (namespace, row[0])))[0]
    return Status.RUNNING if reached and lives else Status(status)


@procedure(Line.CONTROL)
def redrive(namespace: str, id_: str, new_id: str) -> Script[str | None]:
    """A new execution with the input of a failed one, which gives up its place as the newest."""
    rows = yield Ask("copy_for_redrive", (namespace, id_))
    if not rows:
        return None
    (
        kind, name, key, lane, generation, print_, input_, most, concurrency_key, retention, window, status,
        current, stripped, root,
    ) = rows[0]  # fmt: skip
    if Status(status) not in RELEASED or not current or stripped:
        return None
    if not (yield Ask("release_key", (id_,))):
        return None
    row = ExecutionRow(
        new_id, kind, name, key, lane, generation, id_, print_, input_, most, concurrency_key, retention, window
    )
    yield from insert.script(namespace, [row if key is not None else row._replace(root_id=root)])
    return new_id


@procedure(Line.CONTROL, atomic=True)
def wake(lane: int) -> Script[None]:
    """Tell every worker to look at a lane again."""
    yield Ask("wake", (lane,))
