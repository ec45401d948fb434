"""The one thread that touches a SQLite connection. What has gathered is committed together."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import apsw
import msgspec

from semel.engines.journal.script import Ask, Each, Line, Procedure, Raw, Row, Script, Tap, Work, load_queries
from semel.engines.journal.working import Worked
from semel.engines.sqlite.room import make_room
from semel.engines.sqlite.work import Undone, work_in
from semel.errors import EngineError, EngineUnavailable, MigrationNeeded

MOST_JOBS: Final = 500
MANY: Final = 64
"""Commits after which more are to be expected."""
LOCK_PATIENCE: Final = 30.0
PRAGMAS: Final = (
    "journal_mode = wal",
    "synchronous = full",
    "wal_autocheckpoint = 4000",
    "journal_size_limit = 67108864",
    "temp_store = memory",
    "cache_size = -32768",
)
_PARTS: Final[dict[str, list[tuple[str, int]]]] = {}


def statements() -> dict[str, list[tuple[str, int]]]:
    """Every named query as its single statements, each with how many of the arguments it takes."""
    if not _PARTS:
        for name, text in load_queries("semel.engines.sqlite").items():
            parts = [part.strip() for part in re.split(r";\s*(?:\n|$)", text) if part.strip()]
            _PARTS[name] = [(p, max(map(int, re.findall(r"\?(\d+)", p)), default=0)) for p in parts]
    return _PARTS


@dataclass(slots=True)
class Job:
    """A script, and where its result is awaited."""

    make: Callable[[], Script[Any]]
    line: Line
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


class Scribe(threading.Thread):
    """Runs scripts one transaction after the other; jobs that wait at the same time share one."""

    def __init__(
        self, path: str, clock: Callable[[], float], tap: Callable[[], Tap | None], *, reads: bool = False
    ) -> None:
        super().__init__(name=f"semel-sqlite {path}", daemon=True)
        self._begin = "begin" if reads else "begin immediate"
        self._path = path
        self._clock = clock
        self._tap = tap
        self._jobs: queue.SimpleQueue[Job | Callable[[], None] | None] = queue.SimpleQueue()
        self._statements = statements()
        self._now = 0
        self._unknown = False
        self._version = 0
        self._waited_since = 0.0
        self._level = "full"
        self._commits = 0
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

    def look(self) -> None:
        """Look whether another process or connection has written."""
        self._jobs.put(self._look)

    def close(self) -> asyncio.Future[None]:
        """Finish what is queued and close the file; the future resolves when that is done."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._closing = lambda: loop.call_soon_threadsafe(future.set_result, None)
        self._jobs.put(None)
        return future

    def _open(self) -> None:
        try:
            self._db = apsw.Connection(self._path, statementcachesize=256)
        except apsw.Error as error:
            raise EngineUnavailable(
                f"cannot open the SQLite file {self._path!r}: {error}. Is its folder there, and writable?"
            ) from error
        db = self._db
        db.set_busy_handler(self._wait_for_lock)
        db.create_scalar_function("semel_now", self._tell_now, 0, deterministic=True)
        try:
            for pragma in PRAGMAS:
                db.execute(f"pragma {pragma}").fetchall()
            self._version = self._data_version()
        except apsw.Error as error:
            raise EngineUnavailable(f"{self._path!r} is not a SQLite database Semel can use: {error}.") from error

    def run(self) -> None:
        """Until told to stop."""
        while True:
            first = self._jobs.get()
            jobs: list[Job] = []
            entry: Job | Callable[[], None] | None = first
            while isinstance(entry, Job):
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
                with contextlib.suppress(apsw.Error):
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
        self._commits += 1
        if self._commits == MANY:
            make_room(self._db, self._path, self._statements["fill"][0][0])

    def _transact(self, jobs: list[Job]) -> BaseException | None:
        tap = self._tap()
        self._now = int(self._clock() * 1_000_000)
        self._unknown = False
        # A claim need not outlive a power cut: if it is lost, the task is free again. All else is on disk
        # before it is acknowledged.
        self._synchronous("normal" if all(job.line is Line.CLAIM for job in jobs) else "full")
        try:
            self._step(self._begin, tap)
            for job in jobs:
                job.error, job.result = None, self._play(job, tap)
            self._unknown = True
            self._step("commit", tap)
        except BaseException as error:
            failure = _translate(error, self._path)
            if self._db.in_transaction:
                with contextlib.suppress(apsw.Error):
                    self._db.execute("rollback")
            for job in jobs:
                job.error = failure
            return failure
        return None

    def _synchronous(self, level: str) -> None:
        if level != self._level:
            self._db.execute(f"pragma synchronous = {level}")
            self._level = level

    def _step(self, sql: str, tap: Tap | None) -> None:
        if tap is not None:
            tap.before(sql)
        self._db.execute(sql)
        if tap is not None:
            tap.after(sql)

    def _play(self, job: Job, tap: Tap | None) -> Any:
        script = job.make()
        try:
            statement = next(script)
            while True:
                if tap is not None:
                    tap.before(statement.name)
                rows = [self._work(job, statement, tap)] if isinstance(statement, Work) else self._execute(statement)
                if tap is not None:
                    tap.after(statement.name)
                statement = script.send(rows)
        except StopIteration as stop:
            return stop.value

    def _work(self, job: Job, statement: Work, tap: Tap | None) -> Worked:
        if job.failure is not None:
            return None, job.failure
        try:
            return work_in(self._db, statement.do, tap)
        except Undone as undone:
            job.failure = undone.error
            raise

    def _execute(self, statement: Ask | Each | Raw) -> list[Any]:
        bound: tuple[Any, ...]
        if isinstance(statement, Raw):
            return self._db.execute(statement.text).fetchall()
        if isinstance(statement, Each):
            # All rows in one statement: SQLite then works through them without asking for the
            # interpreter's lock in between, while the event loop goes on.
            bound = (*statement.shared, _json([_hexed(row) for row in statement.rows]))
        else:
            bound = tuple(_json(a) if isinstance(a, list) else a for a in statement.args)
        rows: list[Any] = []
        for sql, count in self._statements[statement.name]:
            rows += self._db.execute(sql, bound[:count]).fetchall()
        return rows

    def _wait_for_lock(self, tries: int) -> bool:
        """Another process writes: short, uneven naps, so that nobody starves."""
        if tries == 0:
            self._waited_since = time.monotonic()
        time.sleep(random.uniform(0.0002, 0.002) if tries < 50 else random.uniform(0.001, 0.01))
        return time.monotonic() - self._waited_since < LOCK_PATIENCE

    def _data_version(self) -> int:
        return int(self._db.pragma("data_version"))

    def _look(self) -> None:
        with contextlib.suppress(apsw.Error):
            version = self._data_version()
            if version != self._version:
                self._version = version
                self.on_change()


def _json(value: list[Any]) -> str:
    return msgspec.json.encode(value).decode()


def _hexed(row: Row) -> list[Any]:
    return [x.hex() if type(x) is bytes else x for x in row]


def _deliver(jobs: list[Job]) -> None:
    for job in jobs:
        job.deliver()


def _translate(error: BaseException, path: str) -> BaseException:
    """SQLite's errors in Semel's words."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return EngineUnavailable(
                f"the SQLite file {path!r} stayed locked for {LOCK_PATIENCE:.0f} s: another process holds a "
                "write transaction open."
            )
        case apsw.FullError():
            return EngineUnavailable(f"the disk that holds {path!r} is full: nothing was written.")
        case apsw.SQLError() if "no such table" in str(error):
            return MigrationNeeded(f"{path!r} has no Semel tables (or old ones): {error}. Run: semel migrate")
        case apsw.CorruptError() | apsw.NotADBError():
            return EngineError(f"{path!r} is damaged or is no SQLite database: {error}.")
        case apsw.Error():
            return EngineUnavailable(f"SQLite could not do it ({type(error).__name__}: {error}).")
        case _:
            return error
