"""Finds names of Semel's own modules and classes in what is stored: in tables, payloads, memos and exports."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

DOTTED = re.compile(r"(?<![\w./-])semel\.\w+")
"""What could name a module (`semel.flow…`) or a class of one (`semel.errors.…`)."""
PATH = re.compile(r"semel[/\\]\w+(?:[/\\]\w+)*\.py")
"""A file of Semel's own."""
TRACES = ("Traceback (most recent call last)", "  + Exception Group Traceback", "  File ")
"""How texts begin that are for people to read: frames name files and classes of the release that wrote them."""

PUBLIC_ERRORS = {
    f"semel.{name}"
    for name in (
        "ConfigError", "InvalidKey", "InvalidValue", "KeyConflict", "NotDecodable", "ResultExpired", "ExecutionFailed",
    )
}  # fmt: skip
"""Errors that people import from `semel`: their names are the public face, wherever the classes live."""
WORDS = {
    "semel.TaskFailed": "what ExecutionFailed was called when the oldest of these were recorded; no class any more",
    "semel.WorkerLost": "the error of what its worker died of; no class",
    "semel.Terminated": "the error of what was ended from outside; no class",
    "semel.TimedOut": "the error type by which a cluster tells a timeout from a failure; no class",
    "semel.Interrupted": "the error type by which a cluster tries an attempt again; no class",
    "semel.attempt": "memo field: earlier attempts of a task",
    "semel.begun": "memo field: it was to begin later, and has",
    "semel.reset": "memo field: it goes on from a row of the one before it",
    "semel.published": "memo fields: published values",
    "semel.tally": "memo field: duplicates that an entity found",
    "semel.conflict": "memo field: messages that an entity refused",
    "semel.version": "patch of Temporal: the version that a workflow began with",
    "semel.refused": "patch of Temporal: a start was refused",
    "semel.ordered": "patch of Temporal: what came together is put in order",
    "semel.conflicts": "patch of Temporal: signals under a key that stands for another are counted",
    "semel.unbegun": "patch of Temporal: it was cancelled before it began",
    "semel.close": "patch of Temporal: what becomes of children at the end",
    "semel.kept": "patch of Temporal: what others have joined goes on",
    "semel.abandoned": "patch of Temporal: a child that goes on alone",
    "semel.unawaited": "patch of Temporal: tasks that nobody waits for run to their end",
    "semel.followed": "patch of Temporal: a child is followed to the execution that it goes on as",
}
"""Words of the stored format that look like modules and are none, each with what it stands for."""
BEFORE = {"0007": {"semel.errors"}}
"""What a release did store before this was looked after: types of errors by their module. They are read as they are."""


def own_names(values: Iterable[Any]) -> set[str]:
    """Every name in some stored values that only Semel's own code could have given, without tracebacks."""
    found: set[str] = set()
    for value in values:
        for text in texts(value):
            found.update(DOTTED.findall(text))
            found.update(PATH.findall(text))
    return found


def texts(value: Any) -> Iterator[str]:
    """All texts inside of a stored value: JSON and base64 are opened, tracebacks left out."""
    match value:
        case bytes() | memoryview():
            yield from texts(bytes(value).decode(errors="replace"))
        case dict():
            for key, one in value.items():
                yield from texts(key)
                yield from () if key in ("traceback", "stackTrace") else texts(one)
        case list() | tuple():
            for one in value:
                yield from texts(one)
        case str():
            yield from _inside(value)
        case _:
            return


def _inside(text: str) -> Iterator[str]:
    if text.startswith(TRACES):
        return
    if text[:1] in ("{", "["):
        try:
            yield from texts(json.loads(text))
            return
        except ValueError:
            pass  # a text that only begins so
    yield text
    if len(text) >= 8 and re.fullmatch(r"[A-Za-z0-9+/]+=*", text):
        try:
            opened = base64.b64decode(text, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return
        yield from texts(opened)
