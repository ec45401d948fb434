"""How a turn of a flow is written: what happened, what it asked for and that it rests, all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct, field

from semel.contract.decision import Admit, Prior, Reason, Refuse, reason_of
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo, MessageConflict
from semel.engine import conflicts
from semel.engines.journal import control
from semel.engines.journal.admit import Decided, Wanted, admit, insert
from semel.engines.journal.claims import Fence
from semel.engines.journal.inbox import answer_of
from semel.engines.journal.lanes import lane_id, lane_key
from semel.engines.journal.read import dump_error, input_of
from semel.engines.journal.script import ConnectionRole, Row, Script, SqlBatch, SqlQuery, Work, procedure
from semel.errors import EngineError


class Verdict(Enum):
    """What became of a flow with its turn."""

    HELD = "held"
    """Written; the worker still has it."""
    ASLEEP = "asleep"
    """Written, and it rests."""
    ENDED = "ended"
    STALE = "stale"
    """Not written: the claim is another's, or the journal has moved on."""


@dataclass(frozen=True, slots=True)
class ChildStart:
    """An execution that a flow asks for."""

    command: int
    wanted: Wanted
    waits: bool | None
    """For its end; False: for its beginning; None: for nothing."""
    on_close: str | None

    @property
    def id(self) -> str:
        """Of the execution."""
        return self.wanted.start.id


class Commit(Struct, eq=False):
    """One turn of one flow, as rows."""

    lane: int
    seq: int
    token: int
    execution: str
    n: int
    body: bytes | None = None
    consumed: list[Row] = field(default_factory=list)
    child_starts: list[ChildStart] = field(default_factory=list)
    joins: list[tuple[str, int]] = field(default_factory=list)
    """Executions whose end it waits for, and the commands that do."""
    stops: list[str] = field(default_factory=list)
    """Executions it no longer wants."""
    published: list[Row] = field(default_factory=list)
    attributes: list[Row] = field(default_factory=list)
    sends: list[Row] = field(default_factory=list)
    seen: list[Row] = field(default_factory=list)
    """Messages an entity is done with: execution, n, key, at, reply."""
    forgotten: list[int] = field(default_factory=list)
    hits: int = 0
    conflicts: list[MessageConflict] = field(default_factory=list)
    overflowed: int = 0
    forgives: bool = False
    """An entity has got on since workers were lost with it: they do not count any more."""
    ended: tuple[Status, bytes | None, ErrorInfo | None] | None = None
    restart: bytes | None = None
    """The snapshot it goes on from, without the rows of its journal up to `base`."""
    base: int = 0
    fresh: bytes | None = None
    """What an entity that ends begins anew with, if something has come for it."""
    rests: bool = False
    due: int | None = None

    parent: str | None = None

    def heard_by(self) -> list[str]:
        """Flows that get something by this turn, and may be awake."""
        parent = [self.parent] if self.ended and self.parent else []
        return [*(row[0] for row in self.sends), *parent]

    @property
    def fence(self) -> Fence:
        """See Fence."""
        return (self.lane, self.seq, self.token, self.execution)

    @property
    def plain(self) -> bool:
        """Nothing but a row of the journal?"""
        return not (
            self.consumed
            or self.child_starts
            or self.joins
            or self.stops
            or self.published
            or self.attributes
            or self.sends
            or self.seen
            or self.forgotten
            or self.forgives
            or self.ended
            or self.restart
            or self.rests
        )


@procedure(ConnectionRole.SETTLE, atomic=True, quiet=True)
def record(worker: int, commits: list[Commit]) -> Script[dict[int, Verdict]]:
    """Turns that only have something to remember: one statement."""
    written = {row[0] for row in (yield SqlBatch("record", [_row(c) for c in commits], (worker,)))}
    verdicts = dict.fromkeys([c.token for c in commits], Verdict.HELD)
    if missing := [c for c in commits if c.token not in written]:
        ours = yield from _already(missing)
        verdicts.update((c.token, Verdict.STALE) for c in missing if c.token not in ours)
    return verdicts


@procedure(ConnectionRole.SETTLE)
def commit(namespace: str, worker: int, commits: list[Commit]) -> Script[dict[int, Verdict]]:
    """Turns of any kind, in one transaction. Raises WentBack where the database has lost what a turn took in."""
    held = yield from _held(worker, commits)
    verdicts = {c.token: Verdict.HELD if c.token in held else Verdict.STALE for c in commits}
    # What has moved on to a snapshot has been committed before, by a try whose reply was lost.
    commits = [c for c in commits if c.restart is None or c.base < c.n or held.get(c.token, 0) < c.n]
    rows = [c for c in commits if c.body is not None and c.token in held]
    written = {row[0] for row in (yield SqlBatch("record", [_row(c) for c in rows], (worker,)))} if rows else set()
    missing = [c for c in commits if c.token not in held or (c.body is not None and c.token not in written)]
    for c in missing:
        verdicts[c.token] = Verdict.STALE
    if missing:  # a try whose reply was lost may have been committed, with all that belongs to it
        for token in (yield from _already([c for c in missing if c.body is not None])):
            verdicts[token] = Verdict.HELD if token in held else Verdict.ASLEEP
    good = [c for c in commits if c.token in held and c not in missing]
    yield from _consume([row for c in good for row in c.consumed])
    for name, lists in (
        ("publish", [_last(c.published) for c in good]),
        ("deliver", [c.sends for c in good]),
        ("see", [c.seen for c in good]),
    ):
        if rows_of := [row for one in lists for row in one]:
            yield SqlBatch(name, sorted(rows_of, key=lambda row: str(row[0])) if name == "deliver" else rows_of)
    yield from _forget([c for c in good if c.forgotten or c.hits or c.overflowed or c.conflicts])
    yield from _set_attributes([row for c in good for row in c.attributes])
    for c in good:
        for execution in c.stops:
            yield from control.give_up(namespace, execution)
    yield from _admit_children(namespace, good)
    for c in good:
        for execution, command in c.joins:
            yield from join(namespace, c.execution, command, execution)
    ending = yield from _not_for_nothing([c for c in good if c.ended is not None])
    yield from _end(namespace, worker, ending, verdicts)
    if restarts := [(c.execution, c.base, c.restart, c.token) for c in good if c.restart is not None]:
        yield SqlBatch("restart_flows", sorted(restarts))  # rows are locked in one order, as by those who send to many
    if forgiven := [(c.lane, c.seq) for c in good if c.forgives]:
        yield SqlBatch("forgive", forgiven, (worker,))
    yield from _rest(worker, [c for c in good if c.rests], verdicts)
    return verdicts


def _row(c: Commit) -> Row:
    return (*c.fence, c.n, c.body)


def _held(worker: int, commits: list[Commit]) -> Script[dict[int, int]]:
    """Where the journal of each flow begins that is still this worker's: by the token of the claim.

    A database that went back in time may know the claim and have lost rows that the turn stands on: then it is not
    this worker's either.
    """
    found = yield SqlBatch("held", [c.fence for c in commits], (worker,))
    places = {token: (base, last) for token, base, last in found}
    return {c.token: places[c.token][0] for c in commits if c.token in places and places[c.token][1] >= c.n - 1}


def _consume(rows: list[Row]) -> Script[None]:
    """Take out of the inbox what turns took in; all of it, or it is not what they took in."""
    if rows and (yield SqlBatch("consume", rows))[0][0] < len(rows):
        raise WentBack("what came for a flow is not there any more: the database went back in time.")


def _last(rows: list[Row]) -> list[Row]:
    """Of several values under a name the last one counts."""
    return [(*key, value) for key, value in {row[:2]: row[2] for row in rows}.items()]


def _already(missing: list[Commit]) -> Script[set[int]]:
    if not missing:
        return set()
    tokens = {row[1] for row in (yield SqlBatch("recorded", [(c.execution, c.n) for c in missing]))}
    return {c.token for c in missing if c.token in tokens}


def _set_attributes(rows: list[Row]) -> Script[None]:
    last = _last(rows)
    if kept := [row for row in last if row[2]]:
        yield SqlBatch("set_attributes", kept)
    if gone := [row[:2] for row in last if not row[2]]:
        yield SqlBatch("drop_attributes", gone)


def _forget(commits: list[Commit]) -> Script[None]:
    """Keys past their window, how many messages were duplicates, and how many keys went before their time."""
    if gone := [(c.execution, n) for c in commits for n in c.forgotten]:
        yield SqlBatch("unsee", gone)
    counts = [(c.execution, Reason.SEEN, c.hits) for c in commits]
    counts += [(c.execution, Reason.OVERFLOWED, c.overflowed) for c in commits]
    counts += [(c.execution, Reason.MESSAGE_DIFFERS, len(c.conflicts)) for c in commits]
    if any(count for *_, count in counts):
        now = (yield SqlQuery("clock"))[0][0]
        yield SqlBatch("count_duplicates", [(id_, why.value, count, now, now) for id_, why, count in counts if count])


def _not_for_nothing(commits: list[Commit]) -> Script[list[Commit]]:
    """An entity does not end while there is mail: it begins anew, and takes it in."""
    last = [c for c in commits if c.fresh is not None]
    if not last:
        return commits
    locked = {row[0] for row in (yield SqlQuery("lock_flows", (sorted(c.execution for c in last),)))}
    mail = {row[0] for row in (yield SqlBatch("mail", [(c.execution,) for c in last]))}
    for c in last:
        if c.execution in mail or c.execution not in locked:
            c.ended, c.restart, c.base = None, c.fresh, c.n
    return [c for c in commits if c.ended is not None]


def _waiter(flow: str, command: int | str) -> str:
    return msgspec.json.encode([flow, command]).decode()


def _admit_children(namespace: str, commits: list[Commit]) -> Script[None]:
    """Executions that flows ask for; one whose key is taken is decided by the contract."""
    child_starts = [(c.execution, b) for c in commits for b in c.child_starts]
    if not child_starts:
        return
    new = yield from insert.script(namespace, [b.wanted.row() for _, b in child_starts])
    yield from _bind_children([(flow, b) for flow, b in child_starts if b.id in new])
    rest = [(flow, b) for flow, b in child_starts if b.id not in new]
    if not rest:
        return
    wanted = []
    for _, child in rest:
        lane = yield from lane_id(namespace, lane_key(child.wanted.start.options))  # perhaps only its lane was gone
        wanted.append(child.wanted._replace(lane=lane))
    decided = yield from admit.script(namespace, wanted)
    for (flow, child), one in zip(rest, decided, strict=True):
        yield from _answer(namespace, flow, child, one)


def waiters_of(flow: str, command: int) -> str:
    """The list of those who wait for an execution, for one command of one flow."""
    return f"[{_waiter(flow, command)}]"


def _bind_children(child_starts: list[tuple[str, ChildStart]]) -> Script[None]:
    """These executions are in: bind them to their parents, and tell those that wait for the beginning."""
    bound = [(b.id, b.on_close) for _, b in child_starts if b.on_close is not None]
    if bound:
        yield SqlBatch("bind_children", bound)
    begun = [started(flow, b.command, b.id) for flow, b in child_starts if b.waits is False]
    if begun:
        yield SqlBatch("deliver", begun)


def started(flow: str, command: int, id_: str) -> Row:
    """A row for the inbox: what was to be started has begun, as this execution."""
    return (flow, "done", "started", str(command), msgspec.json.encode(id_), None)


def _answer(namespace: str, flow: str, child: ChildStart, decided: Decided | None) -> Script[None]:
    """Tell a flow what the contract has decided about an execution that it asked for."""
    if decided is None:
        error = dump_error(ErrorInfo("TimeoutError", f"the key {child.wanted.start.key!r} changed hands too often"))
        yield SqlBatch("deliver", [(flow, "done", Status.FAILED.value, str(child.command), None, error)])
        return
    decision = decided.decision
    if isinstance(decision, Admit):
        yield from _bind_children([(flow, child)])
        return
    prior, reason = decision.prior, reason_of(decision)
    yield SqlBatch("count_duplicates", [(prior.id, reason.value, 1, decided.at, decided.at)])
    if isinstance(decision, Refuse):
        if child.waits is not None:
            yield from _refuse(namespace, flow, child, prior, reason)
    elif child.waits:
        yield from join(namespace, flow, child.command, prior.id)
    elif child.waits is False:
        yield SqlBatch("deliver", [started(flow, child.command, prior.id)])


def _refuse(namespace: str, flow: str, child: ChildStart, prior: Prior, reason: Reason) -> Script[None]:
    known = (yield from input_of.script(namespace, prior.id)) if reason is Reason.INPUT_DIFFERS else None
    start = child.wanted.start
    refusal = conflicts.conflict(start.key or "", start.options.name, prior, reason, known, start.payload, start.shape)
    error = dump_error(ErrorInfo("semel.KeyConflict", refusal.message))
    ref = answer_of(child.command, prior.id)
    yield SqlBatch("deliver", [(flow, "done", "refused", ref, conflicts.dump(refusal), error)])


def join(namespace: str, flow: str, command: int, execution: str) -> Script[None]:
    """Wait for the end of an execution, which may be over already."""
    ref = answer_of(command, execution)
    if (yield SqlQuery("add_waiter", (execution, _waiter(flow, ref)))):
        return
    rows = yield SqlQuery("outcome", (namespace, execution))
    status, output, error, stripped = rows[0] if rows else (Status.FAILED.value, None, None, True)
    if stripped:
        status = Status.FAILED.value
        error = dump_error(
            ErrorInfo("semel.ResultExpired", f"the result of execution {execution} is past its retention")
        )
    yield SqlBatch("deliver", [(flow, "done", status, ref, output, error)])


def _end(namespace: str, worker: int, commits: list[Commit], verdicts: dict[int, Verdict]) -> Script[None]:
    if not commits:
        return
    rows: list[Row] = []
    for c in commits:
        status, output, error = c.ended or (Status.COMPLETED, None, None)
        rows.append((*c.fence, status.value, output, None if error is None else dump_error(error)))
        verdicts[c.token] = Verdict.ENDED
    yield SqlBatch("settle", rows, (worker,))
    yield from control.close([c.execution for c in commits])


def _rest(worker: int, commits: list[Commit], verdicts: dict[int, Verdict]) -> Script[None]:
    if not commits:
        return
    locked = {c.execution for c in commits if c.restart is not None}  # by `restart_flows`
    if others := sorted(c.execution for c in commits if c.restart is None):
        locked |= {row[0] for row in (yield SqlQuery("lock_flows", (others,)))}
    rows = [(c.lane, c.seq, c.execution, c.due) for c in commits if c.execution in locked]
    asleep = {row[0] for row in (yield SqlBatch("sleep_flows", rows, (worker,)))} if rows else set()
    for c in commits:
        if c.execution in asleep:
            verdicts[c.token] = Verdict.ASLEEP


class Moved(Exception):
    """The journal is not where this worker believed it to be: a reply was lost, or the database went back in time."""


class WentBack(EngineError):
    """The database has lost something that a turn stands on; nothing of the turn was written."""


@procedure(ConnectionRole.SETTLE)
def transact(
    worker: int, c: Commit, do: Callable[[Any], Any], tell: Callable[[Any, BaseException | None], bytes]
) -> Script[bytes | None]:
    """Run a function in the transaction that records its result. None: the flow is no longer this worker's."""
    places = yield SqlBatch("held", [c.fence], (worker,))
    if not places:
        return None
    if places[0][2] != c.n - 1:
        raise Moved
    value, error = (yield Work("transaction", do))[0]
    body = tell(value, error)
    if not (yield SqlBatch("record", [(*c.fence, c.n, body)], (worker,))):
        raise Moved  # nothing of this is kept
    return body


@procedure(ConnectionRole.SETTLE, atomic=True)
def park(worker: int, fence: Fence, error: bytes, wait: int) -> Script[None]:
    """Its code cannot go on: try again after a while."""
    yield SqlQuery("park_flow", (worker, *fence, error, wait))


@procedure(ConnectionRole.CONTROL, atomic=True)
def unpark(names: list[str]) -> Script[int]:
    """A worker has come, perhaps with other code: parked flows are tried again."""
    return int((yield SqlQuery("unpark_flows", (names,)))[0][0])


@procedure(ConnectionRole.CONTROL, atomic=True)
def still_held(worker: int, fence: Fence) -> Script[bool]:
    """Is the claim still this worker's?"""
    return bool((yield SqlBatch("held", [fence], (worker,))))


@procedure(ConnectionRole.READ, atomic=True)
def load_seen(executions: list[str]) -> Script[list[Row]]:
    """The message keys that entities have seen: execution, n, key, at."""
    return (yield SqlBatch("load_seen", [(execution,) for execution in executions]))


@procedure(ConnectionRole.READ, atomic=True)
def load(rows: list[Row]) -> Script[tuple[list[Row], list[Row], list[Row]]]:
    """Flows, their journals after a position, and what came for them. Rows: execution, position."""
    flows = yield SqlBatch("load_flows", rows)
    journal = yield SqlBatch("load_journal", rows)
    inbox = yield SqlBatch("load_inbox", rows)
    return flows, journal, inbox
