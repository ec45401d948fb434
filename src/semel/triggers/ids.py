"""The ids of runs and of their tasks, byte for byte the same on every engine.

    activity-{activity_id}:{slot}                  a slot of a schedule, in UTC and whole seconds
    activity-{activity_id}:{event_id}              an event
    activity-{activity_id}:manual:{request key}    triggered by hand
    activity-{activity_id}:debounce:{key}:{hash}   debounced events; hash of the key and the first event
    activity-{activity_id}:batch:{key}:{hash}      a batch of events
    task-{run_id}:{task_type}:{index}              a task of a run

No two of them are the same text: see `event_part`. Formats never change silently, for a new one would make every old
run look new.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Literal, get_args
from uuid import UUID, uuid5

import msgspec

from semel.contract.keys import KEY_LENGTH, check_key, check_name
from semel.errors import InvalidKey, InvalidValue

TriggerKind = Literal["schedule", "event", "manual"]
"""What began a run: a slot of a cron, interval or one-shot trigger, an event, or a person."""

ACTIVITY_ID_LENGTH: Final = 100
EVENT_ID_LENGTH: Final = 2001
"""Of an event id at the door: a source and an id of a thousand characters each, with a `#` between them."""
EVENT_PART_LENGTH: Final = 200
"""An event id that is longer stands in the id of a run by its hash."""
TASK_TYPE_LENGTH: Final = 200
RUNS: Final = UUID("2b0f4c52-5d0c-5a39-9d3e-6f2f6c1b7a10")
"""The namespace, in the sense of RFC 9562, of the ids of runs."""

_SEGMENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+\-]*")
_SLOT: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"
_AMBIGUOUS: Final = re.compile(
    rf"(?:evt:)*(?:(?:.*:)?{_SLOT}|(?:.*:)?manual:.*|(?:debounce|batch):.*|sha256:[0-9a-f]{{64}})", re.DOTALL
)
_RUN_ID: Final = re.compile(rf"activity-(.+?):(?:({_SLOT})|manual:.+)", re.DOTALL)
_EVENT_RUN_ID: Final = re.compile(rf"activity-({_SEGMENT.pattern}):(.+)", re.DOTALL)
_TASK_INSTANCE: Final = re.compile(r"task-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}:[^:]+:\d+")
_RESERVED: Final = frozenset({"evt", "manual"})
_SHOWN_KEY: Final = re.compile(r"[A-Za-z0-9_.@+\-]{1,64}")
WindowKind = Literal["debounce", "batch"]


def check_activity_id(id: object, what: str = "activity_id") -> str:
    """An activity id as it is stored: a UUID in its usual form, or names that are joined by `:`."""
    if isinstance(id, UUID):
        return str(id)
    if not isinstance(id, str) or len(id) > ACTIVITY_ID_LENGTH or not all(map(_SEGMENT.fullmatch, id.split(":"))):
        raise InvalidValue(
            f"{what}={id!r}: use a UUID, or 1 to {ACTIVITY_ID_LENGTH} letters, digits, '_', '.', '-', '@' or '+', "
            "in parts that are joined by ':' and begin with a letter, a digit or '_'."
        )
    reserved = _RESERVED.intersection(id.split(":")) if ":" in id else ()
    if reserved:
        raise InvalidValue(
            f"{what}={id!r}: the part {min(reserved)!r} stands for something else in the ids of runs. Rename it."
        )
    try:
        return str(UUID(id)) if len(id) == 36 else id
    except ValueError:
        return id


@lru_cache(maxsize=256)
def format_slot(scheduled_for: datetime) -> str:
    """A slot as it stands in ids: UTC, whole seconds, `2026-03-01T09:00:00+00:00`."""
    if scheduled_for.utcoffset() is None:
        raise InvalidValue(f"scheduled_for={scheduled_for!s} has no time zone: give an aware datetime.")
    if scheduled_for.microsecond:
        raise InvalidValue(f"scheduled_for={scheduled_for!s} has a fraction of a second: slots are whole seconds.")
    return scheduled_for.astimezone(UTC).isoformat()


def slot_run_id(activity_id: str, scheduled_for: datetime) -> str:
    """The workflow id of the run for a slot."""
    return stored_slot_run_id(check_activity_id(activity_id), scheduled_for)


def stored_slot_run_id(activity_id: str, scheduled_for: datetime) -> str:
    """The workflow id of the run for a slot, from an activity id that was checked before it was stored."""
    return f"activity-{activity_id}:{format_slot(scheduled_for)}"


def event_run_id(activity_id: str, event_id: str) -> str:
    """The workflow id of the run for an event."""
    begin = f"activity-{check_activity_id(activity_id)}:"
    if ":" in activity_id:
        raise InvalidValue(f"activity_id={activity_id!r} has a ':' in it, so it cannot have event triggers.")
    return begin + event_part(event_id, KEY_LENGTH - len(begin))


def event_part(event_id: str, length: int = KEY_LENGTH) -> str:
    """An event id as it stands in the id of a run: as it is, unless it would be too long or could be something else.

    Over 200 characters, or over `length`, it is `sha256:` and the hash of its UTF-8 bytes. If it has the form of a
    slot, of a request by hand, of a window of events or of such a hash, it is prefixed `evt:`; so is one that would
    look as if it had been.
    """
    event_id = check_key(event_id, "event_id", EVENT_ID_LENGTH)
    if len(event_id) <= EVENT_PART_LENGTH:
        if ":" not in event_id and len(event_id) <= length:  # all that is ambiguous has one
            return event_id
        part = f"evt:{event_id}" if _AMBIGUOUS.fullmatch(event_id) else event_id
        if len(part) <= length:
            return part
    return f"sha256:{hashlib.sha256(event_id.encode()).hexdigest()}"


def window_run_id(activity_id: str, kind: WindowKind, key: str | None, first_event_id: str) -> str:
    """The workflow id of the run for events that were gathered: by their key, and the event that opened the window.

    An event opens one window only, so no two windows share an id, and whoever closes a window derives the same. The key
    stands in it as far as it is a short name; the hash of both parts follows in any case.
    """
    begin = f"activity-{check_activity_id(activity_id)}:{kind}:"
    if ":" in activity_id:
        raise InvalidValue(f"activity_id={activity_id!r} has a ':' in it, so it cannot have event triggers.")
    if kind not in get_args(WindowKind):
        raise InvalidValue(f"kind={kind!r}: use {' or '.join(get_args(WindowKind))}.")
    shown = f"{key}:" if key is not None and _SHOWN_KEY.fullmatch(key) and key not in _RESERVED else ""
    hashed = hashlib.sha256(msgspec.json.encode([key, check_key(first_event_id, "event_id", EVENT_ID_LENGTH)]))
    return f"{begin}{shown}{hashed.hexdigest()[:32]}"


def manual_run_id(activity_id: str, request_key: str) -> str:
    """The workflow id of a run that is triggered by hand. The same request sent again has the same key."""
    begin = f"activity-{check_activity_id(activity_id)}:manual:"
    return begin + check_key(request_key, "request key", KEY_LENGTH - len(begin))


def task_instance_id(run_id: UUID | str, task_type: str, index: int) -> str:
    """The id of a task of a run. `index` counts the tasks in the order in which the run spawns them, from 0."""
    try:
        run = UUID(str(run_id))
    except ValueError:
        raise InvalidValue(f"run_id={run_id!r} is not a UUID.") from None
    check_name(task_type, "task type", TASK_TYPE_LENGTH)
    id = f"task-{run}:{task_type}:{_count(index, 'index')}"
    if len(id) > KEY_LENGTH:
        raise InvalidKey(f"{id[:60] + '…'!r} has {len(id)} characters; an id has at most {KEY_LENGTH}.")
    return id


def derive_run_id(namespace: str, kind: TriggerKind, workflow_id: str, generation: int = 0) -> UUID:
    """The run id: whoever records a run again, after a crash or a retry, derives the same.

    The first run under a workflow id is of generation 0; an operator's re-run is the next generation.
    """
    check_name(namespace, "namespace")
    if kind not in get_args(TriggerKind):
        raise InvalidValue(f"kind={kind!r}: use {', '.join(get_args(TriggerKind))}.")
    # Neither a namespace nor a kind has a '/' in it: the four parts can be told apart.
    return uuid5(RUNS, f"{namespace}/{kind}/{_count(generation, 'generation')}/{check_key(workflow_id, 'workflow id')}")


def _count(number: int, what: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidValue(f"{what}={number!r}: give a whole number, 0 or more.")
    return number


def is_run_id(id: str) -> bool:
    """Has it the form of the id of a run, for a slot, for an event or by hand, or of a task of a run?"""
    if id.startswith("activity-"):
        return _EVENT_RUN_ID.fullmatch(id) is not None or _RUN_ID.fullmatch(id) is not None
    return id.startswith("task-") and _TASK_INSTANCE.fullmatch(id) is not None


def parse_run_id(id: str) -> tuple[str, datetime | None] | None:
    """The activity of a run and its slot, which one that was triggered by hand does not have. None: no id of a run."""
    found = _RUN_ID.fullmatch(id) if id.startswith("activity-") else None
    if found is None:
        return None
    return found[1], None if found[2] is None else datetime.fromisoformat(found[2])


def parse_event_run_id(id: str) -> tuple[str, str] | None:
    """The activity of a run for an event, and the id of the event as it stands there. None: it cannot be such a run."""
    found = _EVENT_RUN_ID.fullmatch(id) if id.startswith("activity-") else None
    return None if found is None or _RUN_ID.fullmatch(id) is not None else (found[1], found[2])
