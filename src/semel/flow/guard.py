"""What workflow code may not do, refused while it runs.

Workflow code is run again from its journal, so whatever it does to the outside it would do again. Python announces
sockets, files, processes and more to audit hooks before they happen; one hook for the whole process listens, and
refuses them on a thread inside `with guard(...)`. It is a help against mistakes, not a wall: what Python does not
announce passes (clocks, dice, drivers written in C), and is the static checker's part.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from types import FrameType
from typing import Any, Final

from semel.errors import Forbidden

log = logging.getLogger("semel.workflow")
_NETWORK: Final = "Do it in a task: `await ctx.execute_task(...)` records the answer."
_FILES: Final = "Read or write files in a task, and return what the workflow needs of them."
_PROCESS: Final = "Run it in a task."
_THREAD: Final = "Use asyncio.gather or asyncio.TaskGroup: they run in the same order at every replay."
_SLEEP: Final = "`await asyncio.sleep(...)` instead: a durable timer that outlives the worker."

_EVENTS: Final = {
    "open": _FILES,
    "builtins.input": _PROCESS,
    "sqlite3.connect": "Use the database in a task.",
    "subprocess.Popen": _PROCESS,
    "pty.spawn": _PROCESS,
    "webbrowser.open": _PROCESS,
    "time.sleep": _SLEEP,
    "urllib.Request": _NETWORK,
    "_thread.start_new_thread": _THREAD,
    "_thread.start_joinable_thread": _THREAD,
    **dict.fromkeys(("glob.glob", "pathlib.Path.glob", "pathlib.Path.rglob"), _FILES),
    **dict.fromkeys(
        (
            "os.chdir",
            "os.chflags",
            "os.chmod",
            "os.chown",
            "os.fwalk",
            "os.link",
            "os.listdir",
            "os.listdrives",
            "os.lockf",
            "os.mkdir",
            "os.remove",
            "os.removexattr",
            "os.rename",
            "os.rmdir",
            "os.scandir",
            "os.setxattr",
            "os.symlink",
            "os.truncate",
            "os.utime",
            "os.walk",
        ),
        _FILES,
    ),
    **dict.fromkeys(
        (
            "os.exec",
            "os.fork",
            "os.forkpty",
            "os.kill",
            "os.killpg",
            "os.posix_spawn",
            "os.putenv",
            "os.spawn",
            "os.startfile",
            "os.startfile/2",
            "os.system",
            "os.unsetenv",
        ),
        _PROCESS,
    ),
}
_FAMILIES: Final = {
    "socket": _NETWORK,
    "http": _NETWORK,
    "ftplib": _NETWORK,
    "imaplib": _NETWORK,
    "poplib": _NETWORK,
    "smtplib": _NETWORK,
    "nntplib": _NETWORK,
    "telnetlib": _NETWORK,
    "shutil": _FILES,
    "tempfile": _FILES,
}
"""Every event that begins with the word and a dot."""

_BYSTANDERS: Final = frozenset(
    {
        "importlib",
        "_frozen_importlib",
        "_frozen_importlib_external",
        "zipimport",  # an import, and what it brings
        "linecache",
        "tokenize",
        "traceback",
        "warnings",  # showing lines of source
        "logging",  # what a handler does with a record is the operator's choice
        "zoneinfo",  # time zones are read from files
        "weakref",  # finalizers of other people's objects, run here by chance
        "bdb",
        "pdb",
        "coverage",
        "pydevd",
        "_pydevd_bundle",  # debuggers, and what measures tests
    }
)
"""Modules on whose behalf anything may happen: none of it is the workflow's doing."""

_guarded: Final[dict[int, tuple[str, FrameType]]] = {}
"""By thread: who runs there, and the frame of the `with`. Almost always empty, which is what the hook asks first."""
_hooks: Final[list[Callable[[str, tuple[Any, ...]], None]]] = []


class _Guard:
    __slots__ = ("_outer", "_where")

    def __init__(self, where: str) -> None:
        self._where = where
        self._outer: tuple[str, FrameType] | None = None

    def __enter__(self) -> None:
        if not _hooks:
            _install()
        me = get_ident()
        running = (self._where, sys._getframe(1))  # asked for before the guard is up: it is an event too
        self._outer = _guarded.get(me)
        _guarded[me] = running

    def __exit__(self, *exc: object) -> None:
        if self._outer is None:
            _guarded.pop(get_ident(), None)
        else:
            _guarded[get_ident()] = self._outer
            self._outer = None


def guard(where: str) -> _Guard:
    """`with guard("workflow 'process_order'"):` on the thread that runs workflow code, for one synchronous turn.

    Inside, a forbidden call raises Forbidden at its line, and has not happened. `where` says whose code it is. Other
    threads are not concerned.
    """
    return _Guard(where)


def refuse_app(what: str) -> None:
    """Raise Forbidden where workflow code runs on this thread: it would ask again each time it is replayed."""
    running = _guarded.get(get_ident())
    if running is not None:
        where, outermost = running
        line = _culprit(_stack(sys._getframe(1), outermost))
        raise refusal(
            f"{where}: {what}{_at(line)} asks from outside, and again at each replay. In workflow code it is ctx that "
            "asks: ctx.enqueue, ctx.execute_task, ctx.start_workflow; what only reads belongs in a task.",
            what,
            line,
        )


def refusal(message: str, what: str, line: str) -> Forbidden:
    """The error, which is also in the log: `except Exception` in a workflow would hide it."""
    error = Forbidden(message, what=what, where=line)
    log.warning("refused: %s", error.message)
    return error


def _install() -> None:
    """Once per process: an audit hook cannot be taken out again."""
    _hooks.append(_hook)
    sys.addaudithook(_hook)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not _guarded:
        return
    me = get_ident()
    running = _guarded.get(me)
    if running is None:
        return
    instead = _instead(event)
    if instead is None:
        return
    del _guarded[me]  # looking around may itself open files
    try:
        where, outermost = running
        stack = _stack(sys._getframe(1), outermost)
        if not _excused(event, args, stack):
            what = _spelled(event, args)
            line = _culprit([*stack, outermost])
            raise refusal(f"{where}: {what}{_at(line)} belongs in a task. {instead}", what, line)
    finally:
        _guarded[me] = running


@functools.lru_cache(maxsize=512)
def _instead(event: str) -> str | None:
    """What to do instead; None: the event is harmless."""
    return _EVENTS.get(event) or _FAMILIES.get(event.partition(".")[0])


def _stack(frame: FrameType | None, outermost: FrameType) -> list[FrameType]:
    """From the call outwards, as far as the guard: what is around that is not the workflow's."""
    frames = []
    while frame is not None and frame is not outermost:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _excused(event: str, args: tuple[Any, ...], stack: list[FrameType]) -> bool:
    for frame in stack:
        module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if module in _BYSTANDERS or frame.f_code.co_name == "__del__":
            return True
    return event == "open" and _is_time_zone(args[0])


def _is_time_zone(path: object) -> bool:
    """ZoneInfo opens its file from C: no frame tells."""
    zoneinfo = sys.modules.get("zoneinfo")
    return zoneinfo is not None and isinstance(path, str) and path.startswith(tuple(zoneinfo.TZPATH) or ("\0",))


def _spelled(event: str, args: tuple[Any, ...]) -> str:
    """`open('/etc/hosts')`: the event reads like the call; of its arguments only the first is telling."""
    name = event.partition("/")[0].removesuffix(".__new__")
    if not args or not isinstance(args[0], str | bytes | int | float):
        return f"{name}()"
    first = repr(args[0])
    return f"{name}({first if len(first) <= 80 else first[:79] + '…'})"


def _culprit(stack: list[FrameType]) -> str:
    """The user's line: nearest to the call, but not in a library; else the outermost of a library; else none."""
    paths = sysconfig.get_paths()
    libraries = tuple({paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    machinery = (str(Path(__file__).parents[1]), "<frozen", str(Path(asyncio.__file__).parent))
    theirs = [frame for frame in stack if not frame.f_code.co_filename.startswith(machinery)]
    own = [frame for frame in theirs if not frame.f_code.co_filename.startswith(libraries)]
    frame = own[0] if own else theirs[-1] if theirs else None
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _at(line: str) -> str:
    return f" at {line}" if line else ""
