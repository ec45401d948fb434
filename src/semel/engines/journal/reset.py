"""Reset: a flow goes on from an earlier commit, as a new execution under its key, in one transaction."""

from __future__ import annotations

from semel.contract.lifecycle import RELEASED, Status
from semel.contract.records import ErrorInfo
from semel.engine.ids import new_id as fresh_id
from semel.engine.protocol import RecordedRun
from semel.engines.journal import control, read
from semel.engines.journal.admit import insert
from semel.engines.journal.inbox import answer_of, command_in
from semel.engines.journal.read import dump_error
from semel.engines.journal.rows import ExecutionRow
from semel.engines.journal.script import ConnectionRole, Row, Script, SqlBatch, SqlQuery, procedure
from semel.engines.journal.turns import join, started
from semel.errors import NotFound, NotResettable
from semel.flow.commands import Kind, key_in
from semel.flow.entries import Asked, Resolved, stored
from semel.flow.fork import Fork, fork


@procedure(ConnectionRole.CONTROL)
def reset(namespace: str, id_: str, new_id: str, commit: int) -> Script[None]:
    """Whatever is refused is raised, so that nothing of it is kept."""
    taken = yield SqlQuery("evict", (id_,))
    flow = yield SqlQuery("seize_flow", (id_,))
    # What came for it before it was seized may have woken it.
    taken += yield SqlQuery("evict", (id_,))
    rows = yield SqlQuery("copy_for_reset", (namespace, id_))
    past = yield from read.past.script(namespace, id_)
    if not rows or past is None:
        raise NotFound(f"execution {id_} is not known (any more): it may be past its retention.")
    old = tuple(rows[0])
    _refuse(id_, old)
    made = fork(past, commit)
    waiters = old[13]
    if flow:
        yield from _end(id_, new_id, taken[0][0] if taken else 0)
    else:
        waiters = None  # they have been told how it ended
    yield from _begin(namespace, id_, new_id, old, waiters)
    yield from _hand_over(namespace, past, new_id, commit, made)
    if flow:
        yield SqlBatch("bind_children", [(new_id, flow[0][2])])
        yield SqlBatch("close_flows", [(id_,)])


def _refuse(id_: str, old: Row) -> None:
    kind, *_, status, current, stripped = old
    if kind != "workflow":
        raise NotResettable(f"execution {id_} is a {kind}: only workflows have a journal to go back in.")
    if stripped:
        raise NotResettable(f"execution {id_} is {status} and past its retention: its input and journal are gone.")
    if not current:
        raise NotResettable(f"execution {id_} is {status}, and a newer one has its key. See: semel explain {old[2]}")


def _end(id_: str, new_id: str, attempt: int) -> Script[None]:
    """Who waits for it will hear of the new one instead."""
    error = dump_error(ErrorInfo("semel.Terminated", f"reset: it goes on as execution {new_id}"))
    yield SqlQuery("forget_waiters", (id_,))
    yield SqlBatch("end", [(id_, Status.CANCELLED.value, error, attempt)])


def _begin(namespace: str, id_: str, new_id: str, old: Row, waiters: str | None) -> Script[None]:
    kind, name, key, lane, generation, print_, input_, most, concurrency_key, retention, window, root, parent, *_ = old
    if not (yield SqlQuery("release_key", (id_,))):
        raise NotResettable(f"execution {id_} changed while it was being reset: try again.")
    row = ExecutionRow(
        new_id, kind, name, key, lane, generation, id_, print_, input_, most, concurrency_key, retention, window
    )
    row = row._replace(root_id=root, parent_id=parent, waiters=waiters)
    if not (yield from insert.script(namespace, [row])):
        raise NotResettable(f"the key {key!r} changed hands while it was being reset: try again.")


def _hand_over(namespace: str, past: RecordedRun, new_id: str, commit: int, made: Fork) -> Script[None]:
    """The new execution gets the journal up to the commit, what came after it from outside, and the children."""
    yield SqlBatch("restart_flows", [(new_id, past.base, past.snapshot, -1)])
    yield SqlQuery("copy_journal", (past.id, new_id, past.base, commit))
    yield SqlQuery("copy_published", (past.id, new_id))
    if made.attributes:
        yield SqlBatch("set_attributes", [(new_id, name, value) for name, value in made.attributes.items()])
    yield SqlQuery("adopt_children", (past.id, new_id))
    again = [(new_id, "signal", s.name, s.key, stored(s.payload), None, at) for at, s in made.signals]
    if again:
        yield SqlBatch("deliver_again", again)
    answered = yield SqlQuery("copy_inbox", (past.id, new_id, [str(number) for number in made.open]))
    done = {command_in(row[0])[0] for row in answered if row[0] is not None}
    for number, asked in made.open.items():
        if number not in done:
            yield from _ask_again(namespace, new_id, asked, made.answers.get(number))


def _ask_again(namespace: str, flow: str, asked: Asked, answer: Resolved | None) -> Script[None]:
    """What has completed gives its result, what goes on is waited for, and what failed is run again."""
    if answer is not None and answer.status in ("started", "refused"):
        yield SqlBatch("deliver", [_same(flow, answer)])
        return
    rows = yield SqlQuery("standing", (namespace, asked.ref))
    if not rows or (Status(rows[0][2]) in RELEASED and not rows[0][3]):
        # It had joined another one, or its key has moved on.
        key = key_in(asked.kind, asked.mark)
        found = (yield SqlBatch("priors", [(asked.kind, key)], (namespace,))) if key else []
        rows = (yield SqlQuery("standing", (namespace, found[0][2]))) if found else rows
    if not rows:
        yield from join(namespace, flow, asked.command, asked.ref or "")
        return
    id_, kind, status, *_ = rows[0]
    if Status(status) in RELEASED:
        again = yield from control.redrive.script(namespace, id_, fresh_id())
        if again is not None and kind == Kind.WORKFLOW:
            yield SqlQuery("adopt_child", (again, flow, "cancel"))
        id_ = again or id_
    yield from join(namespace, flow, asked.command, id_)


def _same(flow: str, answer: Resolved) -> Row:
    if answer.status == "started":
        return started(flow, answer.command, answer.ref or "")
    error = None if answer.error is None else dump_error(answer.error)
    return (flow, "done", answer.status, answer_of(answer.command, answer.ref), stored(answer.output), error)
