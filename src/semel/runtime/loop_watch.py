"""Notices code that blocks the event loop of a worker, and names it.

The loop sets a mark twice a second. A thread looks whether the mark is old, and only then at what the loop's thread is
doing: whose task it runs, and at which line.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Final

from semel.define.context import Running
from semel.engine.events import WorkerEvent, WorkerEventType
from semel.flow.instance import Instance
from semel.runtime.events import Events

log = logging.getLogger("semel.worker")
LOOK_EVERY: Final = 0.5
"""Seconds between two marks, and between two looks."""
BLOCKED_AFTER: Final = 1.0
"""Seconds beyond the time of a mark from which on the loop counts as blocked."""
SAY_AGAIN_AFTER: Final = 60.0
"""Seconds after which the same line is named again."""
MOST_LINES: Final = 1000
PACKAGE: Final = str(Path(__file__).parents[1])
DEPTH: Final = 500
"""Frames that are looked at."""


class LoopWatch:
    """Watches the running event loop, between `start` and `stop`."""

    def __init__(self, events: Events, blocked_after: float = BLOCKED_AFTER) -> None:
        self._events = events
        self._blocked_after = blocked_after
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._mark = time.monotonic()
        self._ended = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._said: dict[str, float] = {}

    def start(self) -> None:
        """Begin to watch."""
        self._set_mark()
        threading.Thread(target=self._watch, name="semel-loop-watch", daemon=True).start()

    def stop(self) -> None:
        """Watch no longer."""
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()

    def _set_mark(self) -> None:
        self._mark = time.monotonic()
        self._timer = self._loop.call_later(LOOK_EVERY, self._set_mark)

    def _watch(self) -> None:
        looked = time.monotonic()
        while not self._ended.wait(LOOK_EVERY):
            now = time.monotonic()
            stalled = now - looked > LOOK_EVERY + self._blocked_after  # the whole process stood still, not the loop
            looked = now
            blocked = now - self._mark - LOOK_EVERY
            if blocked >= self._blocked_after and not stalled:
                with contextlib.suppress(Exception):  # a thread whose frames change while it is looked at
                    self._name_culprit(blocked)

    def _name_culprit(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._thread_id)
        if frame is None:
            return
        whose, line = describe_stack(frame)
        now = time.monotonic()
        if now < self._said.get(line, 0.0):
            return
        if len(self._said) >= MOST_LINES:
            self._said.clear()
        self._said[line] = now + SAY_AGAIN_AFTER
        event = WorkerEvent(
            type=WorkerEventType.LOOP_BLOCKED,
            kind=whose.kind,
            name=whose.name,
            key=whose.key,
            execution=whose.execution,
            attempt=whose.attempt,
            seconds=seconds,
            reason=line,
        )
        subject = f"{whose.kind} {whose.name} {whose.key!r}" if whose.name else "code outside of any task"
        log.warning(
            "the event loop is blocked for %.1f s by %s at %s: nothing else runs meanwhile, not even the worker's "
            "heartbeat. Make the function a plain `def`, which runs in a thread, or call asyncio.to_thread",
            seconds,
            subject,
            line,
        )
        if self._events.observed:
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                self._loop.call_soon_threadsafe(self._events.emit, event)


class Culprit:
    """Whose code it is; without a name: nobody's that is known."""

    def __init__(self) -> None:
        self.kind = self.name = self.execution = ""
        self.key: str | None = None
        self.attempt = 0


def describe_stack(frame: FrameType) -> tuple[Culprit, str]:
    """Whose code the innermost frame belongs to, and the line of theirs that led there: `file:line in function`."""
    whose, line, innermost = Culprit(), "", frame
    current: FrameType | None = frame
    for _ in range(DEPTH):
        if current is None:
            break
        ours = current.f_code.co_filename.startswith(PACKAGE)
        if not ours and not line and not _is_library(current):
            line = _format_line(current)
        if ours and _identify(whose, current):
            break
        current = current.f_back
    return whose, line or _format_line(innermost)


def _identify(whose: Culprit, frame: FrameType) -> bool:
    """Does this frame of ours run somebody's code? Then it is known whose."""
    values = frame.f_locals
    running = values.get("running")
    if isinstance(running, Running):
        whose.kind, whose.name, whose.execution = running.kind, running.name, running.id
        whose.key, whose.attempt = running.workflow_id or running.key, running.attempt
        return True
    instance = values.get("self")
    if isinstance(instance, Instance):
        whose.kind, whose.name = instance.workflow.kind, instance.who.name
        whose.key, whose.execution = instance.who.key, instance.who.id
        return True
    return False


def _is_library(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    return path.startswith(("<", _STANDARD_LIBRARY)) or "site-packages" in path


_STANDARD_LIBRARY: Final = str(Path(asyncio.__file__).parents[1])


def _format_line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
