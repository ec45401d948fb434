"""Outboxes whose drivers wait without await: all that is done with such a connection is done in one thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from semel.transactional.statements import Row, Script, StatementHook, Statements, folder_of, split_statements

T = TypeVar("T")


class ThreadedOutbox(ABC):
    """See OutboxDatabase."""

    dialect: ClassVar[str]

    def __init__(self, name: str) -> None:
        self.name = name
        self.tap: StatementHook | None = None
        self._statements = Statements(folder_of(self.dialect), arrays=False)
        self._thread = concurrent.futures.ThreadPoolExecutor(1, f"semel-outbox-{self.dialect}")
        self._connection: Any = None

    @abstractmethod
    def connect(self) -> Any:
        """A new connection, without a transaction."""

    @abstractmethod
    def fetch(self, sql: str, args: Row) -> list[Row]:
        """Run one statement on the connection; of a change, as many rows as were changed."""

    @abstractmethod
    def explain(self, error: Exception) -> Exception:
        """The error of Semel's for one of the driver's; the same one if it is none of these."""

    def begin(self, write: bool) -> str:
        """The statement that begins a transaction."""
        return "begin"

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def run(self, script: Script[T], *, write: bool = True) -> T:
        """See OutboxDatabase."""
        return await self._do(lambda: self._run(script, write))

    def _run(self, script: Script[T], write: bool) -> T:
        try:
            if self._connection is None:
                self._connection = self.connect()
            return self._play(script, write)
        except Exception as error:
            self._drop()
            told = self.explain(error)
            if told is error:
                raise
            raise told from error

    def _play(self, script: Script[T], write: bool) -> T:
        self._step(self.begin(write))
        try:
            statement = next(script)
            while True:
                if self.tap is not None:
                    self.tap.before(statement.name)
                rows = [row for sql, args in self._statements.render(statement) for row in self.fetch(sql, args)]
                if self.tap is not None:
                    self.tap.after(statement.name)
                statement = script.send(rows)
        except StopIteration as stop:
            self._step("commit")
            value: T = stop.value
            return value

    def _step(self, sql: str) -> None:
        if self.tap is not None:
            self.tap.before(sql.partition(" ")[0])
        self.fetch(sql, ())
        if self.tap is not None:
            self.tap.after(sql.partition(" ")[0])

    def _drop(self) -> None:
        """Close the connection; what it has not committed is gone. The next use opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception as error:
                del error  # it is of no use any more in any case

    async def wait(self, seconds: float) -> None:
        """See OutboxDatabase. Nobody tells of commits here."""
        await asyncio.sleep(seconds)

    async def execute(self, text: str) -> None:
        """See OutboxDatabase."""
        await self._do(lambda: self._execute(text))

    def _execute(self, text: str) -> None:
        try:
            if self._connection is None:
                self._connection = self.connect()
            for statement in split_statements(text):
                self.fetch(statement, ())
        except Exception as error:
            self._drop()
            told = self.explain(error)
            if told is error:
                raise
            raise told from error

    async def close(self) -> None:
        """See OutboxDatabase."""
        await self._do(self._drop)
        self._thread.shutdown(wait=False)
