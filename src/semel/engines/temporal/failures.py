"""What Temporal recorded of an end, as the contract says it."""

from __future__ import annotations

import msgspec
from temporalio.api.common.v1 import Payloads
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DataConverter
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    TerminatedError,
    TimeoutError,
)

from semel.codec import converter_of
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.engines.temporal.payloads import TIMED_OUT, bytes_of
from semel.flow.turn import Ended

TERMINATED = "semel.Terminated"
REPLACED = "TerminateIfRunning WorkflowIdReusePolicy"
"""What a cluster says of a run that had to go for a new one."""


def ended_of(cause: BaseException | None) -> Ended:
    """How it ended, from the error that Temporal gives."""
    match cause:
        case CancelledError():
            return Ended(Status.CANCELLED)
        case TerminatedError():
            return Ended(Status.CANCELLED, None, ErrorInfo(TERMINATED, cause.message))
        case TimeoutError():
            return Ended(Status.TIMED_OUT, None, ErrorInfo("TimeoutError", cause.message))
        case ApplicationError():
            if isinstance(cause.cause, CancelledError):
                return Ended(Status.CANCELLED)
            status = Status.TIMED_OUT if cause.type == TIMED_OUT else Status.FAILED
            return Ended(status, None, error_of(cause))
        case ActivityError(cause=BaseException()) | ChildWorkflowError(cause=BaseException()):
            # As a workflow of other people ends whose activity failed: what they want to know stands in the cause.
            ended = ended_of(cause.cause)
            return ended if ended.error is None else Ended(Status.FAILED, None, ended.error)
        case _:
            return Ended(Status.FAILED, None, ErrorInfo(type(cause).__name__, str(cause)))


to_error = converter_of(ErrorInfo)


def error_of(error: ApplicationError) -> ErrorInfo:
    """The error as it was described where it was raised; of other people's workflows, what Temporal tells."""
    if error.details:
        try:
            return to_error(error.details[0])
        except msgspec.ValidationError:
            pass
    return ErrorInfo(error.type or "ApplicationError", error.message)


def terminated(reason: str, details: Payloads) -> Ended:
    """How a run ended that was ended from outside."""
    if reason == REPLACED:
        told = bytes_of(details.payloads[0]) if details.payloads else None
        run = "" if told is None else str(msgspec.json.decode(told)).rpartition(" ")[2]
        reason = f"reset: it goes on as run {run}"
    return Ended(Status.CANCELLED, None, ErrorInfo(TERMINATED, reason))


async def decode_failure(failure: Failure, converter: DataConverter) -> Failure:
    """A failure with its message and stack trace as they were before a codec."""
    error = await converter.decode_failure(failure)
    return (error.failure if isinstance(error, FailureError) else None) or failure
