"""Refuses a second SQLite library on a file that an engine of this process has open.

POSIX locks belong to the process: whichever library closes the file drops the locks of the other, and commits that were
acknowledged are lost without an error. A file is recognised by its device and inode, so by links and other spellings
of its path too.

- An engine on Python's own `sqlite3`: connections of apsw are refused, through apsw's connection hooks. A finder on
  `sys.meta_path` puts the hook in when apsw is imported later.
- An engine on apsw: connections of `sqlite3` are refused, through an audit hook. Those of SQLAlchemy
  and aiosqlite are connections of `sqlite3`.

Both only while an engine on a file is open. What cannot be seen: `ATTACH`, other copies of SQLite (pysqlite3, libraries
written in C), and `open()` of the file itself, which drops locks when it is closed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.abc
import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from semel.errors import SqliteLibraryConflict

Identity = tuple[int, int]


@dataclass(slots=True)
class _Held:
    driver: str
    path: str
    holders: int


_held: Final[dict[Identity, _Held]] = {}
"""The files that engines of this process have open."""
_changing: Final = threading.Lock()
_anchors: Final[dict[Identity, Any]] = {}
_audit_hooks: Final[list[object]] = []


def hold(path: str, driver: str) -> Identity | None:
    """An engine has opened this file through this driver: refuse the other library from now on.

    None where there is no file, as for `:memory:`. Call release() with the answer when the engine has closed it.
    """
    identity = identify(path)
    if identity is None:
        return None
    with _changing:
        held = _held.setdefault(identity, _Held(driver, path, 0))
        held.holders += 1
        if driver == "apsw":
            _listen_to_sqlite3()
        else:
            _listen_to_apsw()
    return identity


def release(identity: Identity | None) -> None:
    """An engine has closed its file."""
    with _changing:
        held = None if identity is None else _held.get(identity)
        if identity is None or held is None:
            return
        held.holders -= 1
        if held.holders == 0:
            del _held[identity]
        if not any(other.driver == "sqlite3" for other in _held.values()):
            _stop_listening_to_apsw()


def refuse_foreign(path: str, driver: str) -> None:
    """Raise SqliteLibraryConflict if this process has the file open through the other library, as far as can be seen.

    To be asked before the file is opened: closing it again would already drop the locks of the other library.
    """
    identity = identify(path)
    if identity is None:
        return
    held = _held.get(identity)
    if held is not None:
        if held.driver != driver:
            raise _conflict(driver, held)
        return
    if driver == "sqlite3":
        foreign = _apsw_has_open(identity)
    else:
        foreign = _sqlite3_has_open(identity)
    if foreign:
        other = "apsw" if driver == "sqlite3" else "Python's own sqlite3"
        raise SqliteLibraryConflict(
            f"this process has {path!r} open through {other} already, and Semel was about to open it through {driver}: "
            "two SQLite libraries on one file in one process destroy it. Close that connection first, or use one "
            "library for both (setting sqlite_driver)."
        )


def describe(driver: str) -> str:
    """What is refused where an engine runs on this driver, for people."""
    other = "sqlite3 (SQLAlchemy, Django, aiosqlite)" if driver == "apsw" else "apsw"
    return f"connections of this process through {other} are refused"


def find_open_elsewhere(path: str, driver: str) -> str:
    """What of this process looks as if it could open the file past the guard; empty if nothing does."""
    others = [name for name in ("pysqlite3", "sqlcipher3", "pysqlcipher3", "libsql") if name in sys.modules]
    if others:
        return f"{' and '.join(others)} imported here: a copy of SQLite that is not seen if it opens {path!r}"
    if driver == "sqlite3" and "apsw" in sys.modules and _on_apsw_connection not in _apsw_hooks():
        return "apsw is imported, and its connection_hooks were replaced: its connections are not seen"
    return ""


def identify(database: Any) -> Identity | None:
    """The device and inode of a database as it is given to a library; None if there is no such file."""
    with contextlib.suppress(TypeError, ValueError):
        for path in _spellings(os.fsdecode(database)):
            with contextlib.suppress(OSError, ValueError):
                found = Path(path).stat()
                return found.st_dev, found.st_ino
    return None


def _spellings(database: str) -> Iterator[str]:
    if database in ("", ":memory:"):
        return
    yield database
    if database.startswith("file:"):
        yield unquote(urlsplit(database).path)


def _conflict(newcomer: str, held: _Held) -> SqliteLibraryConflict:
    return SqliteLibraryConflict(
        f"{newcomer} was about to open {held.path!r}, which a Semel engine of this process has open through "
        f"{held.driver}: two SQLite libraries on one file in one process destroy it. Open it through {held.driver}, "
        f"or in another process, or let Semel use the same library: sqlite_driver = {newcomer!r}."
    )


# Connections of sqlite3, while an engine is on apsw.


def _listen_to_sqlite3() -> None:
    if not _audit_hooks:  # an audit hook cannot be taken out again
        _audit_hooks.append(_on_audit_event)
        sys.addaudithook(_on_audit_event)


def _on_audit_event(event: str, args: tuple[Any, ...]) -> None:
    if event != "sqlite3.connect" or not _held:
        return
    identity = identify(args[0])
    held = None if identity is None else _held.get(identity)
    if held is not None and held.driver == "apsw":
        raise _conflict("sqlite3", held)


def _sqlite3_has_open(identity: Identity) -> bool:
    """Has a connection of sqlite3 the file open? One of another thread cannot be asked: it counts if it may be it."""
    opened = _descriptors(identity)
    if opened == 0:
        return False
    unknown = False
    for candidate in gc.get_objects():
        if issubclass(type(candidate), sqlite3.Connection):  # isinstance would run code of lazy objects of others
            try:
                cursor = candidate.cursor()
                cursor.row_factory = None
                files = [row[2] for row in cursor.execute("pragma database_list")]
            except sqlite3.ProgrammingError as error:  # closed, or of another thread
                unknown = unknown or "thread" in str(error)
            except sqlite3.Error:
                unknown = True
            else:
                if any(identify(file) == identity for file in files):
                    return True
    return unknown and (opened is None or opened > len(_apsw_connections(identity)))


def _descriptors(identity: Identity) -> int | None:
    """How many descriptors of this process are of the file; None where that is not known."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            count = 0
            for entry in Path(folder).iterdir():
                with contextlib.suppress(OSError, ValueError):
                    found = os.fstat(int(entry.name))
                    count += (found.st_dev, found.st_ino) == identity
            return count
    return None


# Connections of apsw, while an engine is on sqlite3.


class _ApswFinder(importlib.abc.MetaPathFinder):
    """Finds apsw as the others do, and has its connections listened to as soon as it is loaded."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "apsw":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._real.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        module.__loader__ = self._real
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        if _on_apsw_connection not in module.connection_hooks:
            module.connection_hooks.append(_on_apsw_connection)


_finder: Final = _ApswFinder()


def _listen_to_apsw() -> None:
    if "apsw" in sys.modules:
        if _on_apsw_connection not in _apsw_hooks():
            _apsw_hooks().append(_on_apsw_connection)
    elif _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _stop_listening_to_apsw() -> None:
    with contextlib.suppress(ValueError):
        sys.meta_path.remove(_finder)
    with contextlib.suppress(ValueError):
        _apsw_hooks().remove(_on_apsw_connection)


def _apsw_hooks() -> list[Any]:
    hooks: list[Any] = getattr(sys.modules.get("apsw"), "connection_hooks", [])
    return hooks


def _on_apsw_connection(connection: Any) -> None:
    identity = identify(connection.filename) if _held else None
    held = None if identity is None else _held.get(identity)
    if identity is None or held is None or held.driver == "apsw":
        return
    _keep_open(connection.filename, identity)
    raise _conflict("apsw", held)


def _keep_open(path: str, identity: Identity) -> None:
    """Have apsw's library believe that the file is locked, so that it does not close it when the connection is refused.

    It is open already when the hook is asked, and to close it would drop the locks of sqlite3, on which the engine
    relies. So this is never let go of either: a descriptor and a shared lock stay until the process ends.
    """
    if identity not in _anchors:
        apsw = sys.modules["apsw"]
        flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0]
        anchor = apsw.VFSFile("", path, flags)
        anchor.xLock(apsw.SQLITE_LOCK_SHARED)
        _anchors[identity] = anchor


def _apsw_connections(identity: Identity) -> list[Any]:
    listed = getattr(sys.modules.get("apsw"), "connections", None)
    found = []
    for connection in [] if listed is None else listed():
        with contextlib.suppress(Exception):  # closed meanwhile
            if identify(connection.filename) == identity:
                found.append(connection)
    return found


def _apsw_has_open(identity: Identity) -> bool:
    return bool(_apsw_connections(identity))


# A forked child has no engine: it must open its own, and locks are not inherited.
os.register_at_fork(after_in_child=_held.clear)
