"""What workflow code gets for its commands: a value, or the error that says how it went."""

from __future__ import annotations

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.engine import conflicts
from semel.engine.outcomes import failure
from semel.engine.protocol import Outcome
from semel.errors import SemelError, TaskFailed
from semel.flow.commands import IN_PLACE, Command
from semel.flow.entries import Resolved, Signalled, stored


def answer(command: Command, with_: Resolved, workflow: str) -> None:
    """Resolve the command's future; the code goes on when the loop runs next."""
    if with_.ref is not None:
        command.ref = with_.ref
    future = command.future
    if future is None or future.done():
        return
    future.dropped = None  # else command and future hold each other, and wait for the garbage collector
    try:
        match with_.status:
            case Status.COMPLETED:
                future.set_result(command.read(stored(with_.output)))
            case "refused":
                message = "the key stands for something else" if with_.error is None else with_.error.message
                raise conflicts.load(message, with_.ref, stored(with_.output))
            case "started":
                future.set_result(with_.ref)
            case status:
                if command.kind in IN_PLACE and with_.error is not None:
                    raise _step_failed(command, with_.error, workflow)
                raise failure(command.ref or workflow, command.name, Outcome(Status(status), None, with_.error, False))
    except SemelError as error:
        future.set_exception(error)


def hand(command: Command, signal: Signalled) -> None:
    """A signal to the code that waited for it."""
    if command.future is None:
        return
    command.future.dropped = None
    try:
        command.future.set_result(command.read(stored(signal.payload)))
    except SemelError as error:
        command.future.set_exception(error)


def _step_failed(command: Command, error: ErrorInfo, workflow: str) -> TaskFailed:
    """A step is no execution of its own, so that there is nothing to redrive."""
    return TaskFailed(
        f"step {command.name!r} failed: {error.type}: {error.message}.",
        execution_id=workflow,
        error_type=error.type,
        error_message=error.message,
        traceback=error.traceback,
    )
