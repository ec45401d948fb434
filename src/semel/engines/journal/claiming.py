"""How work leaves its lane: directly, or through gates where a limit or a key guards it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter

from msgspec import Struct

from semel.contract.rates import Bucket, Rate, refill, take, wait_for_one
from semel.engines.journal.script import Ask, Each, Line, Row, Script, procedure

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


@procedure(Line.CLAIM, atomic=True, quiet=True)
def claim(
    worker: int, lanes: list[int], lows: list[int], names: list[str], limit: int, number: int | None = None
) -> Script[list[Claim]]:
    """Up to `limit` tasks, lanes in the order given, each lane first in first out. Tokens are `number` plus seq."""
    rows = yield Ask("claim", (worker, lanes, lows, names, limit, number or random_number()))
    rows = sorted(rows, key=itemgetter(1))  # by seq
    if len(lanes) > 1:
        order = {lane: at for at, lane in enumerate(lanes)}
        rows.sort(key=lambda row: order[row[0]])
    return [Claim(*row) for row in rows]


@procedure(Line.CLAIM)
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
        yield Ask("prune_permits", (namespace,))
    if gate.concurrency is not None:
        scope, most = gate.concurrency
        used = (yield Ask("count_permits", (namespace, scope)))[0][0]
        allowed = min(allowed, most - used)
    if allowed <= 0:
        return Taken(wait=wait, after_key=lane.after_key)
    taken = yield from _take(namespace, worker, lane, names, allowed, number or random_number())
    for scope, bucket in full.items():
        left, _ = take(bucket, len(taken.claims))
        yield Ask("fill_gate", (namespace, scope, left.tokens, int(left.at * 1_000_000)))
    if gate.concurrency is not None and taken.claims:
        rows: list[Row] = [(gate.concurrency[0], c.lane, c.seq) for c in taken.claims]
        yield Each("grant_permits", rows, (namespace,))
    return taken


def _lock(namespace: str, scopes: list[str]) -> Script[tuple[dict[str, Bucket], float]]:
    """Hold the gates, always in the same order, so that two workers never wait for each other."""
    buckets: dict[str, Bucket] = {}
    now = 0.0
    for scope in scopes:
        rows = yield Ask("lock_gate", (namespace, scope))
        if not rows:
            yield Ask("make_gate", (namespace, scope))
            rows = yield Ask("lock_gate", (namespace, scope))
        tokens, refilled_at, at = rows[0]
        now = at / 1_000_000
        if tokens is not None:
            buckets[scope] = Bucket(tokens, refilled_at / 1_000_000)
    return buckets, now


def _take(namespace: str, worker: int, lane: Lane, names: list[str], limit: int, number: int) -> Script[Taken]:
    if not lane.keyed:
        rows = yield Ask("claim", (worker, [lane.id], [0], names, limit, number))
        return Taken(sorted(_claims(rows), key=lambda c: c.seq))
    heads: list[tuple[int, str]] = []
    for after in dict.fromkeys((lane.after_key, "")):
        found = yield Ask("keyed_heads", (namespace, lane.id, after, limit - len(heads), names))
        heads += [(seq, key) for seq, key in found if (seq, key) not in heads]
        if len(heads) >= limit:
            break
    if not heads:
        return Taken()
    rows = yield Ask("claim_these", (worker, lane.id, [seq for seq, _ in heads], number))
    claims = list(_claims(rows))
    keys = dict(heads)
    permits: list[Row] = [(f"key:{keys[c.seq]}", c.lane, c.seq) for c in claims]
    if permits:
        yield Each("grant_permits", permits, (namespace,))
    return Taken(claims, after_key=heads[-1][1])


def _claims(rows: Iterable[Row]) -> Iterable[Claim]:
    for row in rows:
        yield Claim(*row)


@procedure(Line.CLAIM, atomic=True)
def load_lanes(namespace: str, queues: list[str] | None) -> Script[tuple[list[Row], list[Row]]]:
    """The lanes of these queues, and the limits of all."""
    lanes = yield Ask("lanes", (namespace, queues))
    limits = yield Ask("limits", (namespace,))
    return lanes, limits


@procedure(Line.CLAIM, atomic=True)
def release(worker: int, claims: list[Fence]) -> Script[None]:
    """Give tasks back unrun; each as its `fence`."""
    yield Each("release", list(claims), (worker,))
