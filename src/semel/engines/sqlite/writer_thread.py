"""The one thread that touches a SQLite connection. What has gathered is committed together."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from semel.engines.journal.script import (
    Begin,
    ConnectionRole,
    Procedure,
    Raw,
    Script,
    SqlBatch,
    SqlQuery,
    Work,
    load_queries,
)
from semel.engines.journal.user_transactions import Worked
from semel.engines.sqlite.checkpoint import Checkpoints
from semel.engines.sqlite.driver import BUSY, CORRUPT, FULL, LOCKED, NOTADB, Connection, Driver
from semel.engines.sqlite.parameters import encode_list, expand, pack
from semel.engines.sqlite.user_transactions import Undone, work_in
from semel.errors import EngineError, EngineUnavailable, MigrationNeeded, phrase, phrase_with_type
from semel.transactional.statements import StatementHook

MOST_JOBS: Final = 500
LOCK_PATIENCE: Final = 30.0
"""Seconds for which the lock of another writer is waited for."""
CHECKPOINT_PATIENCE: Final = 1.0
"""Seconds for which a checkpoint waits for the lock of another writer: it can also be made after the next commit."""
PRAGMAS: Final = (
    "journal_mode = wal",
    "synchronous = full",
    "wal_autocheckpoint = 0",  # see checkpoint.py
    "journal_size_limit = 67108864",
    "temp_store = memory",
    "secure_delete = off",  # as SQLite has it by default; Debian's overwrites what is deleted, at a cost
    "cache_size = -32768",
)
_PARTS: Final[dict[str, list[tuple[str, int]]]] = {}


def statements() -> dict[str, list[tuple[str, int]]]:
    """Every named query as its single statements, each with how many of the arguments it takes."""
    if not _PARTS:
        for name, text in load_queries("semel.engines.sqlite").items():
            _PARTS[name] = expand(text)
    return _PARTS


def render(statement: SqlQuery | SqlBatch) -> list[tuple[str, tuple[Any, ...]]]:
    """A statement as SQL of SQLite, each with its arguments. The rows of a batch are JSON and a blob."""
    bound = statement.shared if isinstance(statement, SqlBatch) else statement.args
    if list in map(type, bound):
        bound = tuple(encode_list(a) if isinstance(a, list) else a for a in bound)
    if isinstance(statement, SqlBatch):
        bound = (*bound, *pack(statement.rows))
    return [(sql, bound[:count]) for sql, count in statements()[statement.name]]


@dataclass(slots=True)
class Job:
    """A script, and where its result is awaited."""

    make: Callable[[], Script[Any]]
    line: ConnectionRole
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    quiet: bool = False
    result: Any = None
    error: BaseException | None = None
    failure: BaseException | None = None
    """How a function of the user's failed that has undone all of a transaction. It is not run again to say so."""

    def deliver(self) -> None:
        """In the loop of the caller."""
        if not self.future.done():
            if self.error is not None:
                self.future.set_exception(self.error)
            else:
                self.future.set_result(self.result)


class WriterThread(threading.Thread):
    """Runs scripts one transaction after the other; jobs that wait at the same time share one."""

    def __init__(
        self,
        path: str,
        driver: Driver,
        clock: Callable[[], float],
        tap: Callable[[], StatementHook | None],
        *,
        reads: bool = False,
    ) -> None:
        super().__init__(name=f"semel-sqlite {path}", daemon=True)
        self._begin = "begin" if reads else "begin immediate"
        self._path = path
        self._driver = driver
        self._clock = clock
        self._tap = tap
        self._jobs: queue.SimpleQueue[Job | Callable[[], None] | None] = queue.SimpleQueue()
        self._now = 0
        self._unknown = False
        self._version = 0
        self._level = "full"
        self._closing: Callable[[], object] = self._nothing
        self.on_commit: Callable[[set[asyncio.AbstractEventLoop]], None] = lambda loops: None
        self.on_change: Callable[[], None] = lambda: None
        self._open()
        self.start()

    def submit(self, make: Procedure[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> asyncio.Future[Any]:
        """Hand in a script; the future resolves after its commit."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._jobs.put(Job(lambda: make(*args, **kwargs), make.line, loop, future, make.quiet))
        return future

    def look(self, tell: Callable[[], None] | None = None) -> None:
        """Look whether another process or connection has written; if so, `tell` others as well."""
        self._jobs.put(self._look if tell is None else lambda: self._look(tell))

    def close(self) -> asyncio.Future[None]:
        """Finish what is queued and close the file; the future resolves when that is done."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._closing = lambda: loop.call_soon_threadsafe(future.set_result, None)
        self._jobs.put(None)
        return future

    def _open(self) -> None:
        try:
            self._db = self._connect()
        except self._driver.error as error:
            raise EngineUnavailable(
                f"cannot open the SQLite file {self._path!r}: {phrase(error)}. Is its folder there, and writable?"
            ) from error
        self._db.create_function("semel_now", self._tell_now)
        try:
            for pragma in PRAGMAS:
                self._patiently(f"pragma {pragma}", LOCK_PATIENCE)
            self._version = self._data_version()
            if self._begin != "begin" and self._db.execute("pragma journal_mode")[0][0] == "wal":
                # From here on only `begin immediate` can find the file locked, and waits in its own way.
                self._db.execute("pragma busy_timeout = 0")
        except self._driver.error as error:
            raise EngineUnavailable(
                f"{self._path!r} is not a SQLite database Semel can use: {phrase(error)}."
            ) from error
        self._checkpoints = None if self._path == ":memory:" else Checkpoints(self._path, self._connect_helper)

    def _connect(self) -> Connection:
        return self._driver.connect(self._path, patience=LOCK_PATIENCE)

    def _connect_helper(self) -> Connection:
        """A second connection of the writer thread, for checkpoints."""
        helper = self._connect()
        for pragma in ("synchronous = full", "wal_autocheckpoint = 0", "user_version"):  # the last one reads the file
            helper.execute(f"pragma {pragma}")
        return helper

    def run(self) -> None:
        """Until told to stop."""
        while True:
            first = self._jobs.get()
            jobs: list[Job] = []
            entry: Job | Callable[[], None] | None = first
            while isinstance(entry, Job):
                if not entry.future.cancelled():  # its caller has given up before it began
                    jobs.append(entry)
                if len(jobs) == MOST_JOBS:
                    entry = self._nothing
                    break
                try:
                    entry = self._jobs.get_nowait()
                except queue.Empty:
                    entry = self._nothing
            if jobs:
                self._commit(jobs)
            if entry is None:
                with contextlib.suppress(self._driver.error):
                    if self._checkpoints is not None:
                        self._checkpoints.close()
                    self._db.close()
                with contextlib.suppress(RuntimeError):  # nobody waits any more
                    self._closing()
                return
            if not isinstance(entry, Job):
                entry()

    def _nothing(self) -> None:
        return

    def _tell_now(self, *_: object) -> int:
        return self._now

    def _commit(self, jobs: list[Job]) -> None:
        """All in one transaction; if one of them fails, each in its own, so that it fails alone.

        Not if the commit itself failed: then nobody knows whether they are in, and each must hear that.
        """
        before = self._db.total_changes()
        error = self._transact(jobs)
        if error is not None and not self._unknown and (len(jobs) > 1 or isinstance(error, Undone)):
            for job in jobs:
                if isinstance(self._transact([job]), Undone):
                    self._transact([job])  # which now says how it failed
        loops = {job.loop for job in jobs}
        for loop in loops:
            with contextlib.suppress(RuntimeError):  # the loop of the caller is gone, and so is the caller
                loop.call_soon_threadsafe(_deliver, [job for job in jobs if job.loop is loop])
        if self._db.total_changes() == before:  # else two loops would wake each other for ever with nothing to say
            return
        if not all(job.quiet for job in jobs):
            self.on_commit(loops)
        if self._checkpoints is not None and self._checkpoints.are_due():
            self._checkpoint(self._checkpoints)

    def _checkpoint(self, checkpoints: Checkpoints) -> None:
        """Copy the log into the file. If that fails, the log grows until it can be done."""
        with contextlib.suppress(self._driver.error):
            self._patiently("begin immediate", CHECKPOINT_PATIENCE)
            try:
                checkpoints.make()
            finally:
                self._db.execute("rollback")

    def _transact(self, jobs: list[Job]) -> BaseException | None:
        self._unknown = False
        try:
            tap = self._tap()
            self._now = self._read_clock()
            # A claim need not outlive a power cut: if it is lost, the task is free again. All else is on disk
            # before it is acknowledged.
            self._synchronous("normal" if all(job.line is ConnectionRole.CLAIM for job in jobs) else "full")
            self._step(self._begin, tap, LOCK_PATIENCE, lambda: any(not job.future.done() for job in jobs))
            for job in jobs:
                job.error, job.result = None, self._play(job, tap)
            self._unknown = True
            self._step("commit", tap)
        except BaseException as error:
            failure = self._translate(error)
            if self._db.in_transaction:
                with contextlib.suppress(self._driver.error):
                    self._db.execute("rollback")
            for job in jobs:
                job.error = failure
            return failure
        return None

    def _read_clock(self) -> int:
        """Microseconds since 1970. EngineError: the `clock=` of the app raised, or gave no such number."""
        try:
            seconds = self._clock()
            return int(seconds * 1_000_000)
        except Exception as error:
            raise EngineError(
                f"the clock= of this App failed ({phrase_with_type(error)}): nothing was written. It must return "
                "seconds since 1970, as time.time does."
            ) from error

    def _synchronous(self, level: str) -> None:
        if level != self._level:
            self._db.execute(f"pragma synchronous = {level}")
            self._level = level

    def _step(
        self, sql: str, tap: StatementHook | None, patience: float = 0.0, wanted: Callable[[], bool] = lambda: True
    ) -> None:
        if tap is not None:
            tap.before(sql)
        self._patiently(sql, patience, wanted)
        if tap is not None:
            tap.after(sql)

    def _patiently(self, sql: str, patience: float, wanted: Callable[[], bool] = lambda: True) -> None:
        """Run a statement. While another process writes, take short, uneven naps, so that nobody starves.

        Not for longer than somebody waits for it: callers give up sooner, and so does `close`.
        """
        end = 0.0
        for tries in itertools.count():
            try:
                self._db.execute(sql)
            except self._driver.error as error:
                now = time.monotonic()
                end = end or now + patience
                if self._driver.code_of(error) != BUSY or now >= end or not wanted():
                    raise
            else:
                return
            time.sleep(random.uniform(0.0002, 0.002) if tries < 50 else random.uniform(0.001, 0.01))

    def _play(self, job: Job, tap: StatementHook | None) -> Any:
        script = job.make()
        try:
            statement = next(script)
            while True:
                if isinstance(statement, Begin):  # there is a transaction around every script
                    statement = script.send([])
                    continue
                if tap is not None:
                    tap.before(statement.name)
                rows = [self._work(job, statement, tap)] if isinstance(statement, Work) else self._execute(statement)
                if tap is not None:
                    tap.after(statement.name)
                statement = script.send(rows)
        except StopIteration as stop:
            return stop.value

    def _work(self, job: Job, statement: Work, tap: StatementHook | None) -> Worked:
        if job.failure is not None:
            return None, job.failure
        try:
            return work_in(self._db, self._driver, statement.do, tap)
        except Undone as undone:
            job.failure = undone.error
            raise

    def _execute(self, statement: SqlQuery | SqlBatch | Raw) -> list[Any]:
        if isinstance(statement, Raw):
            return self._db.execute_script(statement.text)
        rows: list[Any] = []
        for sql, args in render(statement):
            rows += self._db.execute(sql, args)
        return rows

    def _data_version(self) -> int:
        return int(self._db.execute("pragma data_version")[0][0])

    def _look(self, tell: Callable[[], None] | None = None) -> None:
        with contextlib.suppress(self._driver.error):
            version = self._data_version()
            if version != self._version:
                self._version = version
                self.on_change()
                if tell is not None:
                    tell()

    def _translate(self, error: BaseException) -> BaseException:
        """SQLite's errors in Semel's words."""
        if not isinstance(error, self._driver.error):
            return error
        path = self._path
        match self._driver.code_of(error):
            case code if code in (BUSY, LOCKED):
                return EngineUnavailable(
                    f"the SQLite file {path!r} stayed locked for {LOCK_PATIENCE:.0f} s: another process, or another "
                    "connection of this one, holds a write transaction open. If it is your own, pass it as connection=."
                )
            case code if code == FULL:
                return EngineUnavailable(f"the disk that holds {path!r} is full: nothing was written.")
            case code if code in (CORRUPT, NOTADB):
                return EngineError(f"{path!r} is damaged or is no SQLite database: {phrase(error)}.")
            case _ if "no such table" in str(error):
                return MigrationNeeded(
                    f"{path!r} has no Semel tables (or old ones): {phrase(error)}. Run: semel migrate"
                )
            case _:
                return EngineUnavailable(f"SQLite could not do it ({phrase_with_type(error)}).")


def _deliver(jobs: list[Job]) -> None:
    for job in jobs:
        job.deliver()
