"""What workflow code gets for its commands: a value, or the error that says how it went."""

from __future__ import annotations

from typing import Final

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.engine import conflicts
from semel.engine.outcomes import failure
from semel.engine.protocol import Outcome
from semel.errors import (
    ConfigError,
    ExecutionFailed,
    ExecutionTimedOut,
    InvalidKey,
    InvalidValue,
    NonDeterminism,
    NotDecodable,
    SemelError,
    phrase,
)
from semel.flow.commands import IN_PLACE, Command
from semel.flow.entries import Resolved, Signalled, stored

_REFUSALS: Final[dict[str, type[SemelError]]] = {
    f"semel.{kind.__name__}": kind for kind in (ConfigError, InvalidKey, InvalidValue)
}


def answer(command: Command, with_: Resolved, workflow: str) -> None:
    """Resolve the command's future; the code goes on when the loop runs next.

    NonDeterminism: the stored result does not fit the annotation of the function any more, so the code waits for one
    that can read it.
    """
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
                raise _refusal(with_)
            case "started":
                future.set_result(with_.ref)
            case status:
                if command.kind in IN_PLACE and with_.error is not None:
                    raise _step_failed(command, status, with_.error, workflow)
                ended = Outcome(Status(status), None, with_.error, False)
                # Run again alone, it would have its effect without the workflow hearing of it.
                raise failure(command.ref or workflow, command.name, ended, redrivable=False)
    except NotDecodable as error:
        raise _unreadable(command, error) from error
    except SemelError as error:
        future.set_exception(error)


def _refusal(answer: Resolved) -> SemelError:
    """Why an engine did not take a start: what is declared cannot be kept there, or its key is another's."""
    if answer.error is None:
        return conflicts.load("the key stands for something else", answer.ref, stored(answer.output))
    if answer.error.type in _REFUSALS:
        return _REFUSALS[answer.error.type](answer.error.message)
    return conflicts.load(answer.error.message, answer.ref, stored(answer.output))


def hand(command: Command, signal: Signalled) -> None:
    """A signal to the code that waited for it."""
    if command.future is None:
        return
    command.future.dropped = None
    try:
        command.future.set_result(command.read(stored(signal.payload)))
    except SemelError as error:
        command.future.set_exception(error)


def _unreadable(command: Command, error: NotDecodable) -> NonDeterminism:
    return NonDeterminism(
        f"the recorded result of {command.kind} {command.name!r} (command {command.number}) cannot be read by this "
        f"code: {error.message} It waits, and goes on with code whose return annotation fits what is stored.",
        expected=f"a result of {command.kind} {command.name!r} that can be read",
        found=error.message,
    )


def _step_failed(command: Command, status: str, error: ErrorInfo, workflow: str) -> ExecutionFailed | ExecutionTimedOut:
    """A step is no execution of its own, so that there is nothing to redrive."""
    if status == Status.TIMED_OUT:
        return ExecutionTimedOut(f"step {command.name!r} timed out: {phrase(error.message)}.", execution_id=workflow)
    return ExecutionFailed(
        f"step {command.name!r} failed: {phrase(error)}.",
        execution_id=workflow,
        error_type=error.type,
        error_message=error.message,
        traceback=error.traceback,
        root_cause_type=error.root_type,
    )
