"""What people ask for from outside: cancel, run again, set limits."""

from __future__ import annotations

from semel.contract.lifecycle import RELEASED, Status
from semel.engines.journal.script import Ask, Each, Line, Row, Script, procedure

_TRIES = 10


@procedure(Line.CONTROL)
def cancel(namespace: str, id_: str) -> Script[Status | None]:
    """Cancel what waits, ask what runs. The status afterwards, None if there is no such execution."""
    for _ in range(_TRIES):
        waiting = yield Ask("withdraw", (id_,))
        if waiting:
            yield Each("end", [(id_, Status.CANCELLED.value, None, waiting[0][0])])
            return Status.CANCELLED
        if (yield Ask("ask_to_stop", (id_,))):
            return Status.RUNNING
        rows = yield Ask("outcome", (namespace, id_))
        if not rows:
            return None
        status = Status(rows[0][0])
        if status.terminal:
            return status
        # It changed hands between two statements; look again.
    return Status.PENDING


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
    row = (new_id, kind, name, key, lane, generation, id_, print_, input_, most, concurrency_key, retention,
           window, None, None, None if key is not None else root)  # fmt: skip
    yield Each("admit", [row], (namespace,))
    return new_id


@procedure(Line.CONTROL)
def set_queues(namespace: str, rows: list[Row]) -> Script[None]:
    """Queue settings, for every worker: name, rate_limit, concurrency, retention, dedup_window."""
    for row in rows:
        yield Ask("set_queue", (namespace, *row))


@procedure(Line.CONTROL, atomic=True)
def wake(lane: int) -> Script[None]:
    """Tell every worker to look at a lane again."""
    yield Ask("wake", (lane,))
