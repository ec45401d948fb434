"""The relay: takes committed rows of an outbox, oldest first, and starts what they ask for.

Any number of relays share an outbox. Each takes rows of its own for the time of a lease, under a token, and only who
holds the token may mark a row. A row that is carried out and not marked is carried out again, which changes nothing:
its request has an id of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from semel.engine.bounded import time_limit
from semel.engine.failure_log import RepeatedFailures
from semel.engine.ids import new_id
from semel.errors import EngineError, EngineUnavailable, phrase, phrase_with_type
from semel.runtime.retries import Reminder, pause
from semel.transactional.outbox import scripts
from semel.transactional.outbox.database import OutboxDatabase, sleep_until
from semel.transactional.outbox.dispatch import PERMANENT, STARTS, Dispatcher, NotServed
from semel.transactional.outbox.events import TakenRow
from semel.transactional.outbox.scripts import Claimed, Marks, OutboxCounts

log = logging.getLogger("semel.relay")
FIRST_LOOK: Final = 0.05
"""Seconds until the first look after rows were found; each further one waits twice as long, up to `poll`."""
LIVES_FOR: Final = 30.0
"""Seconds after which a relay that says nothing counts as dead."""
BEAT_EVERY: Final = 10.0
LONGEST_PAUSE: Final = 5.0
"""Seconds until a database that does not answer is tried again, at most."""
NOT_SERVED_FOR: Final = 5.0
"""Seconds for which a row is left to relays that can carry it out."""
NO_ANSWER_FOR: Final = 1.0
"""Seconds until a row is taken again that the engine gave no answer to."""
QUICK_ANSWER: Final = 5.0
"""Seconds within which an error of many starts may be that of one; later the engine is silent."""
SILENT_AFTER: Final = 3
"""So many rows without an answer, and none with one, and the rest of the batch is not tried."""
BEGIN_WITHIN: Final = 10.0
"""Seconds that a relay waits for its database before it begins without."""
MOST_NAMED: Final = 100
"""So many kinds of rows that it lacks the function for are named in the log of a relay."""
STOP_WITHIN: Final = 10.0
"""Seconds that a relay takes to stop, also if its database or its engine does not answer."""
LEAVE_WITHIN: Final = 2.0
"""Seconds of these for leaving in order, once nothing is under way any more."""
ERROR_LENGTH: Final = 2000


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """How a relay behaves."""

    batch: int = 500
    """Rows that it takes at once."""
    concurrency: int = 100
    """Rows that are under way at the engine at once."""
    poll: float = 5.0
    """Seconds between two looks while nothing comes, behind the wake-up where there is one."""
    lease: float = 60.0
    """Seconds for which rows are taken."""
    retention: float = timedelta(days=7).total_seconds()
    """Seconds that processed rows are kept."""
    clean_every: float = 60.0


@dataclass(slots=True)
class RelayCounters:
    """What one relay has done since it began."""

    relayed: int = 0
    retried: int = 0
    failed: int = 0
    put_off: int = 0
    """Rows that were given back without a try: the engine did not answer, or this relay lacks the function."""
    lost_leases: int = 0
    """Rows whose lease ran out before they were marked; another relay carries them out."""
    cleaned: int = 0


class Relay:
    """A relay for one outbox. `async with app.relay(url): …` runs one."""

    def __init__(
        self, database: OutboxDatabase, dispatcher: Dispatcher, namespace: str, options: RelayOptions | None = None
    ) -> None:
        self.options = options or RelayOptions()
        self.counters = RelayCounters()
        self.id = f"{socket.gethostname()}:{os.getpid()}:{new_id()[-8:]}"
        self._database = database
        self._dispatcher = dispatcher
        self._namespace = namespace
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._failures = RepeatedFailures()
        self._reminder = Reminder()
        self._next_beat = self._next_clean = 0.0
        self._idle = False
        self._away = False
        """Its database did not answer when it was asked last."""
        self._left: set[str] = set()
        """What this relay has said that it leaves to others."""

    @property
    def healthy(self) -> bool:
        """Does it run?"""
        return self._task is not None and not self._task.done()

    @property
    def database(self) -> str:
        """Where its outbox is, as people may see it."""
        return self._database.name

    async def measure(self) -> OutboxCounts:
        """How its outbox stands."""
        return await self._database.run(scripts.counts(self._namespace), write=False)

    async def start(self) -> None:
        """Begin. MigrationNeeded: there is no outbox. A database that does not answer is waited for."""
        try:
            async with time_limit(min(BEGIN_WITHIN, self._database.timeout), self._database.name):
                await self._database.run(scripts.counts(self._namespace), write=False)
                await self._beat(idle=False)
        except EngineUnavailable as error:
            self._away = True
            log.warning("the relay begins without its database, and waits for it: %s", phrase(error))
        self._task = asyncio.create_task(self._keep_going())

    async def stop(self) -> None:
        """Take no more rows, mark those that are under way, and leave. Ten seconds at most; safe to call again."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._stop())
        await asyncio.shield(self._ending)

    async def _stop(self) -> None:
        self._stopping.set()
        task = self._task
        if task is not None:
            await asyncio.wait([task], timeout=LEAVE_WITHIN if self._away else STOP_WITHIN - 2 * LEAVE_WITHIN)
            if not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=LEAVE_WITHIN)
        with contextlib.suppress(EngineError, TimeoutError):
            async with asyncio.timeout(LEAVE_WITHIN):
                if task is not None and not self._away:
                    await self._database.run(scripts.leave(self.id))
                await self._database.close()
        self._database.terminate()

    async def _keep_going(self) -> None:
        """Nothing that happens to a row or to a database ends this."""
        failed, nothing = 0, 0
        while not self._stopping.is_set():
            try:
                found = await self.step()
                nothing = 0 if found else nothing + 1
                if not found:
                    await self._rest(nothing)
            except EngineUnavailable as error:
                failed += 1
                self._away = True
                if self._reminder.due():
                    log.warning("the relay waits for its database: %s", phrase(error))
                await self._pause(pause(failed, LONGEST_PAUSE))
                continue
            except (Exception, asyncio.CancelledError) as error:
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise
                failed += 1
                self._failures.log(log, "relay", error, "the relay goes on after a failure")
                await self._pause(pause(failed, LONGEST_PAUSE))
                continue
            self._away = False
            if failed:
                failed = 0
                self._reminder.over()
                log.warning("the relay has its database again")

    async def step(self) -> int:
        """Take rows that are due, carry them out and mark them; how many there were."""
        if time.monotonic() >= self._next_beat:
            await self._beat(idle=self._idle)
        await self._clean()
        due = await self._database.run(scripts.next_due(self._namespace), write=False)
        if due is None or due > 0:
            return 0
        token = new_id()
        options = self.options
        deadline = time.monotonic() + options.lease * 2 / 3
        claimed = await self._database.run(
            scripts.claim(self._namespace, self.id, token, options.lease, options.batch, self._dispatcher.types)
        )
        if not claimed.rows:
            return 0
        if self._idle:
            await self._beat(idle=False)
        batch = _Batch(self._dispatcher, claimed, options.concurrency, deadline, self._not_served)
        done = asyncio.Event()
        beating = asyncio.create_task(self._beat_until(done))
        try:
            marks = await batch.carry_out()
        finally:
            done.set()
            await beating
        await self._mark(token, marks, claimed.failures)
        return len(claimed.rows)

    async def _mark(self, token: str, marks: Marks, failures: int) -> None:
        marked = await self._database.run(scripts.mark(self._namespace, token, marks, failures))
        counters = self.counters
        counters.relayed += len(marks.processed)
        counters.retried += len(marks.errors)
        counters.failed += len(marks.failed)
        counters.put_off += len(marks.put_off)
        if marked < marks.count:
            counters.lost_leases += marks.count - marked
            log.warning("%d rows were not marked: the lease of this relay had run out", marks.count - marked)
        if marks.unavailable is not None:
            log.warning("the engine takes nothing, rows wait: %s", marks.unavailable)
        elif failures:
            log.warning("the engine takes rows again")

    async def _rest(self, nothing: int) -> None:
        """Wait until something may have come: shortly at first, then for `poll` seconds, or until it is told."""
        longest = min(self.options.poll, FIRST_LOOK * 2.0 ** min(nothing - 1, 20))
        if longest >= 1.0 and not self._idle:
            await self._beat(idle=True)  # from here on whoever commits a row says so
            return
        due = await self._database.run(scripts.next_due(self._namespace), write=False)
        if due is not None and due > 0:
            longest = min(longest, due + 0.001)
        waiting = asyncio.create_task(self._database.wait(longest))
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, stopping):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _beat(self, *, idle: bool) -> None:
        await self._database.run(scripts.beat(self.id, self._namespace, LIVES_FOR, idle))
        self._idle = idle
        self._next_beat = time.monotonic() + BEAT_EVERY

    async def _beat_until(self, done: asyncio.Event) -> None:
        """Say that this relay lives while it is busy with a batch."""
        while not done.is_set():
            await sleep_until(done, max(0.0, self._next_beat - time.monotonic()))
            if not done.is_set():
                try:
                    await self._beat(idle=False)
                except EngineError as error:
                    log.debug("the relay could not say that it lives: %s", phrase(error))
                    self._next_beat = time.monotonic() + BEAT_EVERY

    def _not_served(self, what: str) -> None:
        """Log once for each kind of row that this relay leaves to others."""
        if what not in self._left and len(self._left) < MOST_NAMED:
            self._left.add(what)
            log.warning("rows are left to other relays, and wait if there are none: this one does not know %s", what)

    async def _clean(self) -> None:
        if time.monotonic() < self._next_clean:
            return
        deleted = await self._database.run(scripts.clean(self._namespace, self.options.retention))
        self.counters.cleaned += deleted
        if deleted < scripts.MOST_CLEANED:
            self._next_clean = time.monotonic() + self.options.clean_every


class _Batch:
    """The rows of one claim. None of them is in the way of another."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        claimed: Claimed,
        concurrency: int,
        deadline: float,
        on_not_served: Callable[[str], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._on_not_served = on_not_served
        self._rows = claimed.rows
        self._gate = asyncio.Semaphore(concurrency)
        self._deadline = deadline
        self._marks = Marks()
        self._unavailable: list[tuple[TakenRow, str]] = []
        self._answered = False
        """Did the engine answer anything, be it with an error?"""

    async def carry_out(self) -> Marks:
        """What became of each. What is about an execution comes after the starts, one of which it may be about."""
        for starts in (True, False):
            rows = [row for row in self._rows if (row.event.event_type in STARTS) is starts]
            if starts:
                rows = await self._start_together(rows)
            await asyncio.gather(*(self._one(row) for row in rows))
        for row, error in self._unavailable:
            # It may be this row alone that gets no answer, so others come before it when the engine is tried again.
            self._marks.put_off.append((row.event.id, NO_ANSWER_FOR, None))
            if not self._answered:
                self._marks.unavailable = error
        return self._marks

    async def _start_together(self, rows: list[TakenRow]) -> list[TakenRow]:
        """Start many in few commits; the rows that are left to be carried out one by one."""
        together = [row for row in rows if self._dispatcher.is_bulk(row)]
        if len(together) < 2:
            return rows
        began = time.monotonic()
        try:
            outcomes = await self._dispatcher.start_many(together)
        except EngineUnavailable as error:
            if time.monotonic() - began < QUICK_ANSWER:
                return rows  # it may be about one of them
            self._unavailable += [(row, _error_text(error)) for row in together]
        except Exception as error:
            log.debug("rows are started one by one: %s", _error_text(error))
            return rows
        else:
            self._answered = True
            for row, outcome in zip(together, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    self._fail(row, outcome)
                else:
                    self._marks.processed.append((row.event.id, outcome))
        done = {row.event.id for row in together}
        return [row for row in rows if row.event.id not in done]

    async def _one(self, row: TakenRow) -> None:
        async with self._gate:
            silent = len(self._unavailable) >= SILENT_AFTER and not self._answered
            if time.monotonic() > self._deadline or silent:
                self._marks.put_off.append((row.event.id, 0.0, None))
                return
            try:
                execution = await self._dispatcher.carry_out(row)
            except NotServed as error:
                self._on_not_served(str(error))
                self._marks.put_off.append((row.event.id, NOT_SERVED_FOR, f"a relay was there that lacks {error}"))
            except EngineUnavailable as error:
                self._unavailable.append((row, _error_text(error)))
            except Exception as error:
                self._answered = True
                self._fail(row, error)
            else:
                self._answered = True
                self._marks.processed.append((row.event.id, execution))

    def _fail(self, row: TakenRow, error: Exception) -> None:
        event = row.event
        if isinstance(error, PERMANENT) or event.retry_count + 1 >= event.max_retries:
            log.error(
                "row %d of the outbox (%s) has failed for good: %s", event.id, event.event_type, _error_text(error)
            )
            self._marks.failed.append((event.id, _error_text(error)))
        else:
            log.warning("row %d of the outbox (%s) is tried again: %s", event.id, event.event_type, _error_text(error))
            self._marks.errors.append((event.id, scripts.row_pause(event.retry_count), _error_text(error)))


def _error_text(error: BaseException) -> str:
    """An error as a column holds it."""
    try:
        text = str(error) if isinstance(error, EngineError) else phrase_with_type(error)
    except Exception:  # people's own errors may raise anything at all
        text = type(error).__name__
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:ERROR_LENGTH]
