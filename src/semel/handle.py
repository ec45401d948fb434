"""A handle: the caller's end of one execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from semel.codec import decode_plain
from semel.contract.durations import Duration, parse_duration
from semel.contract.lifecycle import Status
from semel.contract.records import Execution
from semel.engine.protocol import Outcome
from semel.errors import (
    NotFound,
    ResultExpired,
    ResultPending,
    SemelError,
    TaskCancelled,
    TaskFailed,
    TaskTimedOut,
)

if TYPE_CHECKING:
    from semel.app import App

T_co = TypeVar("T_co", covariant=True)


class Handle(Generic[T_co]):
    """One execution. Duplicates under the same key hold a handle to the same one."""

    def __init__(self, app: App, id: str, *, name: str, key: str | None, duplicate: bool) -> None:
        self._app = app
        self.id = id
        """The execution's id."""
        self.key = key
        """The `task_id` it was admitted under, or None."""
        self.name = name
        """The task's name."""
        self.duplicate = duplicate
        """True when the request that made this handle did not start the execution."""

    def __repr__(self) -> str:
        key = "" if self.key is None else f" key={self.key!r}"
        return f"<Handle {self.name!r} {self.id}{key}{' duplicate' if self.duplicate else ''}>"

    async def result(self, timeout: Duration | None = None) -> T_co:
        """Wait for the end and return the result.

        Raises TaskFailed, TaskCancelled or TaskTimedOut when it ended so, ResultExpired past retention, and
        ResultPending when `timeout` is over first (the execution goes on).
        """
        seconds = None if timeout is None else parse_duration(timeout, "timeout").total_seconds()
        outcome = await self._app.engine.outcome(self.id, seconds)
        if outcome is None:
            raise ResultPending(
                f"execution {self.id} of {self.name!r} has not ended after {seconds:g} s. It goes on: ask again.",
                execution_id=self.id,
            )
        return cast(T_co, self._value(outcome))

    def _value(self, outcome: Outcome) -> Any:
        if outcome.status is Status.COMPLETED and not outcome.expired:
            task = self._app.tasks.get(self.name)
            return decode_plain(outcome.output) if task is None else task.shape.decode_result(outcome.output)
        raise failure(self.id, self.name, outcome)

    async def describe(self) -> Execution:
        """The execution as it stands now. NotFound once it is past its retention."""
        execution = await self._app.engine.get(self.id)
        if execution is None:
            raise NotFound(f"execution {self.id} is not known (any more): it may be past its retention.")
        return execution

    async def status(self) -> Status:
        """Where it stands now."""
        return (await self.describe()).status

    async def cancel(self) -> Status:
        """Cancel it, and say how it stands then.

        `cancelled`: it had not begun and will not. `running`: its worker has been asked to stop it.
        Anything else: it had ended before.
        """
        status = await self._app.engine.cancel(self.id)
        if status is None:
            raise NotFound(f"execution {self.id} is not known (any more): it may be past its retention.")
        return status


def failure(id: str, name: str, outcome: Outcome) -> SemelError:
    """The error that tells how an execution ended."""
    error = outcome.error
    if outcome.expired:
        return ResultExpired(
            f"the result of execution {id} of {name!r} is past its retention. Keep results longer with "
            "retention='…' on the task or its queue.",
            execution_id=id,
        )
    if outcome.status is Status.CANCELLED:
        return TaskCancelled(f"execution {id} of {name!r} was cancelled.", execution_id=id)
    message = f"{error.type}: {error.message}" if error else "no error was recorded"
    if outcome.status is Status.TIMED_OUT:
        return TaskTimedOut(f"execution {id} of {name!r} timed out: {message}.", execution_id=id)
    return TaskFailed(
        f"execution {id} of {name!r} failed: {message}. Run it again with: semel redrive {id}",
        execution_id=id,
        error_type=error.type if error else "",
        error_message=error.message if error else "",
        traceback=error.traceback if error else "",
    )
