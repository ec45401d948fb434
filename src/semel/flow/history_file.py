"""The history of a workflow or an entity as a file: readable JSON that can be replayed anywhere, without a database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from semel.codec import decoder_of
from semel.contract.window import DedupWindow
from semel.engine.protocol import RecordedRun
from semel.errors import InvalidValue, phrase
from semel.flow import entries, snapshot
from semel.flow.entries import (
    Asked,
    Began,
    Dropped,
    Entry,
    Fired,
    Resolved,
    Signalled,
    Stopped,
    Turned,
)

FORMAT: Final = "semel-history"
VERSION: Final = 1
"""Of the file. Another one is refused rather than guessed at."""

_KINDS: Final[dict[str, type[Struct]]] = {
    kind.__name__.lower(): kind for kind in (Began, Turned, Resolved, Fired, Signalled, Stopped, Asked, Dropped)
}


class _Head(Struct):
    format: str = ""
    version: int = 0


class _Start(Struct):
    """A snapshot with names."""

    input: Raw
    run: int
    numbers: int
    counts: dict[str, int]
    attributes: dict[str, str]
    signals: list[dict[str, Raw]]
    seen: Raw
    active: int = 0
    deadline: int | None = None


class _File(Struct, kw_only=True):
    format: str = FORMAT
    version: int = VERSION
    workflow: str
    kind: str = "workflow"
    key: str
    id: str
    namespace: str
    queue: str
    generation: int
    seed: str
    parent: str | None
    input: Raw
    base: int
    snapshot: _Start | None
    commits: list[list[dict[str, Raw]]]


def _as_it_stands(value: Raw) -> Raw:
    return Raw(bytes(value))


_read_head: Final = decoder_of(_Head).decode
_read_file: Final = decoder_of(_File).decode
_read_name: Final = decoder_of(str).decode
_read_fields: Final[dict[type[Struct], dict[str, Callable[[Raw], Any]]]] = {
    kind: {
        spec.name: _as_it_stands if spec.type is Raw else decoder_of(spec.type).decode
        for spec in msgspec.structs.fields(kind)
    }
    for kind in _KINDS.values()
}


def dump(past: RecordedRun) -> str:
    """A history as text."""
    if past.input is None:
        raise InvalidValue(f"{past.kind} {past.key!r} ({past.id}) is past its retention: its input is gone.")
    file = _File(
        workflow=past.name,
        kind=past.kind,
        key=past.key,
        id=past.id,
        namespace=past.namespace,
        queue=past.queue,
        generation=past.generation,
        seed=past.seed,
        parent=past.parent,
        input=Raw(past.input),
        base=past.base,
        snapshot=None if past.snapshot is None else _named(past.snapshot),
        commits=[[_opened(entry) for entry in entries.load(body)] for body in past.commits],
    )
    return msgspec.json.format(msgspec.json.encode(file), indent=1).decode() + "\n"


def load(text: str | bytes) -> RecordedRun:
    """The history that a text holds. InvalidValue: it holds none, or one that this Semel cannot read."""
    try:
        head = _read_head(text)
        if (head.format, head.version) == (FORMAT, VERSION):
            return _past(_read_file(text))
    except (msgspec.MsgspecError, KeyError) as error:
        raise InvalidValue(
            f"this is no history of a workflow: {phrase(error)}. Make one with: semel workflows export"
        ) from error
    if head.format != FORMAT:
        raise InvalidValue("this is no history of a workflow. Make one with: semel workflows export")
    raise InvalidValue(
        f"this history has the format {head.version}, and this Semel reads {VERSION}. Export it again with this one."
    )


def _past(file: _File) -> RecordedRun:
    return RecordedRun(
        file.id,
        file.workflow,
        file.key,
        file.namespace,
        file.queue,
        file.generation,
        file.seed,
        file.parent,
        bytes(file.input),
        None if file.snapshot is None else _stored(file.snapshot),
        file.base,
        tuple(entries.dump([_closed(entry) for entry in commit]) for commit in file.commits),
        file.kind,
    )


def _opened(entry: Entry) -> dict[str, Raw]:
    """An entry as an object, without what is as usual."""
    told = {"what": Raw(msgspec.json.encode(type(entry).__name__.lower()))}
    for spec in msgspec.structs.fields(entry):
        value = getattr(entry, spec.name)
        if spec.required or value != spec.default:
            told[spec.name] = value if isinstance(value, Raw) else Raw(msgspec.json.encode(value))
    return told


def _closed(told: dict[str, Raw]) -> Any:
    what = _read_name(told["what"])
    if what not in _KINDS:
        raise InvalidValue(f"this history has an entry {what!r}, which this Semel does not know.")
    kind = _KINDS[what]
    read = _read_fields[kind]
    values = {name: read[name](value) for name, value in told.items() if name != "what"}
    return kind(**values)


def _named(data: bytes) -> _Start:
    start = snapshot.load(data)
    return _Start(
        Raw(start.input),
        start.run,
        start.numbers,
        start.counts,
        start.attributes,
        [_opened(signal) for signal in start.signals],
        Raw(msgspec.json.encode(start.seen.to_json())),
        start.active,
        start.deadline,
    )


def _stored(start: _Start) -> bytes:
    return snapshot.dump(
        snapshot.Snapshot(
            bytes(start.input),
            start.run,
            start.numbers,
            start.counts,
            start.attributes,
            tuple(_closed(signal) for signal in start.signals),
            DedupWindow.from_json(msgspec.json.decode(start.seen)),
            start.active,
            start.deadline,
        )
    )
