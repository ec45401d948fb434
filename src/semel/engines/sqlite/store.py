"""The SQLite store: scripts go to the writer thread, reads of a file to a second one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, cast

from semel.engine.bounded import note_answer
from semel.engine.caller_connection import CallerConnection
from semel.engines.journal.script import (
    ConnectionRole,
    Listener,
    Procedure,
    SqlBatch,
    SqlQuery,
    Topic,
    load_migrations,
)
from semel.engines.sqlite import library_guard
from semel.engines.sqlite.commit_watch import CommitWatch
from semel.engines.sqlite.driver import choose_driver
from semel.engines.sqlite.file_watch import Bell, Watch
from semel.engines.sqlite.writer_thread import LOCK_PATIENCE, WriterThread, render
from semel.errors import EngineUnavailable, InvalidValue
from semel.transactional.statements import StatementHook

T = TypeVar("T")
P = ParamSpec("P")

FIXED_IN = (3, 51, 3)
"""Older SQLite can lose commits at checkpoints without the write lock; see checkpoint.py."""
_OLD_LIBRARY = (
    " (SQLite before 3.51.3 can lose commits at its automatic ones: on connections of your own to this file, set "
    "`pragma wal_autocheckpoint = 0`)"
)


class SqliteStore:
    """One SQLite database. `:memory:` lives as long as the store and can be shared between loops."""

    dialect = "sqlite"
    one_writer = True
    reconnections = 0

    def __init__(self, path: str, clock: Callable[[], float] = time.time, driver: str = "auto") -> None:
        self.path = path
        self.driver = choose_driver(driver)
        self.migrations = load_migrations("semel.engines.sqlite")
        self.tap: StatementHook | None = None
        self._clock = clock
        self._writer: WriterThread | None = None
        self._reader: WriterThread | None = None
        self._listeners: list[tuple[asyncio.AbstractEventLoop, Listener]] = []
        self._watches: list[Watch] = []
        self._bell = Bell(path)
        self._commits = CommitWatch(self._look_for_others)
        self._closed = False
        self._held: library_guard.Identity | None = None

    @property
    def in_memory(self) -> bool:
        """Does it live in this process only?"""
        return self.path == ":memory:"

    async def run(self, script: Procedure[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a script; see Store."""
        done = await self._for(script.line).submit(script, args, kwargs)
        note_answer()
        return cast(T, done)

    def _for(self, line: ConnectionRole) -> WriterThread:
        if self._closed:
            raise EngineUnavailable(f"the SQLite store {self.path!r} is closed.")
        if self._writer is None:
            library_guard.refuse_foreign(self.path, self.driver.name)
            self._writer = WriterThread(self.path, self.driver, self._clock, lambda: self.tap)
            self._held = library_guard.hold(self.path, self.driver.name)
            self._writer.on_commit = self._committed
            self._writer.on_change = self._tell_all
        if line is not ConnectionRole.READ or self.in_memory:
            return self._writer
        if self._reader is None:
            self._reader = WriterThread(self.path, self.driver, self._clock, lambda: None, reads=True)
        return self._reader

    def render(self, statement: SqlQuery | SqlBatch) -> list[tuple[str, tuple[Any, ...]]]:
        """A statement as SQL; see Store."""
        return render(statement)

    async def is_ours(self, connection: CallerConnection) -> bool:
        """Is it to this file? See Store. InvalidValue: it is, and this store uses another SQLite library."""
        if connection.dialect != self.dialect:
            return False
        ((sql, _),) = render(SqlQuery("identity"))
        theirs = library_guard.identify((await connection.play(lambda: connection.fetch(sql, ())))[0][2])
        if theirs is None or theirs != library_guard.identify(self.path):
            return False
        if self.driver.name != "sqlite3":
            raise InvalidValue(
                f"connection= is a {connection.kind}, and this app's engine uses the library {self.driver.name}: two "
                "SQLite libraries on one file in one process destroy it. Set sqlite_driver = 'sqlite3'."
            )
        return True

    def expect_commit(self, connection: CallerConnection) -> None:
        """See Store. Nothing tells of a commit on a connection that is not ours, so it is looked at."""
        self._commits.expect(connection)

    def _look_for_others(self) -> None:
        """A file that is not open yet is not opened for it: that may have to wait for the very transaction."""
        if self._closed:
            return
        if self._writer is None:
            self._bell.ring()
        else:
            self._writer.look(self._bell.ring)

    def now(self) -> int:
        """See Store."""
        return int(self._clock() * 1_000_000)

    async def listen(self, listener: Listener, topic: Topic) -> None:
        """Tell the listener of commits by other processes, and by other loops of this one, whatever they are about."""
        if any(known is listener for _, known in self._listeners):
            return
        self._listeners.append((asyncio.get_running_loop(), listener))
        if not self.in_memory:
            self._watches.append(Watch(self.path, self._for(ConnectionRole.CONTROL).look))

    async def relisten(self) -> None:
        """Nothing can be missed for long: the slow poll stands behind inotify."""

    def is_ready(self, lines: Iterable[ConnectionRole]) -> bool:
        """A file is always there."""
        return True

    async def make_ready(self, lines: Iterable[ConnectionRole]) -> None:
        """There is nothing to open."""

    async def verify(self, patience: float) -> None:
        """There is no connection that could be lost."""

    def _committed(self, by: set[asyncio.AbstractEventLoop]) -> None:
        if self.in_memory:
            self._tell_others(by)
        else:
            self._bell.ring()

    def _tell_all(self) -> None:
        self._tell_others(set())

    def _tell_others(self, but: set[asyncio.AbstractEventLoop]) -> None:
        for loop, listener in self._listeners:
            if loop not in but:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(listener.poll_everything)

    async def check(self) -> list[tuple[bool, str, str]]:
        """The library, what is refused beside it, and the file's health."""
        version = ".".join(map(str, self.driver.version))
        via = "Python's own sqlite3" if self.driver.name == "sqlite3" else "apsw"
        findings = [(True, "SQLite library", f"{version} through {via}")]
        if self.in_memory:
            return findings
        self._for(ConnectionRole.CONTROL)
        fixed = self.driver.version >= FIXED_IN
        findings.append((True, "SQLite checkpoints", "under the write lock" + ("" if fixed else _OLD_LIBRARY)))
        seen = library_guard.find_open_elsewhere(self.path, self.driver.name)
        findings.append((not seen, "second SQLite library", seen or library_guard.describe(self.driver.name)))
        verdict = await asyncio.to_thread(self._quick_check)
        findings.append((verdict == "ok", "file integrity", f"{self.path}: {verdict}"))
        return findings

    def _quick_check(self) -> str:
        try:
            with contextlib.closing(self.driver.connect(self.path, patience=LOCK_PATIENCE, read_only=True)) as db:
                return str(db.execute("pragma quick_check")[0][0])
        except self.driver.error as error:
            return str(error)

    async def close(self) -> None:
        """Finish what is queued and close the file."""
        self._commits.close()
        self._closed = True
        for watch in self._watches:
            watch.close()
        self._listeners.clear()
        threads, self._reader, self._writer = (self._reader, self._writer), None, None
        for thread in threads:
            if thread is not None:
                await thread.close()
        library_guard.release(self._held)
        self._held = None
        self._bell.close()
