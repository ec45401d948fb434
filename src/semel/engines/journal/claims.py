"""How work leaves its lane: which lanes a worker serves, in which order, and through which limits."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from semel.contract.rates import Bucket, Rate, parse_rate, refill, take, wait_for_one
from semel.contract.times import span
from semel.define.context import Running
from semel.define.task import Task
from semel.engines.journal.control import wake
from semel.engines.journal.lanes import FLOWS
from semel.engines.journal.script import ConnectionRole, Row, Script, SqlBatch, SqlQuery, procedure

if TYPE_CHECKING:
    from semel.engines.journal.worker import JournalWorker

T = TypeVar("T")
Fence = tuple[int, int, int, str]
"""What every statement compares that writes under a claim: lane, seq, token, execution."""


class Claim(Struct, frozen=True):
    """One task in the hands of a worker.

    (lane, seq) is where its row is. Sequences are used again after a restore or a failover, so the claim itself is
    `token`, a random number that no other claim has ever had, together with the execution.
    """

    lane: int
    seq: int
    execution: str
    attempt: int
    max_attempts: int
    cancel: bool
    name: str
    key: str | None
    generation: int
    input: bytes
    kind: str
    root: str
    """The first execution of a chain of redrives."""
    parent: str | None = None
    """The workflow that asked for it."""
    token: int = 0

    @property
    def fence(self) -> Fence:
        """See Fence."""
        return (self.lane, self.seq, self.token, self.execution)

    def context(self, namespace: str, queue: str, note: Callable[[Running], None]) -> Running:
        """What the function can know of this attempt; `note` hears of its progress."""
        return Running(
            self.execution,
            self.key,
            self.name,
            self.kind,
            namespace,
            queue,
            self.attempt,
            self.max_attempts,
            self.generation,
            self.token,
            bool(self.cancel),
            parent_workflow_id=self.parent,
            _root=self.root,
            _note=note,
        )


def random_number() -> int:
    """A number that nobody ever had: leases and claims are named by such, since a database may forget its sequences.

    It leaves room to add a seq without leaving 63 bits.
    """
    return secrets.randbits(62) + 1


@dataclass(slots=True)
class Lane:
    """A lane as a worker sees it."""

    id: int
    queue: str
    priority: int
    task: str
    keyed: bool
    suspect: bool
    low: int = 0
    """Nothing this worker can take is at or before this seq: where to begin to look."""
    after_key: str = ""
    """The concurrency key that was served last, so that keys take turns."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What guards a lane: buckets to take from, and how many may run at once."""

    rates: tuple[tuple[str, Rate], ...] = ()
    concurrency: tuple[str, int] | None = None


@dataclass(slots=True)
class Taken:
    """Claims, and when to ask again if a bucket was empty."""

    claims: list[Claim] = field(default_factory=list)
    wait: float | None = None
    after_key: str = ""


@procedure(ConnectionRole.CLAIM, atomic=True, quiet=True)
def claim(
    worker: int, lanes: list[int], lows: list[int], names: list[str], limit: int, number: int | None = None
) -> Script[list[Claim]]:
    """Up to `limit` tasks, lanes in the order given, each lane first in first out. Tokens are `number` plus seq."""
    rows = yield SqlQuery("claim", (worker, lanes, lows, names, limit, number or random_number()))
    rows = sorted(rows, key=itemgetter(1))  # by seq
    if len(lanes) > 1:
        order = {lane: at for at, lane in enumerate(lanes)}
        rows.sort(key=lambda row: order[row[0]])
    return [Claim(*row) for row in rows]


@procedure(ConnectionRole.CLAIM)
def claim_guarded(
    namespace: str, worker: int, lane: Lane, gate: Gate, names: list[str], limit: int, number: int | None = None
) -> Script[Taken]:
    """The same for one guarded lane, under the lock of its gates."""
    scopes = [scope for scope, _ in gate.rates]
    if gate.concurrency is not None:
        scopes.append(gate.concurrency[0])
    if lane.keyed:
        scopes.append("keys")
    buckets, now = yield from _lock(namespace, sorted(set(scopes)))
    allowed, wait = limit, None
    full: dict[str, Bucket] = {}
    for scope, rate in gate.rates:
        full[scope] = refill(buckets.get(scope), rate, now)
        allowed = min(allowed, take(full[scope], limit)[1])
        if allowed == 0:
            wait = max(wait or 0.0, wait_for_one(full[scope], rate))
    if gate.concurrency is not None or lane.keyed:
        yield SqlQuery("prune_permits", (namespace,))
    if gate.concurrency is not None:
        scope, most = gate.concurrency
        used = (yield SqlQuery("count_permits", (namespace, scope)))[0][0]
        allowed = min(allowed, most - used)
    if allowed <= 0:
        return Taken(wait=wait, after_key=lane.after_key)
    taken = yield from _take(namespace, worker, lane, names, allowed, number or random_number())
    for scope, bucket in full.items():
        left, _ = take(bucket, len(taken.claims))
        yield SqlQuery("fill_gate", (namespace, scope, left.tokens, int(left.at * 1_000_000)))
    if gate.concurrency is not None and taken.claims:
        rows: list[Row] = [(gate.concurrency[0], c.lane, c.seq) for c in taken.claims]
        yield SqlBatch("grant_permits", rows, (namespace,))
    return taken


def _lock(namespace: str, scopes: list[str]) -> Script[tuple[dict[str, Bucket], float]]:
    """Hold the gates, always in the same order, so that two workers never wait for each other."""
    buckets: dict[str, Bucket] = {}
    now = 0.0
    for scope in scopes:
        rows = yield SqlQuery("lock_gate", (namespace, scope))
        if not rows:
            yield SqlQuery("make_gate", (namespace, scope))
            rows = yield SqlQuery("lock_gate", (namespace, scope))
        tokens, refilled_at, at = rows[0]
        now = at / 1_000_000
        if tokens is not None:
            buckets[scope] = Bucket(tokens, refilled_at / 1_000_000)
    return buckets, now


def _take(namespace: str, worker: int, lane: Lane, names: list[str], limit: int, number: int) -> Script[Taken]:
    if not lane.keyed:
        rows = yield SqlQuery("claim", (worker, [lane.id], [0], names, limit, number))
        return Taken(sorted(_claims(rows), key=lambda c: c.seq))
    heads: list[tuple[int, str]] = []
    for after in dict.fromkeys((lane.after_key, "")):
        found = yield SqlQuery("keyed_heads", (namespace, lane.id, after, limit - len(heads), names))
        heads += [(seq, key) for seq, key in found if (seq, key) not in heads]
        if len(heads) >= limit:
            break
    if not heads:
        return Taken()
    rows = yield SqlQuery("claim_these", (worker, lane.id, [seq for seq, _ in heads], number))
    claims = list(_claims(rows))
    keys = dict(heads)
    permits: list[Row] = [(f"key:{keys[c.seq]}", c.lane, c.seq) for c in claims]
    if permits:
        yield SqlBatch("grant_permits", permits, (namespace,))
    return Taken(claims, after_key=heads[-1][1])


def _claims(rows: Iterable[Row]) -> Iterable[Claim]:
    for row in rows:
        yield Claim(*row)


@procedure(ConnectionRole.CLAIM, atomic=True)
def load_lanes(namespace: str, queues: list[str] | None) -> Script[tuple[list[Row], list[Row]]]:
    """The lanes of these queues, and the limits of all."""
    lanes = yield SqlQuery("lanes", (namespace, queues))
    limits = yield SqlQuery("limits", (namespace,))
    return lanes, limits


@procedure(ConnectionRole.CLAIM, atomic=True)
def release(worker: int, claims: list[Fence]) -> Script[None]:
    """Give tasks back unrun; each as its `fence`."""
    yield SqlBatch("release", list(claims), (worker,))


RESCAN_AFTER = 1.0
RESCAN_SHARE = 50
"""A look from the very front of the lanes may take at most one fiftieth of the time."""


def rotate(items: list[T], by: int) -> list[T]:
    """The same items, begun so many later."""
    at = by % len(items)
    return items[at:] + items[:at]


class Intake:
    """The lanes of one worker.

    It remembers how far into each lane it has looked (`low`), so that neither claimed nor deleted rows are
    passed over again and again. Work that was committed late, behind that point, is found by looking
    from the front again: when there seems to be nothing, and every second or so.
    """

    def __init__(self, worker: JournalWorker) -> None:
        self._worker = worker
        self._lanes: dict[int, Lane] = {}
        self._gates: dict[int, Gate] = {}
        self._suspects: set[int] = set()
        """Suspects taken and not yet settled: the next one waits, or it could take a result with it into death."""
        self._groups: list[list[list[Lane]]] = []
        self._turn = 0
        """How often a look found more work than it could take: each time others are asked first."""
        self._rescan_at = 0.0
        self._stale = False
        self._poll_everything = False
        """Some lane has work, and no one said which: it may be one that is new to us."""
        self._foreign: set[int] = set()
        """Lanes of other queues or namespaces, which were looked up and are not ours."""
        self.busy = False
        """The last look found as much as was asked for."""
        self.retentions: list[timedelta] = []
        """How long queues keep what has finished, where that is set."""
        self.unbegun: set[int] = set()
        """The numbers of claim statements of which nothing was begun here: their reply is not there, or never came."""
        self.wait: float | None = None
        """Seconds until a bucket has a token again."""

    @property
    def ids(self) -> list[int]:
        """The lanes served."""
        return list(self._lanes)

    @property
    def guarded(self) -> bool:
        """Is there a lane whose work may have to wait for a permit or a token?"""
        return bool(self._gates)

    def queue_of(self, lane: int) -> str:
        """The queue a lane belongs to."""
        return self._lanes[lane].queue

    def concerns(self, lanes: Iterable[int]) -> bool:
        """Is one of these ours, or new to us? No lanes means: some lane."""
        mentioned = ours = False
        for lane in lanes:
            mentioned = True
            if lane in self._lanes:
                ours = True
            elif lane not in self._foreign:
                self._foreign.add(lane)  # until the next refresh says otherwise
                self._stale = ours = True
        self._poll_everything = self._poll_everything or not mentioned
        return ours or not mentioned

    async def refresh(self) -> None:
        """Read lanes and limits anew."""
        self._stale = False
        worker = self._worker
        rows, limits = await worker.store.run(load_lanes, worker.namespace, worker.queues)
        rates = {name: (rate, concurrency) for name, rate, concurrency, _, _ in limits}
        self.retentions = [span(retention) for *_, retention, _ in limits if retention is not None]
        lanes = {}
        for id_, queue, priority, task, keyed, suspect in rows:
            old = self._lanes.get(id_)
            lanes[id_] = old or Lane(id_, queue, priority, task, bool(keyed), bool(suspect))
        self._lanes = lanes
        self._foreign -= lanes.keys()
        self._gates = {}
        for lane in lanes.values():
            gate = self._gate(lane, *rates.get(lane.queue, (None, None)))
            if gate is not None:
                self._gates[lane.id] = gate
        self._groups = self._plan(lanes.values())

    def _gate(self, lane: Lane, rate: str | None, concurrency: int | None) -> Gate | None:
        if lane.task == FLOWS:
            return None
        rates: list[tuple[str, Rate]] = []
        if rate is not None and parse_rate(rate).count:
            rates.append((f"queue:{lane.queue}", parse_rate(rate)))
        task = self._worker.registry.get(lane.task) if lane.task else None
        if isinstance(task, Task) and task.rate_limit is not None and task.rate_limit.count:
            rates.append((f"task:{lane.task}", task.rate_limit))
        if not rates and not concurrency and not lane.keyed:
            return None
        return Gate(tuple(rates), (f"queue:{lane.queue}", concurrency) if concurrency else None)

    def _plan(self, lanes: Iterable[Lane]) -> list[list[list[Lane]]]:
        """In which order lanes are asked: groups one after the other, the steps of a group in turn, each one statement.

        Plain lanes are asked in one statement, each guarded or suspect one by itself. A group has one priority, unless
        all of its lanes are plain.
        """
        groups: list[list[list[Lane]]] = []
        merge = False
        for _, found in groupby(lanes, key=lambda lane: (lane.priority, lane.suspect)):
            group = list(found)
            plain = [lane for lane in group if lane.id not in self._gates and not lane.suspect]
            alone = [[lane] for lane in group if lane.id in self._gates or lane.suspect]
            if merge and not alone:
                groups[-1][0] += plain
            else:
                groups.append([plain, *alone] if plain else alone)
            merge = not alone
        return groups

    async def take(self, room: int) -> list[Claim]:
        """Up to `room` tasks, higher priorities first."""
        if self._stale:
            await self.refresh()
        began = time.monotonic()
        rescan = began >= self._rescan_at
        claims = await self._look(room, rescan)
        if not claims and not rescan:
            rescan, began = True, time.monotonic()
            claims = await self._look(room, rescan)
        if not claims and self._poll_everything:
            self._poll_everything, known = False, self._lanes
            await self.refresh()
            if self._lanes.keys() - known.keys():
                claims = await self._look(room, rescan)
        if rescan:
            took = time.monotonic() - began
            self._rescan_at = time.monotonic() + max(RESCAN_AFTER, took * RESCAN_SHARE)
        self.busy = len(claims) >= room
        self._turn += self.busy
        return claims

    async def _look(self, room: int, rescan: bool) -> list[Claim]:
        claims: list[Claim] = []
        waits: list[float] = []
        for step in self._in_order():
            left = room - len(claims)
            if left <= 0:
                break
            first = step[0]
            if first.suspect:
                left = 0 if self._suspects else 1
            if left and first.id in self._gates:
                claims += await self._guarded(first, left, waits)
            elif left:
                claims += await self._direct(step, left, rescan)
            if first.suspect:
                self._suspects.update(c.token for c in claims if c.lane == first.id)
        self.wait = min(waits, default=None)
        return claims

    def _in_order(self) -> Iterator[list[Lane]]:
        """The steps of a look. Lanes of one priority take turns at being first: an older queue starves no newer one."""
        for group in self._groups:
            for step in rotate(group, self._turn):
                if len(step) == 1:
                    yield step
                else:
                    by_priority = groupby(step, key=lambda lane: lane.priority)
                    yield [lane for _, found in by_priority for lane in rotate(list(found), self._turn)]

    async def _direct(self, lanes: list[Lane], room: int, rescan: bool) -> list[Claim]:
        worker = self._worker
        lows = [0 if rescan else lane.low for lane in lanes]
        ids, number = [lane.id for lane in lanes], self._ask()
        found = await worker.store.run(claim, worker.id, ids, lows, worker.names, room, number)
        for one in found:
            lane = self._lanes[one.lane]
            lane.low = max(lane.low, one.seq)
        return found

    async def _guarded(self, lane: Lane, room: int, waits: list[float]) -> list[Claim]:
        worker = self._worker
        number = self._ask()
        taken = await worker.store.run(
            claim_guarded, worker.namespace, worker.id, lane, self._gates[lane.id], worker.names, room, number
        )
        lane.after_key = taken.after_key
        if taken.wait is not None:
            waits.append(taken.wait)
        return taken.claims

    def _ask(self) -> int:
        """A number for a claim statement."""
        number = random_number()
        self.unbegun.add(number)
        return number

    def hold_only(self, tokens: Iterable[int]) -> None:
        """These claims are all that the worker still has: the rest was lost with a lease, or given back."""
        self._suspects &= set(tokens)

    async def freed(self, claims: list[Claim]) -> None:
        """Tasks have ended: guarded lanes may now give out more, here and elsewhere."""
        lanes = set()
        for one in claims:
            self._suspects.discard(one.token)
            if one.lane in self._gates or (one.lane in self._lanes and self._lanes[one.lane].suspect):
                lanes.add(one.lane)
        for lane in lanes:
            self._worker.wake.set()
            await self._worker.store.run(wake, lane)
