"""Semel: durable Python work that happens once."""

from semel.app import App
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo, Execution, Explanation, Suppressed
from semel.contract.retry import Retry
from semel.define.context import Running, current, effect_key
from semel.define.task import Call, Task
from semel.errors import (
    ConfigError,
    DefinitionError,
    Duplicate,
    EngineError,
    EngineUnavailable,
    InputError,
    InvalidKey,
    InvalidValue,
    KeyConflict,
    LeaseLost,
    MigrationNeeded,
    NotDecodable,
    NotEncodable,
    NotFound,
    NotRedrivable,
    OutcomeError,
    OutsideTask,
    PayloadTooLarge,
    ResultExpired,
    ResultPending,
    SchemaTooNew,
    SemelError,
    TaskAlreadyCompleted,
    TaskAlreadyExists,
    TaskCancelled,
    TaskFailed,
    TaskTimedOut,
)
from semel.handle import Handle

__version__ = "0.1.0"

__all__ = [
    "App",
    "Call",
    "ConfigError",
    "DefinitionError",
    "Duplicate",
    "EngineError",
    "EngineUnavailable",
    "ErrorInfo",
    "Execution",
    "Explanation",
    "Handle",
    "InputError",
    "InvalidKey",
    "InvalidValue",
    "KeyConflict",
    "LeaseLost",
    "MigrationNeeded",
    "NotDecodable",
    "NotEncodable",
    "NotFound",
    "NotRedrivable",
    "OutcomeError",
    "OutsideTask",
    "PayloadTooLarge",
    "ResultExpired",
    "ResultPending",
    "Retry",
    "Running",
    "SchemaTooNew",
    "SemelError",
    "Status",
    "Suppressed",
    "Task",
    "TaskAlreadyCompleted",
    "TaskAlreadyExists",
    "TaskCancelled",
    "TaskFailed",
    "TaskTimedOut",
    "current",
    "effect_key",
]
