"""Semel: durable Python work that happens once."""

import typing

from semel.contract.lifecycle import Status
from semel.contract.records import (
    ErrorInfo,
    Execution,
    Explanation,
    FailedMessage,
    MessageConflict,
    Suppressed,
    Undelivered,
)
from semel.contract.retry import Retry
from semel.errors import (
    AlreadyCompleted,
    AlreadyExists,
    ConfigError,
    DefinitionError,
    Duplicate,
    EngineError,
    EngineUnavailable,
    ExecutionCancelled,
    ExecutionFailed,
    ExecutionTimedOut,
    Forbidden,
    InputError,
    InvalidKey,
    InvalidValue,
    KeyConflict,
    LeaseLost,
    MigrationNeeded,
    NonDeterminism,
    NotCommitted,
    NotDecodable,
    NotEncodable,
    NotFound,
    NotRedrivable,
    NotResettable,
    OutcomeError,
    OutsideTask,
    OutsideTransaction,
    PayloadTooLarge,
    ResultExpired,
    ResultPending,
    SchemaTooNew,
    SemelError,
    SqliteLibraryConflict,
    TaskAlreadyCompleted,
    TaskAlreadyExists,
    WorkflowAlreadyCompleted,
    WorkflowAlreadyExists,
    WorkflowEnded,
)

if typing.TYPE_CHECKING:
    from semel.app import App
    from semel.contract.runs import Run
    from semel.contract.sweeps import SweepOutcome, SweepReport
    from semel.define.context import Running, current, effect_key
    from semel.define.handler import handler, idle, query
    from semel.define.sweeper import Stuck, Sweep
    from semel.define.task import AsyncTask, Call, SyncTask, Task
    from semel.define.workflow import Workflow, WorkflowCall
    from semel.engine.events import Failure, WorkerEvent, WorkerEventType
    from semel.engine.protocol import Observer, Replayed
    from semel.entity_ref import Ref
    from semel.events import Published
    from semel.flow.context import Child, Context, EntityContext
    from semel.flow.history import Event
    from semel.handle import Handle
    from semel.outbox import OutboxState
    from semel.runtime.logs import ExecutionFilter, configure_logging
    from semel.transactional.inbox import once, once_sync
    from semel.transactional.outbox.events import OutboxEvent, OutboxStatus
    from semel.triggers.envelope import EventEnvelope
else:
    # These bring event loops and database drivers. They are imported when first asked for, so that
    # `from semel.contract import DedupWindow` is light, and safe inside other people's workflow sandboxes.
    _LATER = {
        "App": "semel.app",
        "AsyncTask": "semel.define.task",
        "Call": "semel.define.task",
        "Child": "semel.flow.context",
        "Context": "semel.flow.context",
        "EntityContext": "semel.flow.context",
        "Event": "semel.flow.history",
        "EventEnvelope": "semel.triggers.envelope",
        "ExecutionFilter": "semel.runtime.logs",
        "Failure": "semel.engine.events",
        "Handle": "semel.handle",
        "Observer": "semel.engine.protocol",
        "OutboxEvent": "semel.transactional.outbox.events",
        "OutboxState": "semel.outbox",
        "OutboxStatus": "semel.transactional.outbox.events",
        "Published": "semel.events",
        "Ref": "semel.entity_ref",
        "Replayed": "semel.engine.protocol",
        "Run": "semel.contract.runs",
        "Running": "semel.define.context",
        "Stuck": "semel.define.sweeper",
        "Sweep": "semel.define.sweeper",
        "SweepOutcome": "semel.contract.sweeps",
        "SweepReport": "semel.contract.sweeps",
        "SyncTask": "semel.define.task",
        "Task": "semel.define.task",
        "Workflow": "semel.define.workflow",
        "WorkerEvent": "semel.engine.events",
        "WorkerEventType": "semel.engine.events",
        "WorkflowCall": "semel.define.workflow",
        "configure_logging": "semel.runtime.logs",
        "current": "semel.define.context",
        "effect_key": "semel.define.context",
        "handler": "semel.define.handler",
        "idle": "semel.define.handler",
        "once": "semel.transactional.inbox",
        "once_sync": "semel.transactional.inbox",
        "query": "semel.define.handler",
    }

    def __getattr__(name: str) -> object:
        home = _LATER.get(name)
        if home is None:
            raise AttributeError(f"module 'semel' has no attribute {name!r}")
        import importlib

        value = globals()[name] = getattr(importlib.import_module(home), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LATER})


__version__ = "0.1.0"

__all__ = [
    "AlreadyCompleted",
    "AlreadyExists",
    "App",
    "AsyncTask",
    "Call",
    "Child",
    "ConfigError",
    "Context",
    "DefinitionError",
    "Duplicate",
    "EngineError",
    "EngineUnavailable",
    "EntityContext",
    "ErrorInfo",
    "Event",
    "EventEnvelope",
    "Execution",
    "ExecutionCancelled",
    "ExecutionFailed",
    "ExecutionFilter",
    "ExecutionTimedOut",
    "Explanation",
    "FailedMessage",
    "Failure",
    "Forbidden",
    "Handle",
    "InputError",
    "InvalidKey",
    "InvalidValue",
    "KeyConflict",
    "LeaseLost",
    "MessageConflict",
    "MigrationNeeded",
    "NonDeterminism",
    "NotCommitted",
    "NotDecodable",
    "NotEncodable",
    "NotFound",
    "NotRedrivable",
    "NotResettable",
    "Observer",
    "OutboxEvent",
    "OutboxState",
    "OutboxStatus",
    "OutcomeError",
    "OutsideTask",
    "OutsideTransaction",
    "PayloadTooLarge",
    "Published",
    "Ref",
    "Replayed",
    "ResultExpired",
    "ResultPending",
    "Retry",
    "Run",
    "Running",
    "SchemaTooNew",
    "SemelError",
    "SqliteLibraryConflict",
    "Status",
    "Stuck",
    "Suppressed",
    "Sweep",
    "SweepOutcome",
    "SweepReport",
    "SyncTask",
    "Task",
    "TaskAlreadyCompleted",
    "TaskAlreadyExists",
    "Undelivered",
    "WorkerEvent",
    "WorkerEventType",
    "Workflow",
    "WorkflowAlreadyCompleted",
    "WorkflowAlreadyExists",
    "WorkflowCall",
    "WorkflowEnded",
    "configure_logging",
    "current",
    "effect_key",
    "handler",
    "idle",
    "once",
    "once_sync",
    "query",
]
