"""Every error Semel raises, drawn once.

    SemelError
    ├── ConfigError                 C01  a setting or a semel.toml that cannot be used
    ├── DefinitionError             C02  a decorated function or class that cannot be a task, workflow or entity
    ├── InputError
    │   ├── InvalidKey              K01  a task_id that cannot be a key
    │   ├── InvalidValue            V01  an option (duration, rate, priority ...) that is out of bounds
    │   ├── NotEncodable            V02  an argument or result that JSON cannot carry
    │   ├── PayloadTooLarge         V03  an argument or result over the size limit
    │   └── NotDecodable            V04  stored data that no longer fits the annotation
    ├── Duplicate
    │   ├── KeyConflict             K02  same key, different input or function
    │   ├── AlreadyExists                 (on_duplicate="raise")
    │   │   ├── TaskAlreadyExists       K03  a task with this key exists
    │   │   └── WorkflowAlreadyExists   K05  a workflow with this key exists
    │   └── AlreadyCompleted              (on_duplicate="raise")
    │       ├── TaskAlreadyCompleted    K04  a task with this key completed
    │       └── WorkflowAlreadyCompleted K06 a workflow with this key completed
    ├── OutcomeError
    │   ├── ExecutionFailed         R01  the execution ended failed
    │   ├── ExecutionCancelled      R02  the execution was cancelled
    │   ├── ExecutionTimedOut       R03  the last attempt ran longer than its timeout
    │   ├── ResultExpired           R04  the result is past its retention
    │   └── ResultPending           R05  still running when result(timeout=...) ran out
    ├── NotFound                    X01  no such execution, key or task
    │   └── NotCommitted            X04  started in a transaction that was rolled back, or is still open
    ├── NotRedrivable               X02  redrive() of something that did not fail
    ├── NotResettable               X03  reset() to a point that a workflow cannot go back to
    ├── OutsideTask                 T01  current() or effect_key() where no task runs
    ├── NonDeterminism              W01  workflow code differs from what its journal recorded
    ├── Forbidden                   W02  workflow code did something that belongs in a task
    ├── WorkflowEnded               W03  a signal or message to an execution that has ended
    └── EngineError                 N00  the database refused: role, statement, damaged file
        ├── EngineUnavailable       N01  the database cannot be reached or stopped answering
        ├── MigrationNeeded         N02  tables are missing or old: run `semel migrate`
        ├── SchemaTooNew            N03  tables were made by a newer Semel
        ├── LeaseLost               N04  this worker was silent for too long; others took its work
        └── SqliteLibraryConflict   N05  two SQLite libraries in one process would have shared a file

    OutsideTransaction (a warning): a start inside an open transaction that it is not part of

Each has a stable `code` (`SEMEL-K02`), says what happened, to which thing, and what to do next.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Final

_SHOWN_TRACEBACK: Final = 8_000
"""Characters of a remote traceback that are printed with an error: its end, which says most."""


def type_name(kind: type[BaseException]) -> str:
    """The name under which the type of an error is stored and shown, such as `ValueError` or `shop.CardDeclined`.

    Semel's own go by the name they are imported by, `semel.KeyConflict`, whichever module the class is in: what is
    stored must not depend on where our code stands.
    """
    if kind.__module__ == "builtins":
        return kind.__qualname__
    module = "semel" if kind.__module__.startswith("semel.") else kind.__module__
    return f"{module}.{kind.__qualname__}"


class SemelError(Exception):
    """The root of the tree. `code` never changes between releases."""

    code: ClassVar[str] = "SEMEL-000"

    def __str__(self) -> str:
        return f"{type(self).__name__} [{self.code}]: {super().__str__()}"

    @property
    def message(self) -> str:
        """The sentence alone, without name and code."""
        return super().__str__()


def phrase(what: object) -> str:
    """What an error or a text says, for the middle of another sentence.

    One of Semel's own errors goes without its name and code, and nothing ends with a full stop: the sentence around it
    has its own.
    """
    text = (what.message if isinstance(what, SemelError) else str(what)).rstrip()
    return text if text.endswith("...") else text.rstrip(".")


def phrase_with_type(error: BaseException) -> str:
    """The name of an error's type, and what it says if it says something, for the middle of another sentence."""
    return ": ".join(filter(None, (type(error).__name__, phrase(error))))


class ConfigError(SemelError):
    """A setting, an environment variable or `semel.toml` cannot be used as it is."""

    code = "SEMEL-C01"


class DefinitionError(SemelError):
    """A decorated function or class cannot be a task, workflow or entity; raised when the module is imported."""

    code = "SEMEL-C02"


class InputError(SemelError, ValueError):
    """Something given to Semel is refused; nothing was written."""


class InvalidKey(InputError):
    """A `task_id` is blank, too long, or contains characters that a key cannot have."""

    code = "SEMEL-K01"


class InvalidValue(InputError):
    """An option is out of bounds: a duration, a rate, a priority, a policy name."""

    code = "SEMEL-V01"


class NotEncodable(InputError):
    """A value cannot be stored as JSON; the message gives its path."""

    code = "SEMEL-V02"


class PayloadTooLarge(InputError):
    """Arguments or result are over `max_payload` (1 MiB unless configured)."""

    code = "SEMEL-V03"


class NotDecodable(InputError):
    """Stored data does not fit the annotation of the code that reads it."""

    code = "SEMEL-V04"


class Duplicate(SemelError):
    """The key is taken. `existing_execution_id` names the execution that holds it."""

    def __init__(self, message: str, *, existing_execution_id: str, status: str) -> None:
        super().__init__(message)
        self.existing_execution_id = existing_execution_id
        self.status = status


class KeyConflict(Duplicate):
    """The key belongs to an execution with different input, or of another function.

    `differences` maps each differing field to (stored, offered); it is empty when the stored
    input is past its retention and only the fingerprint is left.
    """

    code = "SEMEL-K02"

    def __init__(
        self,
        message: str,
        *,
        existing_execution_id: str,
        status: str,
        differences: dict[str, tuple[Any, Any]],
    ) -> None:
        super().__init__(message, existing_execution_id=existing_execution_id, status=status)
        self.differences = differences


class AlreadyExists(Duplicate):
    """`on_duplicate="raise"`: an execution holds the key and has not completed."""


class TaskAlreadyExists(AlreadyExists):
    """`on_duplicate="raise"`: a task holds the key and has not completed."""

    code = "SEMEL-K03"


class WorkflowAlreadyExists(AlreadyExists):
    """`on_duplicate="raise"`: a workflow holds the key and has not completed."""

    code = "SEMEL-K05"


class AlreadyCompleted(Duplicate):
    """`on_duplicate="raise"`: an execution with this key has completed; `result` is its result."""

    def __init__(self, message: str, *, existing_execution_id: str, completed_at: datetime, result: Any) -> None:
        super().__init__(message, existing_execution_id=existing_execution_id, status="completed")
        self.completed_at = completed_at
        self.result = result


class TaskAlreadyCompleted(AlreadyCompleted):
    """`on_duplicate="raise"`: a task with this key has completed; `result` is its result."""

    code = "SEMEL-K04"


class WorkflowAlreadyCompleted(AlreadyCompleted):
    """`on_duplicate="raise"`: a workflow with this key has completed; `result` is its result."""

    code = "SEMEL-K06"


class OutcomeError(SemelError):
    """`result()` has no value to return; `execution_id` says for which execution."""

    def __init__(self, message: str, *, execution_id: str) -> None:
        super().__init__(message)
        self.execution_id = execution_id


class ExecutionFailed(OutcomeError):
    """The task raised on its last attempt, the workflow or the handler raised, or its workers died too often.

    `error_type` and `error_message` are those of what it raised, `root_cause_type` that of the exception which the
    chain of causes began with, also across workflows and their tasks. `traceback` is the remote traceback as text; it
    is printed with this error.
    """

    code = "SEMEL-R01"

    def __init__(
        self,
        message: str,
        *,
        execution_id: str,
        error_type: str,
        error_message: str,
        traceback: str,
        root_cause_type: str = "",
    ) -> None:
        super().__init__(message, execution_id=execution_id)
        self.error_type = error_type
        self.error_message = error_message
        self.traceback = traceback
        self.root_cause_type = root_cause_type or error_type
        if traceback:
            shown = traceback if len(traceback) <= _SHOWN_TRACEBACK else f"…{traceback[-_SHOWN_TRACEBACK:]}"
            self.add_note(f"Raised in execution {execution_id}:\n{shown.rstrip()}")


class ExecutionCancelled(OutcomeError):
    """The execution was cancelled."""

    code = "SEMEL-R02"


class ExecutionTimedOut(OutcomeError):
    """The last attempt ran longer than the task's timeout, or the workflow longer than its own."""

    code = "SEMEL-R03"


class ResultExpired(OutcomeError):
    """The execution finished, and its result is past its retention."""

    code = "SEMEL-R04"


class ResultPending(OutcomeError, TimeoutError):
    """`result(timeout=...)` ran out; the execution itself continues."""

    code = "SEMEL-R05"


class NotFound(SemelError, LookupError):
    """There is no such execution, key or task."""

    code = "SEMEL-X01"


class NotCommitted(NotFound):
    """The execution was started in a transaction of the caller's that was rolled back, or is not committed yet."""

    code = "SEMEL-X04"


class OutsideTransaction(UserWarning):
    """Something was started inside an open transaction and is not part of it, since no connection was given."""


class NotRedrivable(SemelError):
    """Only a failed, cancelled or timed-out execution whose key is free can be run again."""

    code = "SEMEL-X02"


class NotResettable(SemelError):
    """A workflow can go back only to a commit of its current run, while it is the newest under its key."""

    code = "SEMEL-X03"


class OutsideTask(SemelError, RuntimeError):
    """`semel.current()` and `semel.effect_key()` work only inside a task."""

    code = "SEMEL-T01"


class NonDeterminism(SemelError):
    """The code of a workflow differs from what its journal recorded; the workflow waits for compatible code."""

    code = "SEMEL-W01"

    def __init__(self, message: str, *, expected: str = "", found: str = "", where: str = "") -> None:
        super().__init__(message)
        self.expected = expected
        self.found = found
        self.where = where


class Forbidden(SemelError):
    """Workflow code tried to use a socket, a file or a process. The call was not made.

    `what` is the call, `where` the line (`file:line`) of the workflow's code that led to it. Also raised if a
    function in `ctx.transaction` uses the app.
    """

    code = "SEMEL-W02"

    def __init__(self, message: str, *, what: str, where: str = "") -> None:
        super().__init__(message)
        self.what = what
        self.where = where


class WorkflowEnded(SemelError):
    """A signal or message cannot be delivered: the workflow has ended."""

    code = "SEMEL-W03"


class EngineError(SemelError):
    """The database or cluster refused an operation."""

    code = "SEMEL-N00"


class EngineUnavailable(EngineError, ConnectionError):
    """The database cannot be reached, or stopped answering in the middle."""

    code = "SEMEL-N01"


class MigrationNeeded(EngineError):
    """The tables are missing or older than this Semel."""

    code = "SEMEL-N02"


class SchemaTooNew(EngineError):
    """The tables were made by a newer Semel than this one."""

    code = "SEMEL-N03"


class LeaseLost(EngineError):
    """This worker did not renew its lease in time; its work now belongs to others."""

    code = "SEMEL-N04"


class SqliteLibraryConflict(EngineError):
    """Two SQLite libraries in one process would have opened the same file, which destroys it. It was refused."""

    code = "SEMEL-N05"
