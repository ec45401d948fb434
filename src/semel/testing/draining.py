"""Run what an uncommitted transaction of a test has started, inside that transaction and without a worker."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from contextlib import aclosing
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Final, cast

from semel.app import App
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.engines.journal.caller_transaction import TransactionVerbs
from semel.engines.journal.drain import run_tasks
from semel.errors import InvalidValue, phrase
from semel.runtime.threads import Threads
from semel.transactional.caller_thread import CallerThread, calling_thread
from semel.transactional.outbox.database import hide_password
from semel.transactional.outbox.verbs import OutboxVerbs

MOST: Final = 1000


@dataclass(frozen=True, slots=True)
class Drained:
    """A task that was run by `drain`."""

    id: str
    """Its execution."""
    name: str
    key: str | None
    status: Status
    result: Any = None
    error: ErrorInfo | None = None


async def drain(app: App, connection: Any, *, most: int = MOST, raises: bool = True) -> Sequence[Drained]:
    """Run the tasks that were started with `connection=`, before anything is committed; what became of each, in order.

    They run here one after the other, with those that they start themselves, and their ends are written in the same
    transaction: a rollback undoes all of it. Retries follow at once. What one of them raises in the end is raised,
    unless `raises` is False. A plain task is not interrupted by its timeout: it has timed out once it returns. Delayed
    tasks and workflows stay as they are. `most`: as many tasks as this are an error, for one that starts itself again
    and again.

    The test database has no other work: what is there and was committed is run as well.
    """
    if not app.engine.capabilities.joins_transactions:
        raise InvalidValue(f"this app runs on {app.engine.capabilities.name}, which takes part in no transaction.")
    thread = calling_thread()
    threads = cast("Callable[[], Threads]", lambda: _Here(thread))
    done: list[Drained] = []
    with app.bind(connection):
        verbs = await app._verbs(connection)
        if isinstance(verbs, OutboxVerbs):
            raise InvalidValue(
                "the connection is to another database than this app's engine, "
                f"{hide_password(app.settings.url)}: what is started on it is a row of the outbox there, and drain "
                "runs what is in the engine's database. Give the test an app whose engine is in the database of the "
                "connection; or commit, and have app.relay() and app.worker() run it."
            )
        async with aclosing(
            run_tasks(cast(TransactionVerbs, verbs), app.tasks, app.settings.max_payload, threads)
        ) as ran:
            async for claim, outcome in ran:
                result = None
                if outcome.status is Status.COMPLETED:
                    result = app.tasks.task(claim.name).shape.decode_result(outcome.output)
                one = Drained(claim.execution, claim.name, claim.key, outcome.status, result, outcome.error)
                done.append(one)
                if outcome.exception is not None and raises:
                    raise outcome.exception
                if outcome.status is not Status.COMPLETED and raises and outcome.error is not None:
                    raise InvalidValue(f"task {one.name!r} {one.status}: {phrase(outcome.error.message)}.")
                if len(done) >= most:
                    raise InvalidValue(
                        f"{most} tasks were run, the last of them {one.name!r}, and there may be more: does one start "
                        "itself again and again? If not, give a larger most=."
                    )
    return done


def drain_sync(app: App, connection: Any, *, most: int = MOST, raises: bool = True) -> Sequence[Drained]:
    """The same for connections without await: `Session`, `sqlite3`, psycopg, Django. Plain tasks run in this thread."""
    work = functools.partial(_drain, app, most=most, raises=raises)
    return app.sync._perform("drain", connection, work)


async def _drain(app: App, *, connection: Any, most: int, raises: bool) -> Sequence[Drained]:
    return await drain(app, connection, most=most, raises=raises)


class _Here:
    """Runs sync tasks where the test is: in its thread, so that they can use its connection."""

    def __init__(self, thread: CallerThread | None) -> None:
        self._thread = thread

    def run(self, context: Context, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """In place of `Threads.run`."""
        if self._thread is not None:
            return asyncio.ensure_future(self._thread.run(lambda: context.run(call)))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        # What is told to the loop comes after a timeout that has passed meanwhile.
        try:
            loop.call_soon(_tell, future, context.run(call), None)
        except StopIteration as error:
            loop.call_soon(_tell, future, None, RuntimeError(f"the task raised {error!r}"))
        except BaseException as error:
            loop.call_soon(_tell, future, None, error)
        return future


def _tell(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
