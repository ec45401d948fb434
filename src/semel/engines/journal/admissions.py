"""Requests for executions of one engine: in groups, with one commit for each, and a count of suppressed duplicates."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Iterable, Sequence
from datetime import timedelta

from semel.contract.decision import Admit, Join, Refuse, Replay, reason_of
from semel.contract.times import instant, micros
from semel.engine.bounded import time_limit
from semel.engine.protocol import Admission
from semel.engine.start_request import RunOptions, StartRequest
from semel.engines.journal.admit import (
    ADMITTED,
    Wanted,
    admit,
    count_duplicates,
    fit_alike,
    insert,
    insert_alike,
    insert_new,
    is_plain,
    is_put_off,
    own_columns,
    shared_columns,
)
from semel.engines.journal.group_commit import Coalescer, fitting
from semel.engines.journal.lanes import Lanes
from semel.engines.journal.notifications import Hub
from semel.engines.journal.script import Collision, Row, ScriptRunner
from semel.errors import EngineUnavailable
from semel.runtime.duplicates import CountRow, DuplicateCounter
from semel.runtime.retries import retry_unavailable

log = logging.getLogger("semel.journal")
MOST_AT_ONCE = 1000
TRIES = 20
LONG = 100
CAREFUL_FOR = 600.0


class Admissions:
    """Admits requests for one engine."""

    def __init__(
        self,
        store: ScriptRunner,
        namespace: str,
        lanes: Lanes,
        hub: Hub,
        limit: float,
        duplicates: DuplicateCounter | None = None,
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._lanes = lanes
        self._hub = hub
        self._group = Coalescer(self._flush, MOST_AT_ONCE, _weight, time_limit=limit)
        self._duplicates = duplicates or DuplicateCounter(self._write_counts, log)
        self._time_limit = limit
        self._mostly_duplicates = False
        self._careful_until = 0.0
        self.newest: str | None = None
        """The execution that was admitted last, if it came alone."""

    def on(self, transaction: ScriptRunner, lanes: Lanes) -> Admissions:
        """The same in a transaction of the caller's, which tells workers by its commit and must not be aborted."""
        joined = Admissions(transaction, self._namespace, lanes, Hub(), self._time_limit, self._duplicates)
        joined._careful_until = math.inf
        return joined

    def start(self, request: StartRequest) -> Awaitable[Admission]:
        """One request; shares its commit with those that arrive at the same time."""
        return self._group.ask(request)

    async def start_many(self, requests: Sequence[StartRequest]) -> list[Admission | BaseException]:
        """Many requests, a thousand to a commit."""
        answers: list[Admission | BaseException] = []
        while len(answers) < len(requests):
            rest = requests[len(answers) : len(answers) + MOST_AT_ONCE]
            async with time_limit(self._time_limit, "enqueue_many"):
                answers += await self._flush(list(rest[: fitting(rest, MOST_AT_ONCE, _weight)]))
        return answers

    async def _flush(self, requests: list[StartRequest]) -> list[Admission | BaseException]:
        answers: list[Admission | BaseException | None] = [None] * len(requests)
        waiting = list(range(len(requests)))
        if not self._mostly_duplicates:  # else reading first saves the attempt to insert them
            new = await self._insert(requests)
            for i in waiting:
                if requests[i].id in new:
                    answers[i] = Admission(requests[i].id, ADMITTED)
            waiting = [i for i in waiting if answers[i] is None]
            self.newest = requests[0].id if len(requests) == len(new) == 1 else None
        duplicates = 0
        for _ in range(TRIES):
            if not waiting:
                break
            wanted = await self._with_lanes([requests[i] for i in waiting])
            decided = await retry_unavailable(self._store.run, admit, self._namespace, wanted)
            admitted = []
            for i, one in zip(waiting, decided, strict=True):
                if one is None:  # its lane is gone, or its key changes hands all the time
                    self._lanes.forget(requests[i].options)
                elif isinstance(one.decision, Admit):
                    answers[i] = Admission(requests[i].id, one.decision)
                    admitted.append(requests[i].options)
                else:
                    answers[i] = self._suppress(one.decision, one.at)
                    duplicates += 1
            await self._tell_workers(admitted)
            waiting = [i for i in waiting if answers[i] is None]
        self._mostly_duplicates = duplicates * 2 > len(requests)
        return [answer or TimeoutError("the key changed hands too often") for answer in answers]

    async def _with_lanes(self, requests: list[StartRequest]) -> list[Wanted]:
        """Each with the lane it goes to, which is made if it is missing."""
        lanes = {
            id(options): await self._lanes.of(options)
            for options in {id(r.options): r.options for r in requests}.values()
        }
        return [Wanted(request, lanes[id(request.options)]) for request in requests]

    async def _insert(self, requests: list[StartRequest]) -> set[str]:
        """Try to insert them, and wake workers for those that are in; the ids that certainly are."""
        options = requests[0].options
        try:
            if not fit_alike(options) or not all(r.options is options and is_plain(r) for r in requests):
                rows = [wanted.row() for wanted in await self._with_lanes(requests)]
                new = await self._store.run(insert, self._namespace, rows)
                await self._tell_workers(r.options for r in requests if r.id in new)
                return new
            lane = await self._lanes.of(options)
            shared = shared_columns(self._namespace, options, lane)
            new = await self._insert_alike(shared, [own_columns(request) for request in requests])
        except (EngineUnavailable, Collision):  # some may be in all the same: their ids will tell
            return set()
        if new:
            self._hub.work((lane,))
        return new

    async def _insert_alike(self, shared: Row, rows: list[Row]) -> set[str]:
        """Long lists mostly hold new keys; one that did not has cost a try and a line in the server's log."""
        if len(rows) >= LONG and time.monotonic() >= self._careful_until:
            try:
                return await self._store.run(insert_new, shared, rows)
            except Collision:
                self._careful_until = time.monotonic() + CAREFUL_FOR
        return await self._store.run(insert_alike, shared, rows)

    async def _tell_workers(self, admitted: Iterable[RunOptions]) -> None:
        """Those of this process; the database tells the others."""
        lanes = set()
        for options in admitted:
            if not is_put_off(options):
                lanes.add(await self._lanes.of(options))
            elif options.run_at is not None:
                self._hub.due(instant(options.run_at))
            else:
                self._hub.due(int(time.time() * 1_000_000) + micros(options.delay or timedelta()))
        if lanes:
            self._hub.work(lanes)

    def _suppress(self, decision: Join | Replay | Refuse, at: int) -> Admission:
        """Remember that a duplicate did not run; written down with others, never one by one."""
        self._duplicates.add(decision.prior.id, reason_of(decision), at)
        return Admission(decision.prior.id, decision)

    async def write_counts(self) -> None:
        """Write the counts of suppressed duplicates; what could not be written is kept, and the error is raised."""
        await self._duplicates.write()

    async def _write_counts(self, rows: list[CountRow]) -> None:
        await self._store.run(count_duplicates, [row[:5] for row in rows])  # they go when their execution goes

    async def close(self) -> None:
        """Let pending requests finish and write the counts."""
        try:
            await self._group.drained()
            await self._duplicates.close()
        finally:
            self._duplicates.stop()


def _weight(request: StartRequest) -> int:
    return len(request.payload)
