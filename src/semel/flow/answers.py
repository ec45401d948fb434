"""How the answer to a command reaches the code that waits for it: as a value, or as an error."""

from __future__ import annotations

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.engine.outcomes import failure
from semel.engine.protocol import Outcome
from semel.errors import KeyConflict, SemelError
from semel.flow.commands import Command
from semel.flow.entries import Resolved, Signalled, stored


def give(command: Command, answer: Resolved, flow: str) -> None:
    """What came of a task, a step, a child. `flow` answers for steps, which have no execution of their own."""
    future = command.future
    if future is None:
        return
    try:
        if answer.status == "refused":
            raise _refusal(answer.error)
        if answer.status == "started":
            future.set_result(answer.ref)
            return
        status = Status(answer.status)
        if status is not Status.COMPLETED:
            raise failure(command.ref or flow, command.name, Outcome(status, None, answer.error, False))
        future.set_result(command.read(stored(answer.output)))
    except SemelError as error:
        future.set_exception(error)


def hand(command: Command, signal: Signalled) -> None:
    """A signal, to the code that waits for one."""
    if command.future is None:
        return
    try:
        command.future.set_result(command.read(stored(signal.payload)))
    except SemelError as error:
        command.future.set_exception(error)


def _refusal(error: ErrorInfo | None) -> KeyConflict:
    message = "the key stands for something else" if error is None else error.message
    return KeyConflict(message, existing_execution_id="", status=Status.PENDING, differences={})
