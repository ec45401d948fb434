"""Admission as scripts: insert what is new, and let the contract decide about the rest, in one transaction.

Any connection can run them, also one with an open transaction of the caller's. Lanes are made beforehand: an
uncommitted lane would block everybody who needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from semel.contract.decision import Admit, Decision, Join, Prior, decide
from semel.contract.lifecycle import Status
from semel.contract.times import from_micros, micros
from semel.engine.protocol import Admission
from semel.engine.start_request import RunOptions, StartRequest
from semel.engines.journal.rows import ExecutionRow, row_of
from semel.engines.journal.script import BEGIN, Collision, ConnectionRole, Row, Script, SqlBatch, SqlQuery, procedure

TRIES = 5
"""How often a key is looked at again that changes hands meanwhile."""
FEW = 5
"""Requests with equal options that are not worth a statement of their own."""
ADMITTED = Admit(None, 0)
_STATUS = {status.value: status for status in Status}
_KeyOf = tuple[str, str | None]
"""Kind and key: the name under which an execution is looked for."""


class Wanted(NamedTuple):
    """One execution that is asked for."""

    start: StartRequest
    lane: int
    waiters: str | None = None
    """See ExecutionRow."""

    def row(self) -> ExecutionRow:
        """It as the first execution under its key."""
        return row_of(self.start, self.lane, self.waiters)


class Decided(NamedTuple):
    """What the contract says to a request."""

    decision: Decision
    at: int
    """When, in microseconds; 0: not known, since no key was looked up."""


def is_put_off(options: RunOptions) -> bool:
    """Do requests with these options wait for a time before they may run?"""
    return options.delay is not None or options.run_at is not None


def fit_alike(options: RunOptions) -> bool:
    """Can requests with these options be inserted together, by id, key, fingerprint and input alone?"""
    return not options.keyed and not is_put_off(options)


def is_plain(request: StartRequest) -> bool:
    """Has it no columns of its own beside those?"""
    return request.root is None and request.parent is None


def shared_columns(namespace: str, options: RunOptions, lane: int) -> Row:
    """What requests with equal options share, in the order of the statement `admit_alike`."""
    window, retention = micros(options.window), micros(options.retention)
    return namespace, options.kind, options.name, lane, options.max_attempts, retention, window


def own_columns(request: StartRequest) -> Row:
    """What is left of a request beside that, in the order of the statement `admit_alike`."""
    return request.id, request.key, request.fingerprint, request.payload


@procedure(ConnectionRole.ADMIT, atomic=True)
def insert(namespace: str, rows: list[ExecutionRow]) -> Script[set[str]]:
    """Insert executions; the ids that are in. Passed over: a taken key, a known id, a lane that is gone."""
    return _ids((yield SqlBatch("admit", list(rows), (namespace,))), rows)


@procedure(ConnectionRole.ADMIT, atomic=True)
def insert_alike(shared: Row, rows: list[Row]) -> Script[set[str]]:
    """Insert executions with new ids with the same options; the ids that are in. Passed over: a taken key."""
    return _ids((yield SqlBatch("admit_alike", rows, shared)), rows)


@procedure(ConnectionRole.ADMIT, atomic=True)
def insert_new(shared: Row, rows: list[Row]) -> Script[set[str]]:
    """Insert executions with the same options whose keys are probably new.

    PostgreSQL: all or none, and then Collision; a fifth less to do.
    """
    return _ids((yield SqlBatch("admit_new", rows, shared)), rows)


def _ids(found: list[Row], rows: Iterable[Row]) -> set[str]:
    """The ids that are in: the statement gives how many, and which where it is not all of them."""
    count, ids = found[0][:2]
    wanted = {row[0] for row in rows}
    return wanted if count == len(wanted) else set(ids.split(",") if ids else ())


@procedure(ConnectionRole.ADMIT)
def admit_many(namespace: str, wanted: list[Wanted]) -> Script[list[Decided | None]]:
    """Decide as `admit` does, at a lower cost where most of the keys are new: they are not looked up first.

    It can be a part of any transaction, and a key that is taken does not fail it. Requests with equal options are begun
    in their order, those with different options in any.
    """
    new: set[str] = set()
    others: list[Wanted] = []
    for shared, group in _group_alike(namespace, wanted).items():
        if shared is None or len(group) < FEW:
            others += group
        else:
            new |= yield from insert_alike.script(shared, [own_columns(one.start) for one in group])
    if others:
        new |= yield from insert.script(namespace, [one.row() for one in others])
    if len(new) == len(wanted):
        return [Decided(ADMITTED, 0)] * len(wanted)
    passed_over = [one for one in wanted if one.start.id not in new]
    decided = iter((yield from admit.script(namespace, passed_over)))
    return [Decided(ADMITTED, 0) if one.start.id in new else next(decided) for one in wanted]


def _group_alike(namespace: str, wanted: list[Wanted]) -> dict[Row | None, list[Wanted]]:
    """Requests by the columns that they share; under None those that have to be inserted with all their columns."""
    groups: dict[Row | None, list[Wanted]] = {None: []}
    by_options: dict[tuple[int, int], list[Wanted]] = {}
    for one in wanted:
        options = one.start.options
        # An id that is known already is only passed over if its key is: without a key the statement would fail.
        if one.start.key is None or one.waiters is not None or not is_plain(one.start):
            groups[None].append(one)
            continue
        group = by_options.get((id(options), one.lane))
        if group is None:
            shared = shared_columns(namespace, options, one.lane) if fit_alike(options) else None
            group = by_options[id(options), one.lane] = groups.setdefault(shared, [])
        group.append(one)
    return groups


@procedure(ConnectionRole.ADMIT, atomic=True)
def admit(namespace: str, wanted: list[Wanted]) -> Script[list[Decided | None]]:
    """Begin what is new and decide about what has its key taken, each in one step; the decisions, in order.

    A request that was sent before is recognised by its id and admitted again, as the same execution. None: nothing was
    written, since the lane is gone or the key changed hands too often; ask for it anew.
    """
    starts = [one.start for one in wanted]
    decided: list[Decided | None] = [None] * len(wanted)
    waiting = list(range(len(wanted)))
    for _ in range(TRIES):
        holders, present, at = yield from _look_up(namespace, [starts[i] for i in waiting])
        now = from_micros(at)
        free: list[int] = []
        to_supersede: list[tuple[int, Admit]] = []
        to_join: list[tuple[int, Join]] = []
        for i in waiting:
            start = starts[i]
            prior = holders.get((start.options.kind, start.key))
            if start.id in present or (prior is not None and prior.id == start.id):
                decided[i] = Decided(ADMITTED, at)
                continue
            decision = decide(prior, start.contract_request(), now)
            if isinstance(decision, Admit):
                if decision.supersedes is None:
                    free.append(i)
                else:
                    to_supersede.append((i, decision))
            elif isinstance(decision, Join) and decision.prior.parent not in (None, starts[i].parent):
                to_join.append((i, decision))
            else:
                decided[i] = Decided(decision, at)
        if not (free or to_supersede or to_join):
            break
        if to_supersede or to_join:
            yield BEGIN
        if free:
            new = yield from insert.script(namespace, [wanted[i].row() for i in free])
            for i in free:
                if starts[i].id in new:
                    decided[i] = Decided(ADMITTED, at)
        for i, decision in sorted(to_supersede, key=lambda pair: starts[pair[0]].key or ""):
            if (yield from _supersede(namespace, wanted[i].row(), decision)):
                decided[i] = Decided(decision, at)
        if to_join:
            living = yield from share.script(sorted({decision.prior.id for _, decision in to_join}))
            for i, decision in to_join:
                if decision.prior.id in living:
                    decided[i] = Decided(decision, at)
        waiting = [i for i in waiting if decided[i] is None]
        if not waiting:
            break
    return decided


def _look_up(namespace: str, starts: list[StartRequest]) -> Script[tuple[dict[_KeyOf, Prior], set[str], int]]:
    """Who holds the keys, which of the requests are in already (their keys may have moved on), and what time it is."""
    keys = list({(start.options.kind, start.key) for start in starts if start.key is not None})
    rows = (yield SqlBatch("priors", keys, (namespace,))) if keys else []
    holders: dict[_KeyOf, Prior] = {}
    followed: set[_KeyOf] = set()
    for kind, key, id_, name, print_, status, generation, window_ends, parent, follows, _ in rows:
        ends = None if window_ends is None else from_micros(window_ends)
        holders[kind, key] = Prior(id_, name, print_, _STATUS[status], generation, ends, parent)
        if follows:
            followed.add((kind, key))
    # Ids are compared, never their order: the clocks of machines differ.
    ids = [(start.id,) for start in starts if start.key is None]
    if followed:
        ids += [(start.id,) for start in starts if (start.options.kind, start.key) in followed]
    present = {row[0] for row in (yield SqlBatch("present", ids))} if ids else set()
    return holders, present, rows[0][-1] if rows else 0


@procedure(ConnectionRole.READ)
def look_up(namespace: str, start: StartRequest) -> Script[Admission | None]:
    """What `admit` would answer to a request that is in already, or whose key is taken; None: it would be new."""
    holders, present, at = yield from _look_up(namespace, [start])
    prior = holders.get((start.options.kind, start.key))
    if start.id in present or (prior is not None and prior.id == start.id):
        return Admission(start.id, ADMITTED)
    if prior is None:
        return None
    decision = decide(prior, start.contract_request(), from_micros(at))
    return None if isinstance(decision, Admit) else Admission(prior.id, decision)


def _supersede(namespace: str, row: ExecutionRow, decision: Admit) -> Script[bool]:
    """Take the key from a finished execution and give it to a new one, both or neither."""
    if not (yield SqlQuery("lane_by_id", (row.lane,))):
        return False
    if not (yield SqlQuery("release_key", (decision.supersedes,))):
        return False
    new = row._replace(generation=decision.generation, previous_id=decision.supersedes)
    if not (yield from insert.script(namespace, [new])):
        raise Collision(f"execution {row.id} could not follow {decision.supersedes} under the key {row.key!r}.")
    return True


@procedure(ConnectionRole.ADMIT)
def share(ids: list[str]) -> Script[set[str]]:
    """Others want these executions too, whatever becomes of the workflow that asked for them: those that live."""
    rows = [(id_,) for id_ in ids]
    yield SqlBatch("share", rows)
    return {row[0] for row in (yield SqlBatch("living", rows))}


@procedure(ConnectionRole.CONTROL, atomic=True)
def count_duplicates(rows: list[Row]) -> Script[None]:
    """Write down how many duplicates did not run."""
    yield SqlBatch("count_duplicates", rows)
