"""The JSON form of records: what `--json` prints, and what any other program is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from semel.check import Finding as CheckFinding
from semel.contract.records import Execution, Explanation, FailedMessage
from semel.engine.protocol import QueueState


def to_json(record: Any) -> Any:
    """Turn a record, or any mix of records, into plain JSON data.

    Times are ISO 8601 strings, durations are seconds, sets are sorted lists. A dataclass or a struct becomes an object
    with the names of its fields, unless its form is defined here. TypeError: neither a record nor JSON data.
    """
    if record is None or isinstance(record, bool | int | float):
        return record
    if isinstance(record, str):
        return str(record)
    if isinstance(record, datetime):
        return record.isoformat()
    if isinstance(record, timedelta):
        return record.total_seconds()
    if isinstance(record, Mapping):
        return {str(name): to_json(value) for name, value in record.items()}
    if isinstance(record, frozenset | set):
        return sorted(to_json(value) for value in record)
    if isinstance(record, list | tuple):
        return [to_json(value) for value in record]
    return to_json(_fields(record))


def _fields(record: Any) -> dict[str, Any]:
    """The fields of a record as JSON shows them."""
    if isinstance(record, Execution):
        return {**_own(record), "expires_at": record.expires_at, "window_ends_at": record.window_ends_at}
    if isinstance(record, Explanation):
        return {
            "key": record.key,
            "kind": record.kind,
            "executions": record.executions,
            "suppressed": record.suppressed,
            "failed_messages": record.undelivered.failed,
            "refused": record.undelivered.refused,
            "asked_at": record.asked_at,
            "text": record.text,
        }
    if isinstance(record, FailedMessage):
        return {"entity": record.entity, **_own(record)}
    if isinstance(record, QueueState):
        counts = {"name": record.name, "ready": record.ready, "running": record.running, "delayed": record.delayed}
        return {**counts, **_own(record.settings)}
    if isinstance(record, CheckFinding):
        return {
            "path": record.path,
            "line": record.line,
            "column": record.column,
            "rule": record.rule.id,
            "name": record.rule.name,
            "what": record.what,
            "why": record.rule.why,
            "instead": record.instead,
            "chain": record.chain,
        }
    return _own(record)


def _own(record: Any) -> dict[str, Any]:
    if isinstance(record, msgspec.Struct):
        return {name: getattr(record, name) for name in record.__struct_fields__}
    if not dataclasses.is_dataclass(record) or isinstance(record, type):
        raise TypeError(f"{record!r} is neither a record nor JSON data")
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
