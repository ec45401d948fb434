"""The way in: group commit, the decision, and a count of what was suppressed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from semel.contract.decision import Admit, Join, Prior, Reason, Refuse, Replay, Request, decide
from semel.contract.lifecycle import Status
from semel.contract.times import from_micros, micros
from semel.engine.protocol import Admission, Start
from semel.engines.journal.coalesce import Coalescer, fitting
from semel.engines.journal.hub import Hub
from semel.engines.journal.lanes import Lanes
from semel.engines.journal.patience import persistently
from semel.engines.journal.script import Ask, Each, Line, Row, Script, Store, procedure
from semel.errors import EngineUnavailable

MOST_AT_ONCE = 1000
TRIES = 100
FLUSH_COUNTS_AFTER = 0.5
_template = itemgetter(1, 2, 4, 5, 6, 9, 10, 11, 12, 13, 14, 15)
"""All of a row but id, key, fingerprint and input."""
_extras = itemgetter(5, 6, 10, 13, 14, 15)
"""Generation, predecessor, concurrency key, delay, time and root: mostly not there."""
_PLAIN = frozenset({0, None})
_STATUS = {status.value: status for status in Status}


@procedure(Line.ADMIT, atomic=True)
def admit(namespace: str, rows: list[Row], *, again: bool = True) -> Script[set[str]]:
    """Insert what can be; the ids that are in. `again`: an earlier try with the same ids may have been committed."""
    alike = len({_template(row) for row in rows}) == 1 and _PLAIN.issuperset(_extras(rows[0]))
    if alike and not again:
        _, kind, name, _, lane, *_ = rows[0]
        shared = (namespace, kind, name, lane, rows[0][9], rows[0][11], rows[0][12])
        found = yield Each("admit_alike", [(row[0], row[3], row[7], row[8]) for row in rows], shared)
    else:
        found = yield Each("admit", rows, (namespace,))
    return {id_ for row in found if row[0] for id_ in row[0].split(",")}


@procedure(Line.ADMIT, atomic=True)
def find_priors(namespace: str, keys: list[Row], ids: list[Row]) -> Script[tuple[list[Row], set[str]]]:
    """Who holds these keys; and which of these unkeyed ids are in already."""
    holders = (yield Each("priors", keys, (namespace,))) if keys else []
    present = (yield Each("present", ids)) if ids else []
    return holders, {row[0] for row in present}


@procedure(Line.ADMIT)
def supersede(namespace: str, prior: str, row: Row) -> Script[bool]:
    """Take the key from a finished execution and give it to a new one, both or neither."""
    if not (yield Ask("release_key", (prior,))):
        return False
    yield Each("admit", [row], (namespace,))
    return True


@procedure(Line.CONTROL, atomic=True)
def count_duplicates(rows: list[Row]) -> Script[None]:
    """Write down how many duplicates did not run."""
    yield Each("count_duplicates", rows)


class Admissions:
    """Admits requests for one engine."""

    def __init__(self, store: Store, namespace: str, lanes: Lanes, hub: Hub) -> None:
        self._store = store
        self._namespace = namespace
        self._lanes = lanes
        self._hub = hub
        self._group = Coalescer(self._flush, MOST_AT_ONCE, _weight)
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._counter: asyncio.Task[None] | None = None
        self._mostly_duplicates = False

    async def start(self, request: Start) -> Admission:
        """One request; shares its commit with those that arrive at the same time."""
        return await self._group.ask(request)

    async def start_many(self, requests: Sequence[Start]) -> list[Admission | BaseException]:
        """Many requests, a thousand to a commit."""
        answers: list[Admission | BaseException] = []
        while len(answers) < len(requests):
            rest = requests[len(answers) : len(answers) + MOST_AT_ONCE]
            answers += await self._flush(list(rest[: fitting(rest, MOST_AT_ONCE, _weight)]))
        return answers

    async def _flush(self, requests: list[Start]) -> list[Admission | BaseException]:
        answers: list[Admission | BaseException | None] = [None] * len(requests)
        waiting = list(range(len(requests)))
        if self._mostly_duplicates:
            waiting = await self._ask_first(requests, waiting, answers)
        rows = {i: self._row(requests[i], await self._lanes.of(requests[i])) for i in waiting}
        for _ in range(TRIES):
            if not waiting:
                break
            new = await self._admit([rows[i] for i in waiting])
            self._tell_workers(rows[i] for i in waiting if requests[i].id in new)
            rest = []
            for i in waiting:
                if requests[i].id in new:
                    answers[i] = Admission(requests[i].id, Admit(None, 0))
                else:
                    rest.append(i)
            self._mostly_duplicates = len(rest) * 2 > len(requests)
            waiting = await self._decide(requests, rows, rest, answers) if rest else []
        return [answer or TimeoutError("the key changed hands too often") for answer in answers]

    async def _admit(self, rows: list[Row]) -> set[str]:
        try:
            return await self._store.run(admit, self._namespace, rows, again=False)
        except EngineUnavailable:  # perhaps they are in: from now on their own ids may stand in the way
            return await persistently(self._store.run, admit, self._namespace, rows, again=True)

    async def _ask_first(self, requests: list[Start], waiting: list[int], answers: list[Any]) -> list[int]:
        """When duplicates prevail, reading first saves the attempt to insert them."""
        holders, _, at = await self._priors([requests[i] for i in waiting])
        now = from_micros(at)
        rest = []
        for i in waiting:
            prior = holders.get((requests[i].kind, requests[i].key))
            decision = decide(prior, _asked(requests[i]), now) if prior else None
            if isinstance(decision, Join | Replay | Refuse):
                answers[i] = self._suppress(decision, at)
            else:
                rest.append(i)
        return rest

    async def _decide(
        self, requests: list[Start], rows: dict[int, Row], rest: list[int], answers: list[Any]
    ) -> list[int]:
        """Something stood in the way of these: ask the contract. Those to try again are given back."""
        holders, present, at = await self._priors([requests[i] for i in rest])
        now = from_micros(at)
        again = []
        for i in rest:
            request = requests[i]
            prior = holders.get((request.kind, request.key))
            if request.id in present or (prior is not None and prior.id == request.id):
                # An earlier try was committed although its reply was lost.
                answers[i] = Admission(request.id, Admit(None, 0))
                continue
            decision = decide(prior, _asked(request), now)
            if not isinstance(decision, Admit):
                answers[i] = self._suppress(decision, at)
            elif decision.supersedes is None or not await self._supersede(rows[i], decision):
                again.append(i)
            else:
                self._tell_workers([rows[i]])
                answers[i] = Admission(request.id, decision)
        return again

    async def _supersede(self, row: Row, decision: Admit) -> bool:
        new = (*row[:5], decision.generation, decision.supersedes, *row[7:])
        return await persistently(self._store.run, supersede, self._namespace, decision.supersedes or "", new)

    async def _priors(self, requests: list[Start]) -> tuple[dict[tuple[str, str | None], Prior], set[str], int]:
        keys = list({(r.kind, r.key) for r in requests if r.key is not None})
        ids = [(r.id,) for r in requests if r.key is None]
        rows, present = await persistently(self._store.run, find_priors, self._namespace, keys, ids)
        holders: dict[tuple[str, str | None], Prior] = {}
        for kind, key, id_, name, print_, status, generation, window_ends, _ in rows:
            ends = None if window_ends is None else from_micros(window_ends)
            holders[kind, key] = Prior(id_, name, print_, _STATUS[status], generation, ends)
        return holders, present, rows[0][-1] if rows else 0

    def _row(self, request: Start, lane: int) -> Row:
        return (
            request.id, request.kind, request.name, request.key, lane, 0, None, request.fingerprint, request.payload,
            request.max_attempts, request.concurrency_key, micros(request.retention), micros(request.window),
            None if request.delay is None else micros(request.delay),
            None if request.run_at is None else round(request.run_at.timestamp() * 1_000_000), None,
        )  # fmt: skip

    def _tell_workers(self, rows: Any) -> None:
        lanes = set()
        for row in rows:
            delay, run_at = row[13], row[14]
            if delay is None and run_at is None:
                lanes.add(row[4])
            else:
                self._hub.due(run_at or int(time.time() * 1_000_000) + delay)
        if lanes:
            self._hub.work(lanes)

    def _suppress(self, decision: Join | Replay | Refuse, now: int) -> Admission:
        """Remember that a duplicate did not run; written down with others, never one by one."""
        prior = decision.prior
        if isinstance(decision, Refuse):
            reason = decision.reason
        else:
            reason = Reason.JOINED if isinstance(decision, Join) else Reason.REPLAYED
        count = self._counts.setdefault((prior.id, reason), [0, now, now])
        count[0] += 1
        count[2] = now
        if self._counter is None:
            self._counter = asyncio.create_task(self._count_soon())
        return Admission(prior.id, decision)

    async def _count_soon(self) -> None:
        try:
            await asyncio.sleep(FLUSH_COUNTS_AFTER)
        finally:
            self._counter = None
        await self.write_counts()

    async def write_counts(self) -> None:
        """Write the counts of suppressed duplicates; a database that is away loses none of them."""
        counts, self._counts = self._counts, {}
        rows: list[Row] = [(id_, reason, *count) for (id_, reason), count in counts.items()]
        try:
            for at in range(0, len(rows), MOST_AT_ONCE):
                await self._store.run(count_duplicates, rows[at : at + MOST_AT_ONCE])
        except Exception:
            for key, (times, first, last) in counts.items():
                kept = self._counts.setdefault(key, [0, first, last])
                kept[0] += times
                kept[1] = min(kept[1], first)
                kept[2] = max(kept[2], last)
            raise

    async def close(self) -> None:
        """Let pending requests finish and write the counts."""
        await self._group.drained()
        if self._counter is not None:
            self._counter.cancel()
        if self._counts:
            await self.write_counts()


def _weight(request: Start) -> int:
    return len(request.payload)


def _asked(request: Start) -> Request:
    return Request(request.name, request.fingerprint, request.reuse)
