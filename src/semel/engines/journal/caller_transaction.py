"""Scripts in a transaction of the caller's: the same ones, played on the caller's own connection.

Nothing here commits, rolls back the transaction or opens another connection. What a script wants to be all or nothing
is in a savepoint, which a failure rolls back, so that the caller's transaction stays usable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, ParamSpec, TypeVar, cast

from semel.contract.lifecycle import Status
from semel.contract.records import Execution
from semel.engine.caller_connection import CallerConnection
from semel.engine.protocol import Admission, Message, Outcome
from semel.engine.start_request import StartRequest
from semel.engine.subscriptions import Publication, Receipt
from semel.engines.journal import control, migrations, read
from semel.engines.journal.admissions import Admissions
from semel.engines.journal.events import StoredEvents
from semel.engines.journal.inbox import Mail
from semel.engines.journal.lanes import Lanes
from semel.engines.journal.notifications import Hub
from semel.engines.journal.runs import JournalRuns
from semel.engines.journal.schedules import StoredSchedules
from semel.engines.journal.script import (
    Begin,
    ConnectionRole,
    Procedure,
    Raw,
    Script,
    ScriptRunner,
    SqlBatch,
    SqlQuery,
    Store,
    Work,
    procedure,
)
from semel.settings import Settings

T = TypeVar("T")
P = ParamSpec("P")
SAVEPOINT: Final = "semel"
"""One inside of another may have the same name: the innermost is meant."""


@procedure(ConnectionRole.ADMIT, atomic=True)
def take_write_lock() -> Script[None]:
    """Become the one writer, or wait for the one that there is."""
    yield SqlQuery("take_write_lock")


class CallerTransaction:
    """Runs scripts on a connection of the caller's, inside its transaction."""

    def __init__(self, store: Store, connection: CallerConnection) -> None:
        self._store = store
        self._connection = connection

    async def begin_to_write(self, *, look_first: bool) -> None:
        """Become the one writer before anything is read: a transaction that has read cannot, once somebody else wrote.

        `look_first`: nobody has looked yet whether there are tables. MigrationNeeded if there are none.
        """
        try:
            await self.run(take_write_lock)
        finally:
            if look_first:
                await migrations.refuse_missing(self._store, self)

    async def run(self, script: Procedure[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a script; see ScriptRunner. The errors are the driver's own."""
        played = await self._connection.play(lambda: self._play(script(*args, **kwargs), whole=not script.atomic))
        self._store.expect_commit(self._connection)
        return cast(T, played)

    async def _play(self, script: Script[Any], *, whole: bool) -> Any:
        """A script to its end, in a savepoint from its start (`whole`), or from where it asks for a transaction."""
        self._connection.set_clock(self._store.now())
        if whole:
            await self._step(f"savepoint {SAVEPOINT}")
        try:
            statement = next(script)
            while True:
                rows: list[Any] = []
                match statement:
                    case Begin():
                        if not whole:
                            await self._step(f"savepoint {SAVEPOINT}")
                            whole = True
                    case SqlQuery() | SqlBatch():
                        rows = await self._execute(statement)
                    case Raw(name) | Work(name):
                        raise AssertionError(f"{name} does not belong into a transaction of the caller's")
                statement = script.send(rows)
        except StopIteration as stop:
            if whole:
                await self._step(f"release savepoint {SAVEPOINT}")
            return stop.value
        except Exception:
            if whole:
                await self._undo()
            raise

    async def _undo(self) -> None:
        """Back to before the script. If the connection cannot even do that, the caller hears of the first error."""
        try:
            await self._step(f"rollback to savepoint {SAVEPOINT}")
            await self._step(f"release savepoint {SAVEPOINT}")
        except Exception as error:
            del error  # whatever it is, the driver has said it of the statement before

    async def _step(self, sql: str) -> None:
        tap = self._store.tap
        if tap is not None:
            tap.before(sql)
        await self._connection.fetch(sql, ())
        if tap is not None:
            tap.after(sql)

    async def _execute(self, statement: SqlQuery | SqlBatch) -> list[Any]:
        tap = self._store.tap
        if tap is not None:
            tap.before(statement.name)
        rows: list[Any] = []
        for sql, args in self._store.render(statement):
            rows += await self._connection.fetch(sql, args)
        if tap is not None:
            tap.after(statement.name)
        return rows


class TransactionVerbs:
    """The verbs of a journal engine as part of a transaction of the caller's."""

    def __init__(
        self,
        transaction: CallerTransaction,
        namespace: str,
        lanes: Lanes,
        admissions: Admissions,
        settings: Settings,
        events: Callable[[ScriptRunner, Lanes], StoredEvents],
    ) -> None:
        self._events = events
        self.transaction = self._transaction = transaction
        self.namespace = self._namespace = namespace
        self._lanes = lanes
        self._admissions = admissions
        self._settings = settings

    async def start(self, request: StartRequest) -> Admission:
        """See EngineVerbs."""
        return (await self.start_many([request]))[0]

    async def start_many(self, requests: Sequence[StartRequest]) -> list[Admission]:
        """See EngineVerbs. In the order of their keys: two transactions that start the same ones cannot deadlock."""
        order = sorted(range(len(requests)), key=lambda at: requests[at].key or "")
        answers = await self._admissions.start_many([requests[at] for at in order])
        found: dict[int, Admission] = {}
        for at, answer in zip(order, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            found[at] = answer
        return [found[at] for at in range(len(requests))]

    async def get(self, id: str) -> Execution | None:
        """See EngineVerbs."""
        return await self._transaction.run(read.get, self._namespace, id)

    async def input_of(self, id: str) -> bytes | None:
        """See EngineVerbs."""
        return await self._transaction.run(read.input_of, self._namespace, id)

    async def outcome(self, id: str, timeout: float | None) -> Outcome | None:
        """How it ended, as this transaction sees it. It does not wait: nothing ends while the caller waits."""
        return (await self._transaction.run(read.outcomes, [id])).get(id)

    async def cancel(self, id: str) -> Status | None:
        """See EngineVerbs."""
        return await self._transaction.run(control.cancel, self._namespace, id)

    async def signal(self, id: str, name: str, payload: bytes | None, key: str | None) -> Status | None:
        """See EngineVerbs."""
        return await self._transaction.run(control.deliver, self._namespace, (id, "signal", name, key, payload, None))

    async def send(self, message: Message) -> str:
        """See EngineVerbs."""
        limit = self._settings.call_timeout.total_seconds()
        return await Mail(self._transaction, self._namespace, self._lanes, Hub(), limit).post(message)

    async def publish(self, publication: Publication) -> Receipt:
        """See JoinedVerbs."""
        (receipt,) = await self._events(self._transaction, self._lanes).publish_many([publication])
        if isinstance(receipt, BaseException):
            raise receipt
        return receipt

    async def schedules(self) -> StoredSchedules:
        """See EngineVerbs."""
        runs = JournalRuns(self._namespace, self._lanes, Hub())
        return StoredSchedules(self._transaction, self._namespace, runs, self._settings, lambda: None)
