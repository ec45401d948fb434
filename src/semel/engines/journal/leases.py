"""Leases: one heartbeat for a worker, and what happens to the tasks of one that stopped beating."""

from __future__ import annotations

from dataclasses import dataclass

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.engines.journal.claims import Fence
from semel.engines.journal.control import close
from semel.engines.journal.lanes import lane_id
from semel.engines.journal.read import dump_error
from semel.engines.journal.script import ConnectionRole, Row, Script, SqlBatch, SqlQuery, procedure

SUSPECT_AFTER = 2
"""A task whose worker died this often runs alone from then on."""
MOST_AT_ONCE = 500
GAP = 0.5
"""The longest time between two answers of the database, as a part of a lease, in which it counts as reachable."""
DRIFT = 0.1
"""How far the server's clock may be off between two answers, as a part of a lease."""
MOST_LENGTHS = 100
"""Of different leases that are kept track of; there are rarely more than one or two."""
ENDED_AT_ONCE = 200
"""As many ids fit into one NOTIFY."""
TRIES_WITHOUT = 3
"""How many workers an entity may cost while it goes on without a message: one of them may have been stopped."""
PARKED_FOR = 3600 * 1_000_000
"""Microseconds until an entity is tried again that costs workers as soon as it is looked at."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a worker learns with its heartbeat; times in microseconds, None where there is nothing."""

    now: int
    next_expiry: int | None
    overdue: str | None
    """The lengths of other workers' leases that have run out, in microseconds, with commas between."""
    next_due: int | None
    work: bool
    layout: str
    """Lanes and limits, as text that changes when they do."""
    beats: int
    """How often this lease was renewed, as the database has it."""
    tables: int
    """A number that changes when the tables are replaced, as a restore in place does."""


class Reachability:
    """For how long the database has answered this worker without a break: only then is another's silence its own.

    A worker that cannot reach the database is as silent as a dead one. So nobody is taken for dead before an observer
    has seen the database answer for a whole lease of that worker: with no gap of more than half of it, and with the
    server's clock advancing as the observer's monotonic clock does. After an absence of the database, a frozen server
    or a jump of its clock everybody thus has the time of a lease to come back.
    """

    def __init__(self) -> None:
        self.since: dict[int, float] = {}
        """For leases of this length (microseconds) the database has answered since then, in monotonic seconds."""
        self.last: tuple[float, float, int] | None = None
        """The last answer: when it was asked for and came, and the server's time in microseconds."""
        self.why = "this worker has just started"
        """What broke the series last."""

    def answered(self, lease: int, asked: float, came: float, now: int) -> None:
        """The database has answered a heartbeat of a worker with this lease."""
        self.track(lease, came)
        if self.last is not None:
            asked_before, came_before, now_before = self.last
            gap, drift = came - asked_before, 0.0
            advanced = (now - now_before) / 1e6
            drift = max(advanced - gap, (asked - came_before) - advanced, 0.0)
            for length in self.since:
                if gap > length / 1e6 * GAP:
                    self.since[length] = came
                    self.why = f"the database did not answer for up to {gap:.1f} s"
                elif drift > length / 1e6 * DRIFT:
                    self.since[length] = came
                    self.why = f"the clock of the database jumped by {advanced - gap:+.1f} s"
        self.last = asked, came, now

    def track(self, lease: int, at: float) -> None:
        """Look out for leases of this length from now on; what is without gaps for a shorter one is so for it."""
        if lease not in self.since:
            if len(self.since) >= MOST_LENGTHS:
                self.since.clear()
            self.since[lease] = min((since for length, since in self.since.items() if length <= lease), default=at)

    def missing(self, lease: int, at: float) -> float:
        """Seconds until the database will have answered for the whole of a lease of this length; 0: it has."""
        return max(0.0, lease / 1e6 - (at - self.since.get(lease, at)))


@procedure(ConnectionRole.BEAT, atomic=True)
def register(worker: int, namespace: str, name: str, queues: str, lease: int) -> Script[int]:
    """A new lease; the number is this worker's for as long as it beats, and was never anybody else's."""
    return int((yield SqlQuery("register_worker", (worker, namespace, name, queues, lease)))[0][0])


@procedure(ConnectionRole.BEAT, atomic=True)
def pulse(
    worker: int, lease: int, lanes: list[int], names: list[str], progress: list[Row], held: list[Row]
) -> Script[tuple[Pulse | None, list[str]]]:
    """Renew the lease, write down progress, learn of cancellations. None: the lease is lost."""
    if progress:
        yield SqlBatch("note_progress", progress, (worker,))
    rows = yield SqlQuery("pulse", (worker, lease, lanes, names))
    cancelled = (yield SqlBatch("cancels", held, (worker,))) if held and rows else []
    return (Pulse(*rows[0]) if rows else None), [row[0] for row in cancelled]


@procedure(ConnectionRole.CONTROL, atomic=True)
def find_cancelled(worker: int, held: list[Row]) -> Script[list[str]]:
    """Which of these claims someone wants cancelled."""
    return [row[0] for row in (yield SqlBatch("cancels", held, (worker,)))]


@procedure(ConnectionRole.CONTROL, atomic=True)
def promote(limit: int) -> Script[list[int]]:
    """Make due tasks and flows ready; their lanes, one for each."""
    tasks = yield SqlQuery("promote", (limit,))
    flows = yield SqlQuery("promote_flows", (limit,))
    return [int(row[0]) for row in (*tasks, *flows) if row[0]]


@procedure(ConnectionRole.CONTROL)
def recover(
    as_of: int | None = None, leases: list[int] | None = None, failed: list[str] | None = None
) -> Script[list[int]]:
    """Delete workers whose lease had run out at a certain time and put their tasks back; the lanes, one for each task.

    Without a time: whose lease has run out now. `leases`: only those whose lease is as long as one of these. The ids of
    executions that have no attempt left, and so fail, are put into `failed`.
    """
    dead = yield SqlQuery("bury_workers", (as_of, leases))
    return (yield from _take_back({row[0]: row[1] for row in dead}, failed=failed))


@procedure(ConnectionRole.CONTROL)
def retire(worker: int, name: str) -> Script[list[int]]:
    """A worker leaves: its lease ends, and what it still holds goes back as if it had never been taken."""
    yield SqlQuery("retire_worker", (worker,))  # waits for a claim of this worker that is still under way
    return (yield from _take_back({worker: name}, counted=False))


@procedure(ConnectionRole.CONTROL)
def adopt_orphans() -> Script[list[int]]:
    """Put back claims that no lease covers."""
    owners = yield SqlQuery("orphans")
    return (yield from _take_back({row[0]: "unknown" for row in owners}))


@procedure(ConnectionRole.READ, atomic=True)
def find_orphans() -> Script[int]:
    """How many workers without a lease hold claims: of a worker that is gone, or by a claim that came too late."""
    return len((yield SqlQuery("orphans")))


def _take_back(dead: dict[int, str], counted: bool = True, failed: list[str] | None = None) -> Script[list[int]]:
    """Out of dead hands: cancelled if someone asked for it, ended if it has no attempt left, else ready again.

    What a worker hands back of its own will was not an attempt, and did not crash. An entity never ends so: with no
    attempt left it goes on without the message it had under way, and is parked if that costs workers too.
    """
    if not dead:
        return []
    lost = yield SqlQuery("take_back", (list(dead),))
    return (yield from _put_back(lost, dead, counted, failed))


def take_back_these(worker: int, name: str, claims: list[Fence]) -> Script[list[int]]:
    """These claims of a worker that has lost track of them, as if it had died with them; part of a larger script."""
    lost = yield SqlBatch("take_these", list(claims), (worker,))
    return (yield from _put_back(lost, {worker: name}, counted=True))


def _put_back(
    lost: list[Row], dead: dict[int, str], counted: bool, failed: list[str] | None = None
) -> Script[list[int]]:
    entities = yield from _entities([row[0] for row in lost if counted and row[3] >= row[4]])
    ended: list[Row] = []
    back: list[Row] = []
    parked: list[Row] = []
    for execution, lane, name, attempt, most, crashes, concurrency_key, cancel, owner in lost:
        if cancel:
            ended.append((execution, Status.CANCELLED.value, None, attempt))
        elif not counted:
            back.append((lane, execution, name, attempt - 1, most, crashes, concurrency_key))
        elif attempt >= most + TRIES_WITHOUT and execution in entities:
            parked.append((execution, dump_error(_lost_for_nothing(attempt)), PARKED_FOR))
        elif attempt >= most and execution not in entities:
            error = dump_error(lost_with(attempt, "task", f"; last: {dead[owner]}"))
            ended.append((execution, Status.FAILED.value, error, attempt))
        else:
            if crashes + 1 >= SUSPECT_AFTER:
                lane = yield from _suspect_lane(lane)
            back.append((lane, execution, name, attempt, most, crashes + 1, concurrency_key))
    for at in range(0, len(ended), ENDED_AT_ONCE):
        yield SqlBatch("end", ended[at : at + ENDED_AT_ONCE])
        yield from close([row[0] for row in ended[at : at + ENDED_AT_ONCE]])
    if failed is not None:
        failed[:] = [row[0] for row in ended if row[1] == Status.FAILED.value]
    if parked:
        yield SqlBatch("park_lost", parked)
    if back:
        yield SqlBatch("put_back", back)
    return [row[0] for row in back]


def _suspect_lane(lane: int) -> Script[int]:
    namespace, queue, priority, task, keyed, _ = (yield SqlQuery("lane_by_id", (lane,)))[0]
    return (yield from lane_id(namespace, (queue, priority, task, bool(keyed), True)))


def _entities(ids: list[str]) -> Script[set[str]]:
    return {row[0] for row in (yield SqlBatch("entities_among", [(id_,) for id_ in ids]))} if ids else set()


def lost_with(attempts: int, what: str = "message", more: str = "") -> ErrorInfo:
    """What becomes of work that cost so many workers."""
    times = "once" if attempts == 1 else f"{attempts} times"
    return ErrorInfo(
        "semel.WorkerLost",
        f"the worker died or went silent while running this {what} ({times}{more}), and no attempt is left.",
    )


def _lost_for_nothing(attempts: int) -> ErrorInfo:
    return ErrorInfo(
        "semel.WorkerLost",
        f"the worker died or went silent with this entity ({attempts} times), also without running a message: "
        "its state and its messages stay, and it is tried again after an hour, or when another message comes.",
    )
