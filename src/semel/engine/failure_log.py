"""How failures are logged: those of tasks that nobody awaits, and those that repeat."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Any, Final

from semel.errors import SemelError, phrase, phrase_with_type

MOST_SUBJECTS: Final = 1000


def log_failure(task: asyncio.Task[Any], log: logging.Logger, what: str) -> None:
    """Log it once, as "`what`: why", should this task fail.

    Without it the event loop says "Task exception was never retrieved" whenever the task is collected.
    """

    def done(ended: asyncio.Task[Any]) -> None:
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            log.warning("%s: %s", what, phrase(error) if isinstance(error, SemelError) else phrase_with_type(error))

    task.add_done_callback(done)


def expect_failure(task: asyncio.Task[Any]) -> None:
    """Let this task fail silently: whoever needs it asks it, and those who waited for it may have given up."""
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


class RepeatedFailures:
    """Knows which failure of each subject was last logged, so that a traceback is not logged again and again.

    Bounded: of many subjects, the ones that failed longest ago are forgotten, and logged in full once more.
    """

    def __init__(self) -> None:
        self._last: OrderedDict[str, tuple[str, str, int]] = OrderedDict()

    def is_repeated(self, subject: str, error: BaseException) -> bool:
        """Did this subject last fail with the same type of error at the same line? Remembers this failure."""
        cause = _cause(error)
        repeated = self._last.pop(subject, None) == cause
        self._last[subject] = cause
        if len(self._last) > MOST_SUBJECTS:
            self._last.popitem(last=False)
        return repeated

    def log(self, log: logging.Logger, subject: str, error: BaseException, message: str) -> None:
        """Log `message` with the traceback, or on one line if this failure was logged before."""
        if self.is_repeated(subject, error):
            log.error("%s, as before: %s", message, phrase_with_type(error))
        else:
            log.error("%s", message, exc_info=error)


def _cause(error: BaseException) -> tuple[str, str, int]:
    trace, place = error.__traceback__, ("", 0)
    while trace is not None:
        place, trace = (trace.tb_frame.f_code.co_filename, trace.tb_lineno), trace.tb_next
    return (type(error).__qualname__, *place)
