"""The way in: group commit, the decision, and a count of what was suppressed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Any

from semel.contract.decision import Admit, Join, Prior, Reason, Refuse, Replay, Request, decide
from semel.contract.lifecycle import Status
from semel.contract.times import from_micros, instant, micros
from semel.engine.protocol import Admission, Start, Terms
from semel.engines.journal.coalesce import Coalescer, fitting
from semel.engines.journal.hub import Hub
from semel.engines.journal.lanes import Lanes
from semel.engines.journal.patience import persistently
from semel.engines.journal.script import Ask, Collision, Each, Line, Row, Script, Store, procedure
from semel.errors import EngineUnavailable

MOST_AT_ONCE = 1000
TRIES = 100
FLUSH_COUNTS_AFTER = 0.5
LONG = 100
CAREFUL_FOR = 600.0
_STATUS = {status.value: status for status in Status}
_terms = attrgetter("terms")
_ADMITTED = Admit(None, 0)


@procedure(Line.ADMIT, atomic=True)
def admit(namespace: str, rows: list[Row]) -> Script[set[str]]:
    """Insert what can be; the ids that are in. An earlier try with the same ids may have been committed."""
    return _ids((yield Each("admit", rows, (namespace,))), rows)


@procedure(Line.ADMIT, atomic=True)
def admit_alike(shared: Row, rows: list[Row]) -> Script[set[str]]:
    """The same for new ids on the same terms: of those, only a taken key is passed over."""
    if len(rows) == 1:
        return {rows[0][0]} if (yield Ask("admit_one", shared + rows[0])) else set()
    return _ids((yield Each("admit_alike", rows, shared)), rows)


@procedure(Line.ADMIT, atomic=True)
def admit_new(shared: Row, rows: list[Row]) -> Script[set[str]]:
    """The same for keys that are probably new. PostgreSQL: all or none, and then Collision; a fifth less to do."""
    return _ids((yield Each("admit_new", rows, shared)), rows)


def _ids(found: list[Row], rows: list[Row]) -> set[str]:
    """The ids that are in: how many, and which where it is not all of them."""
    count, ids = found[0][:2]
    return {row[0] for row in rows} if count == len(rows) else set(ids.split(",") if ids else ())


@procedure(Line.ADMIT, atomic=True)
def find_priors(namespace: str, keys: list[Row], ids: list[Row]) -> Script[tuple[list[Row], set[str]]]:
    """Who holds these keys; and which of these unkeyed ids are in already."""
    holders = (yield Each("priors", keys, (namespace,))) if keys else []
    present = (yield Each("present", ids)) if ids else []
    return holders, {row[0] for row in present}


@procedure(Line.ADMIT)
def supersede(namespace: str, prior: str, row: Row) -> Script[bool]:
    """Take the key from a finished execution and give it to a new one, both or neither."""
    if (yield Each("present", [row[:1]])):
        return True  # sent before, and followed by others since: they keep the key
    if not (yield Ask("release_key", (prior,))):
        return False
    yield Each("admit", [row], (namespace,))
    return True


@procedure(Line.ADMIT)
def share(ids: list[str]) -> Script[set[str]]:
    """Others want these too, whatever becomes of the workflow that asked for them: those that have not ended."""
    rows = [(id_,) for id_ in ids]
    yield Each("share", rows)
    return {row[0] for row in (yield Each("living", rows))}


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
        self._careful_until = 0.0

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
        for _ in range(TRIES):
            if not waiting:
                break
            new = await self._admit([requests[i] for i in waiting])
            rest = []
            for i in waiting:
                id_ = requests[i].id
                if id_ in new:
                    answers[i] = Admission(id_, _ADMITTED)
                else:
                    rest.append(i)
            self._mostly_duplicates = len(rest) * 2 > len(requests)
            waiting = await self._decide(requests, rest, answers) if rest else []
        return [answer or TimeoutError("the key changed hands too often") for answer in answers]

    async def _admit(self, requests: list[Start]) -> set[str]:
        """Try to insert them, and wake workers for those that are in."""
        terms = requests[0].terms
        try:
            if terms.keyed or _put_off(terms) or any(other is not terms for other in map(_terms, requests)):
                new = await self._store.run(admit, self._namespace, await self._rows(requests))
            else:
                lane = await self._lanes.of(terms)
                new = await self._admit_alike(
                    (self._namespace, terms.kind, terms.name, lane, terms.max_attempts, micros(terms.retention),
                     micros(terms.window)),
                    [(r.id, r.key, r.fingerprint, r.payload) for r in requests],
                )  # fmt: skip
                if new:
                    self._hub.work((lane,))
                return new
        except (EngineUnavailable, Collision):  # some may be in, by an earlier try: their own ids stand in the way
            new = await persistently(self._store.run, admit, self._namespace, await self._rows(requests))
        await self._tell_workers(r.terms for r in requests if r.id in new)
        return new

    async def _admit_alike(self, shared: Row, rows: list[Row]) -> set[str]:
        """Long lists mostly hold new keys; one that did not has cost a try and a line in the server's log."""
        if len(rows) >= LONG and time.monotonic() >= self._careful_until:
            try:
                return await self._store.run(admit_new, shared, rows)
            except Collision:
                self._careful_until = time.monotonic() + CAREFUL_FOR
        return await self._store.run(admit_alike, shared, rows)

    async def _rows(self, requests: list[Start]) -> list[Row]:
        return [_row(request, await self._lanes.of(request.terms)) for request in requests]

    async def _ask_first(self, requests: list[Start], waiting: list[int], answers: list[Any]) -> list[int]:
        """When duplicates prevail, reading first saves the attempt to insert them."""
        holders, _, at = await self._priors([requests[i] for i in waiting])
        now = from_micros(at)
        rest, joins = [], {}
        for i in waiting:
            prior = holders.get((requests[i].terms.kind, requests[i].key))
            younger = prior is not None and prior.id >= requests[i].id
            decision = decide(prior, _asked(requests[i]), now) if prior and not younger else None
            if decision is None or isinstance(decision, Admit):
                rest.append(i)
            elif decision.prior.parent is not None and isinstance(decision, Join):
                joins[i] = decision
            else:
                answers[i] = self._suppress(decision, at)
        return rest + await self._share(joins, answers, at)

    async def _decide(self, requests: list[Start], rest: list[int], answers: list[Any]) -> list[int]:
        """Something stood in the way of these: ask the contract. Those to try again are given back."""
        holders, present, at = await self._priors([requests[i] for i in rest])
        present |= await self._followed([requests[i] for i in rest], holders)
        now = from_micros(at)
        again, joins = [], {}
        for i in rest:
            request = requests[i]
            prior = holders.get((request.terms.kind, request.key))
            if request.id in present or (prior is not None and prior.id == request.id):
                # An earlier try was committed although its reply was lost.
                answers[i] = Admission(request.id, _ADMITTED)
                continue
            decision = decide(prior, _asked(request), now)
            if isinstance(decision, Join) and decision.prior.parent is not None:
                joins[i] = decision
            elif not isinstance(decision, Admit):
                answers[i] = self._suppress(decision, at)
            elif decision.supersedes is None or not await self._supersede(request, decision):
                again.append(i)
            else:
                await self._tell_workers([request.terms])
                answers[i] = Admission(request.id, decision)
        return again + await self._share(joins, answers, at)

    async def _supersede(self, request: Start, decision: Admit) -> bool:
        (row,) = await self._rows([request])
        new = (*row[:5], decision.generation, decision.supersedes, *row[7:])
        return await persistently(self._store.run, supersede, self._namespace, decision.supersedes or "", new)

    async def _priors(self, requests: list[Start]) -> tuple[dict[tuple[str, str | None], Prior], set[str], int]:
        keys = list({(r.terms.kind, r.key) for r in requests if r.key is not None})
        ids = [(r.id,) for r in requests if r.key is None]
        rows, present = await persistently(self._store.run, find_priors, self._namespace, keys, ids)
        holders: dict[tuple[str, str | None], Prior] = {}
        for kind, key, id_, name, print_, status, generation, window_ends, parent, _ in rows:
            ends = None if window_ends is None else from_micros(window_ends)
            holders[kind, key] = Prior(id_, name, print_, _STATUS[status], generation, ends, parent)
        return holders, present, rows[0][-1] if rows else 0

    async def _followed(self, requests: list[Start], holders: dict[tuple[str, str | None], Prior]) -> set[str]:
        """Those that are in and no longer hold their key: only where the holder is younger than the request."""
        ids = [(r.id,) for r in requests if (prior := holders.get((r.terms.kind, r.key))) and prior.id > r.id]
        if not ids:
            return set()
        return (await persistently(self._store.run, find_priors, self._namespace, [], ids))[1]

    async def _tell_workers(self, admitted: Iterable[Terms]) -> None:
        """Those of this process; the database tells the others."""
        lanes = set()
        for terms in admitted:
            if not _put_off(terms):
                lanes.add(await self._lanes.of(terms))
            elif terms.run_at is not None:
                self._hub.due(instant(terms.run_at))
            else:
                self._hub.due(int(time.time() * 1_000_000) + micros(terms.delay or timedelta()))
        if lanes:
            self._hub.work(lanes)

    async def _share(self, joins: dict[int, Join], answers: list[Any], now: int) -> list[int]:
        """Join what workflows have asked for and may stop wanting: it is on disk before anyone hears of it.

        Those that were to join what has ended meanwhile are given back, to be tried again.
        """
        if not joins:
            return []
        ids = sorted({decision.prior.id for decision in joins.values()})
        living = await persistently(self._store.run, share, ids)
        again = []
        for i, decision in joins.items():
            if decision.prior.id in living:
                answers[i] = self._suppress(decision, now)
            else:
                again.append(i)
        return again

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
    return Request(request.terms.name, request.fingerprint, request.terms.reuse)


def _put_off(terms: Terms) -> bool:
    return terms.delay is not None or terms.run_at is not None


def _row(request: Start, lane: int) -> Row:
    terms = request.terms
    return (
        request.id, terms.kind, terms.name, request.key, lane, 0, None, request.fingerprint, request.payload,
        terms.max_attempts, request.concurrency_key, micros(terms.retention), micros(terms.window),
        None if terms.delay is None else micros(terms.delay),
        None if terms.run_at is None else instant(terms.run_at), None,
    )  # fmt: skip
