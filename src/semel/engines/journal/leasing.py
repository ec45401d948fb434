"""Leases: one heartbeat for a worker, and what happens to the tasks of one that stopped beating."""

from __future__ import annotations

from dataclasses import dataclass

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.engines.journal.control import close
from semel.engines.journal.lanes import lane_id
from semel.engines.journal.reading import dump_error
from semel.engines.journal.script import Ask, Each, Line, Row, Script, procedure

SUSPECT_AFTER = 2
"""A task whose worker died this often runs alone from then on."""
MOST_AT_ONCE = 500
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
    next_due: int | None
    next_slip: int | None
    work: bool
    layout: str
    """Lanes and limits, as text that changes when they do."""


@procedure(Line.CONTROL, atomic=True)
def register(namespace: str, name: str, queues: str, lease: int) -> Script[int]:
    """A new lease; its number is this worker's for as long as it beats."""
    return int((yield Ask("register_worker", (namespace, name, queues, lease)))[0][0])


@procedure(Line.CONTROL, atomic=True)
def pulse(
    worker: int, lease: int, lanes: list[int], names: list[str], progress: list[Row], held: list[Row]
) -> Script[tuple[Pulse | None, list[str]]]:
    """Renew the lease, write down progress, learn of cancellations. None: the lease is lost."""
    if progress:
        yield Each("note_progress", progress, (worker,))
    rows = yield Ask("pulse", (worker, lease, lanes, names))
    cancelled = (yield Each("cancels", held, (worker,))) if held and rows else []
    return (Pulse(*rows[0]) if rows else None), [row[0] for row in cancelled]


@procedure(Line.CONTROL, atomic=True)
def find_cancelled(worker: int, held: list[Row]) -> Script[list[str]]:
    """Which of these claims someone wants cancelled."""
    return [row[0] for row in (yield Each("cancels", held, (worker,)))]


@procedure(Line.CONTROL, atomic=True)
def promote(limit: int) -> Script[list[int]]:
    """Make due tasks and flows ready; their lanes, one for each."""
    tasks = yield Ask("promote", (limit,))
    flows = yield Ask("promote_flows", (limit,))
    return [int(row[0]) for row in (*tasks, *flows) if row[0]]


@procedure(Line.CONTROL)
def recover() -> Script[list[int]]:
    """Bury workers whose lease ran out and put their tasks back; the lanes, one for each task."""
    dead = yield Ask("bury_workers")
    return (yield from _take_back({row[0]: row[1] for row in dead}))


@procedure(Line.CONTROL)
def retire(worker: int, name: str) -> Script[list[int]]:
    """A worker leaves: its lease ends, and what it still holds goes back as if it had never been taken."""
    yield Ask("retire_worker", (worker,))  # waits for a claim of this worker that is still under way
    return (yield from _take_back({worker: name}, counted=False))


@procedure(Line.CONTROL)
def adopt_orphans() -> Script[list[int]]:
    """Put back claims that no lease covers."""
    owners = yield Ask("orphans")
    return (yield from _take_back({row[0]: "unknown" for row in owners}))


def _take_back(dead: dict[int, str], counted: bool = True) -> Script[list[int]]:
    """Out of dead hands: cancelled if someone asked for it, ended if it has no attempt left, else ready again.

    What a worker hands back of its own will was not an attempt, and did not crash. An entity never ends so: with no
    attempt left it goes on without the message it had under way, and is parked if that costs workers too.
    """
    if not dead:
        return []
    lost = yield Ask("take_back", (list(dead),))
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
        yield Each("end", ended[at : at + ENDED_AT_ONCE])
        yield from close([row[0] for row in ended[at : at + ENDED_AT_ONCE]])
    if parked:
        yield Each("park_lost", parked)
    if back:
        yield Each("put_back", back)
    return [row[0] for row in back]


def _suspect_lane(lane: int) -> Script[int]:
    namespace, queue, priority, task, keyed, _ = (yield Ask("lane_by_id", (lane,)))[0]
    return (yield from lane_id(namespace, (queue, priority, task, bool(keyed), True)))


def _entities(ids: list[str]) -> Script[set[str]]:
    return {row[0] for row in (yield Each("entities_among", [(id_,) for id_ in ids]))} if ids else set()


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
