"""The SQLite store: scripts go to the writer thread, reads of a file to a second one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar, cast

from semel.engines.journal.script import ConnectionRole, Listener, Procedure, StatementHook, load_migrations
from semel.engines.sqlite import library_guard
from semel.engines.sqlite.driver import choose_driver
from semel.engines.sqlite.file_watch import Bell, Watch
from semel.engines.sqlite.writer_thread import LOCK_PATIENCE, WriterThread
from semel.errors import EngineUnavailable

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
        self._closed = False
        self._held: library_guard.Identity | None = None

    @property
    def in_memory(self) -> bool:
        """Does it live in this process only?"""
        return self.path == ":memory:"

    async def run(self, script: Procedure[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a script; see Store."""
        if self._closed:
            raise EngineUnavailable(f"the SQLite store {self.path!r} is closed.")
        scribe = self._for(script.line)
        return cast(T, await scribe.submit(script, args, kwargs))

    def _for(self, line: ConnectionRole) -> WriterThread:
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

    async def listen(self, listener: Listener) -> None:
        """Tell the listener of commits by other processes, and by other loops of this one."""
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
                    loop.call_soon_threadsafe(listener.stirred)

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
        self._closed = True
        for watch in self._watches:
            watch.close()
        self._listeners.clear()
        for scribe in (self._reader, self._writer):
            if scribe is not None:
                await scribe.close()
        library_guard.release(self._held)
        self._held = None
        self._bell.close()
