"""Outboxes whose drivers wait without await: all that is done with such a connection is done in one thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeVar, cast

from semel.engine.bounded import time_limit
from semel.errors import EngineUnavailable
from semel.transactional.statements import Row, Script, StatementHook, Statements, folder_of, split_statements

T = TypeVar("T")
DRIVER_SHARE: Final = 0.9
"""Of the time limit of a call: the driver gives up a little earlier, and says better what is wrong."""
CLOSE_WITHIN: Final = 2.0


class _Session:
    """A thread with its connection. One that hangs is given up: it ends by itself, and commits nothing any more."""

    def __init__(self, name: str) -> None:
        self.connection: Any = None
        self.given_up = False
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._under_way: set[object] = set()
        # A daemon: Python waits for other threads when a program ends, and this one may hang in its driver.
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
        self.drop()

    @property
    def busy(self) -> bool:
        """Is something under way, or waiting for it?"""
        return bool(self._under_way)

    async def do(self, work: Callable[[], T]) -> T:
        """Run a function in the thread."""
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            wanted = done.set_running_or_notify_cancel()
            try:
                value = work() if wanted else None
            except BaseException as error:
                self._under_way.discard(done)
                done.set_exception(error)
            else:
                self._under_way.discard(done)
                if wanted:
                    done.set_result(cast(T, value))

        self._under_way.add(done)
        self._queue.put(run)
        return await asyncio.wrap_future(done)

    def give_up(self) -> None:
        """Wait for it no longer."""
        self.given_up = True
        self.end()

    def end(self) -> None:
        """Close the connection after what is under way, and end the thread."""
        self._queue.put(None)

    def check(self) -> None:
        """EngineUnavailable: nobody waits for it any more."""
        if self.given_up:
            raise EngineUnavailable("nobody waits for this transaction any more.")

    def drop(self) -> None:
        """Close the connection; what it has not committed is gone."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with contextlib.suppress(Exception):  # it is of no use any more in any case
                connection.close()


class ThreadedOutbox(ABC):
    """See OutboxDatabase."""

    dialect: ClassVar[str]

    def __init__(self, name: str, timeout: float) -> None:
        self.name = name
        self.timeout = timeout
        self.tap: StatementHook | None = None
        self._statements = Statements(folder_of(self.dialect), arrays=False)
        self._session: _Session | None = None

    @abstractmethod
    def connect(self) -> Any:
        """A new connection, without a transaction."""

    @abstractmethod
    def fetch(self, connection: Any, sql: str, args: Row) -> list[Row]:
        """Run one statement; of a change, as many rows as were changed."""

    @abstractmethod
    def explain(self, error: Exception) -> Exception:
        """The error of Semel's for one of the driver's; the same one if it is none of these."""

    def begin(self, write: bool) -> str:
        """The statement that begins a transaction."""
        return "begin"

    async def _do(self, work: Callable[[_Session], T]) -> T:
        """Run a function in the thread, within the time limit of a call. A thread that hangs is replaced."""
        session = self._session
        if session is None:
            session = self._session = _Session(f"semel-outbox-{self.dialect}")
        try:
            async with time_limit(self.timeout, self.name):
                return await session.do(lambda: self._explained(session, work))
        except BaseException:
            if session.busy and self._session is session:
                self.terminate()
            raise

    def _explained(self, session: _Session, work: Callable[[_Session], T]) -> T:
        try:
            session.check()
            if session.connection is None:
                session.connection = self.connect()
            return work(session)
        except Exception as error:
            session.drop()
            told = self.explain(error)
            if told is error:
                raise
            raise told from error

    async def run(self, script: Script[T], *, write: bool = True) -> T:
        """See OutboxDatabase."""
        return await self._do(lambda session: self._play(session, script, write))

    def _play(self, session: _Session, script: Script[T], write: bool) -> T:
        self._step(session, self.begin(write))
        try:
            statement = next(script)
            while True:
                session.check()
                if self.tap is not None:
                    self.tap.before(statement.name)
                rendered = self._statements.render(statement)
                rows = [row for sql, args in rendered for row in self.fetch(session.connection, sql, args)]
                if self.tap is not None:
                    self.tap.after(statement.name)
                statement = script.send(rows)
        except StopIteration as stop:
            self._step(session, "commit")
            value: T = stop.value
            return value

    def _step(self, session: _Session, sql: str) -> None:
        session.check()
        if self.tap is not None:
            self.tap.before(sql.partition(" ")[0])
        self.fetch(session.connection, sql, ())
        if self.tap is not None:
            self.tap.after(sql.partition(" ")[0])

    async def wait(self, seconds: float) -> None:
        """See OutboxDatabase. Nobody tells of commits here."""
        await asyncio.sleep(seconds)

    async def execute(self, text: str) -> None:
        """See OutboxDatabase."""

        def run_all(session: _Session) -> None:
            for statement in split_statements(text):
                session.check()
                self.fetch(session.connection, statement, ())

        await self._do(run_all)

    async def close(self) -> None:
        """See OutboxDatabase."""
        session, self._session = self._session, None
        if session is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                await session.do(session.drop)
        session.give_up()

    def terminate(self) -> None:
        """See OutboxDatabase."""
        session, self._session = self._session, None
        if session is not None:
            session.give_up()
