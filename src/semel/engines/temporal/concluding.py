"""How an execution tells Temporal that it has ended, and how that is read again."""

from __future__ import annotations

from typing import Final

import msgspec
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, CancelledError

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.engines.temporal.payloads import wrap
from semel.flow.turn import Ended

TIMED_OUT: Final = "semel.TimedOut"
"""The error type of what ran longer than it may; Temporal's own timeouts are not used, since they cannot clean up."""


def conclude(ended: Ended) -> RawValue:
    """The result, or the error that Temporal records."""
    match ended.status:
        case Status.COMPLETED:
            return wrap(ended.output)
        case Status.CANCELLED:
            raise CancelledError("cancelled")
        case status:
            error = ended.error or ErrorInfo("", "no error was recorded")
            kind = TIMED_OUT if status is Status.TIMED_OUT else error.type
            raise ApplicationError(error.message, msgspec.to_builtins(error), type=kind, non_retryable=True)
