"""Keys: what may be one, and the keys that Semel derives.

Formats are versioned and never change silently: a new format would make every old run look new.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from semel.errors import InvalidKey, InvalidValue

KEY_LENGTH: Final = 255
ID_LENGTH: Final = 1100
"""Of an execution's id; a cluster's holds the id of a workflow that may have a thousand characters."""
TEXT_LENGTH: Final = 1000
KINDS: Final = ("task", "workflow", "entity")
KEY_SCOPES: Final = ("namespace", "function", "queue")
"""Where a task's key counts. Without a word of it: in the whole namespace, whichever function it is for."""
EFFECT_FORMAT: Final = "semel1"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_FORBIDDEN: Final = frozenset({"Cc", "Cs", "Cn", "Zl", "Zp"})


def check_key(key: object, what: str = "task_id", length: int = KEY_LENGTH) -> str:
    """The key as it is stored (NFC), or InvalidKey that says what is wrong with it."""
    if not isinstance(key, str):
        raise InvalidKey(f"{what}={key!r} is a {type(key).__name__}: give a str.")
    if key.isascii() and key.isprintable() and 0 < len(key) <= length and key[0] != " " != key[-1]:
        return key
    if not key.strip():
        none = ", or none" if what in ("task_id", "dedup_key") else ""
        raise InvalidKey(f"{what}={key!r} is blank: give a business key such as 'charge:order-456'{none}.")
    if key != key.strip():
        raise InvalidKey(f"{what}={key!r} begins or ends with white space: strip it.")
    for at, char in enumerate(key):
        if unicodedata.category(char) in _FORBIDDEN:
            raise InvalidKey(
                f"{what}={key[:40]!r} holds {char!a} at position {at}: control characters, surrogates "
                "and unassigned code points cannot be part of a key."
            )
    key = unicodedata.normalize("NFC", key)
    if len(key) > length:
        raise InvalidKey(
            f"{what}={key[:40] + '…'!r} has {len(key)} characters; a key has at most {length}. "
            "Hash the long part of it."
        )
    return key


def check_name(name: object, what: str, length: int = 100) -> str:
    """Names of queues, tasks, namespaces, effects: letters, digits, `_`, `.`, `-`."""
    if not isinstance(name, str) or len(name) > length or not _NAME.fullmatch(name):
        raise InvalidValue(
            f"{what}={name!r}: use 1 to {length} letters, digits, '_', '.' or '-', "
            "beginning with a letter, a digit or '_'."
        )
    return name


def check_kind(kind: str) -> str:
    """The kind of an execution: a misspelt one would find nothing, which looks as if nothing were there."""
    if kind not in KINDS:
        raise InvalidValue(f"kind={kind!r}: use {', '.join(KINDS[:-1])} or {KINDS[-1]}.")
    return kind


def check_key_scope(scope: object) -> str:
    """Where the keys of a task count: one of KEY_SCOPES."""
    if scope not in KEY_SCOPES:
        raise InvalidValue(f"key_scope={scope!r}: use {', '.join(map(repr, KEY_SCOPES[:-1]))} or {KEY_SCOPES[-1]!r}.")
    return str(scope)


def scoped_key(scope: str, name: str, key: str) -> str:
    """The key as it is stored: `function:charge:order-456`, `queue:payments:order-456`, or as it is.

    `name` is that of the function or of the queue. A name has no ':' in it, so two scopes never share a key.
    """
    if scope == "namespace":
        return key
    stored = f"{scope}:{name}:{key}"
    if len(stored) > KEY_LENGTH:
        raise InvalidKey(
            f"task_id={key[:40] + '…'!r}: with key_scope={scope!r} it is stored as {stored[:40] + '…'!r}, which has "
            f"{len(stored)} characters; a key has at most {KEY_LENGTH}. Hash the long part of it."
        )
    return stored


def check_queues(queues: Iterable[str] | None) -> None:
    """The queues that a worker is to serve; None is all of them."""
    if queues is None:
        return
    if isinstance(queues, str):
        raise InvalidValue(f"queues={queues!r} is a str: give a list, such as [{queues!r}].")
    if not [check_name(queue, "queue") for queue in queues]:
        raise InvalidValue(
            "queues is empty, so the worker would do nothing: name a queue, or leave it out to serve all."
        )


def check_attribute(name: object, value: object) -> tuple[str, str]:
    """A search attribute as it is stored: a name, and a value that is written as a key is."""
    value = check_key(value, f"search attribute {name!r}")
    return check_name(name, "search attribute"), value


def check_text(text: object, what: str) -> str:
    """A remark that every engine can hold."""
    if not isinstance(text, str):
        raise InvalidValue(f"{what}={text!r} is a {type(text).__name__}: give a str.")
    if len(text) > TEXT_LENGTH:
        raise InvalidValue(f"{what}={text[:40]!r}… has {len(text):,} characters: use at most {TEXT_LENGTH:,}.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(
            f"{what}={text[:40]!a} holds a lone surrogate at position {error.start}: it is not valid Unicode text."
        ) from None
    return text


def effect_key(namespace: str, kind: str, subject: str, generation: int, name: str) -> str:
    """The key of one outside effect: business key + name, the same on every attempt.

    `generation` counts completed predecessors under the key: a deliberate new run after a
    completed one is a new effect, a run after a failed one is the same effect tried again.
    """
    check_name(name, "effect name")
    if generation:
        # '#' is in no name, so that no business key with a ':' in it can read like a generation.
        name = f"{name}#{generation + 1}"
    text = f"{EFFECT_FORMAT}:{namespace}:{kind}:{subject}:{name}"
    if len(text) <= KEY_LENGTH:
        return text
    digest = hashlib.sha256(subject.encode()).hexdigest()
    return f"{EFFECT_FORMAT}:{hashlib.sha256(namespace.encode()).hexdigest()[:16]}:{kind}:{digest}:{name}"
