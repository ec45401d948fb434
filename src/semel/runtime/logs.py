"""Logging as `semel worker` sets it up: the execution on each record, text or JSON, written in batches.

Nothing here is in effect by itself: a library does not change the logging of its host. `semel worker` calls
`configure_logging`; whoever runs a worker in a process of their own may call it too, or add an `ExecutionFilter` to
their own handlers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal, TextIO

import msgspec

from semel.define.context import current_or_none
from semel.flow.loop import FlowLoop

GATHER: Final = 0.05
"""Seconds for which lines are gathered before they are written; warnings and errors do not wait."""
MOST_WAITING: Final = 10_000
"""Lines that are gathered at most; whoever logs more writes them himself, or they are dropped if nobody reads them."""
WRITE_WITHIN: Final = 2.0
"""Seconds to wait for another thread that writes; a pipe that nobody reads must not hold up everything."""
FIELDS: Final = {
    "execution_id": "execution",
    "execution_key": "key",
    "execution_name": "name",
    "execution_attempt": "attempt",
}
"""Attributes of a record, and how they are called in JSON: a record's own `name` is that of its logger."""
_running_loop: Final[Any] = asyncio.events._get_running_loop
_STANDARD: Final = {*vars(logging.makeLogRecord({})), "message", "asctime", *FIELDS}


class ExecutionFilter(logging.Filter):
    """Marks records that are made inside a task, a step or a workflow, and drops those that a replay repeats.

    Sets `execution_id`, `execution_key`, `execution_name` and `execution_attempt` on each record, None outside of
    executions. Add it to a handler: `handler.addFilter(semel.ExecutionFilter())`.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """False: workflow code is replayed, and this was logged before."""
        fields = vars(record)
        if "execution_attempt" in fields:
            return True
        loop = _running_loop()
        found: tuple[object, ...] = (None, None, None, None)
        if isinstance(loop, FlowLoop):
            if loop.replaying:
                return False
            if (who := loop.who) is not None:
                found = (who.id, who.key, who.name, None)
        elif (running := current_or_none()) is not None:
            key = running.workflow_id if running.kind == "step" else running.key
            found = (running.id, key, running.name, running.attempt)
        for field, value in zip(FIELDS, found, strict=True):
            fields.setdefault(field, value)
        return True


class LineFormatter(logging.Formatter):
    """Makes a line of a record, or of what a record would have said."""

    TIME: ClassVar[str] = ""
    """A second, as strftime takes it."""

    def __init__(self) -> None:
        super().__init__()
        self._second = (0, "")

    @abstractmethod
    def format_line(
        self,
        created: float,
        level: str,
        logger: str,
        message: str,
        execution: object,
        key: object,
        name: object,
        attempt: object,
    ) -> str:
        """A line without traceback and further fields."""

    def _time(self, created: float) -> str:
        """The second, which is written once for all records that are made in it."""
        second, written = self._second
        if second != int(created):
            second = int(created)
            written = time.strftime(self.TIME, self._clock(second))
            self._second = (second, written)
        return written

    @staticmethod
    def _clock(second: int) -> time.struct_time:
        return time.localtime(second)


class TextFormatter(LineFormatter):
    """One line for people: time, level, logger, message, and the execution it was made in."""

    TIME = "%Y-%m-%d %H:%M:%S"

    def format_line(
        self,
        created: float,
        level: str,
        logger: str,
        message: str,
        execution: object,
        key: object,
        name: object,
        attempt: object,
    ) -> str:
        """See LineFormatter. A worker's own lines name their execution in words."""
        line = f"{self._time(created)},{int(created % 1 * 1000):03d} {level:<7} {logger}: {message}"
        if execution and logger != "semel.worker":
            line += f" [{name}{'' if key is None else f' {key!r}'} {execution}]"
        return line

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        line = self.format_line(record.created, record.levelname, record.name, record.getMessage(), *_marks_of(record))
        return line if _is_plain(record) else f"{line}\n{_trace(self, record)}"


class JsonFormatter(LineFormatter):
    """One JSON object in one line: time, level, logger, message, execution, key, name, attempt, and `extra` fields."""

    TIME = "%Y-%m-%dT%H:%M:%S"

    def __init__(self) -> None:
        super().__init__()
        self._encode = msgspec.json.Encoder(enc_hook=repr).encode

    @staticmethod
    def _clock(second: int) -> time.struct_time:
        return time.gmtime(second)

    def format_line(
        self,
        created: float,
        level: str,
        logger: str,
        message: str,
        execution: object,
        key: object,
        name: object,
        attempt: object,
    ) -> str:
        """See LineFormatter."""
        return self._dump(self._object(created, level, logger, message, execution, key, name, attempt))

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        fields = vars(record)
        told = self._object(record.created, record.levelname, record.name, record.getMessage(), *_marks_of(record))
        if not _is_plain(record):
            told["exception"] = _trace(self, record)
        for name in fields.keys() - _STANDARD:
            told.setdefault(name, fields[name])
        return self._dump(told)

    def _object(self, created: float, level: str, logger: str, message: str, *marks: object) -> dict[str, Any]:
        execution, key, name, attempt = marks
        return {
            "time": f"{self._time(created)}.{int(created % 1 * 1000):03d}Z",
            "level": level,
            "logger": logger,
            "message": message,
            "execution": execution,
            "key": key,
            "name": name,
            "attempt": attempt,
        }

    def _dump(self, told: dict[str, Any]) -> str:
        try:
            return self._encode(told).decode()
        except Exception:  # a value of `extra` that cannot be made JSON, or text that is not Unicode
            plain = {str(name): _printable(value) for name, value in told.items()}
            return self._encode(plain).decode()


class BatchedHandler(logging.Handler):
    """Writes lines to a stream from a thread of its own, many at a time, so that logging does not wait for a terminal
    or a pipe.

    Warnings and errors are written at once, after what came before. A process that is killed loses the lines of its
    last moment; `flush`, which Python calls at exit, writes them.
    """

    formatter: LineFormatter

    def __init__(self, formatter: LineFormatter, stream: TextIO | None = None) -> None:
        super().__init__()
        self.formatter = formatter
        self._stream = stream
        self._lines: deque[str] = deque()
        self._writing = threading.Lock()
        self._some = threading.Event()
        self._writer: threading.Thread | None = None
        self._stuck = False
        """Is a thread known to hang in writing, since nobody reads what it writes?"""
        self._dropped = 0

    def handle(self, record: logging.LogRecord) -> bool:
        """See logging.Handler; without its lock, since gathering a line needs none."""
        passed = self.filter(record)
        if passed:
            self.emit(passed if isinstance(passed, logging.LogRecord) else record)
        return bool(passed)

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        self.gather([line], at_once=record.levelno >= logging.WARNING)

    def gather(self, lines: Sequence[str], *, at_once: bool = False) -> None:
        """Have lines written soon, or at once after what came before."""
        if len(self._lines) >= MOST_WAITING:
            self.flush()
            if len(self._lines) >= MOST_WAITING:
                self._dropped += len(lines)
                return
        self._lines.extend(lines)
        if at_once:
            self.flush()
        elif not self._some.is_set():
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_forever, name="semel-log", daemon=True)
                self._writer.start()
            self._some.set()

    def _write_forever(self) -> None:
        while True:
            self._some.wait()
            time.sleep(GATHER)
            self._some.clear()
            self.flush()

    def flush(self) -> None:
        """Write what was gathered. A stream that takes nothing is waited for once, and not for long."""
        if not self._writing.acquire(timeout=0 if self._stuck else WRITE_WITHIN):
            self._stuck = True
            return
        self._stuck = False
        try:
            lines = []
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                said = f"{dropped} lines of the log were dropped: nobody read them"
                lines.append(self.formatter.format_line(time.time(), "WARNING", __name__, said, None, None, None, None))
            with contextlib.suppress(IndexError):
                while True:
                    lines.append(self._lines.popleft())
            if not lines:
                return
            stream = sys.stderr if self._stream is None else self._stream
            with contextlib.suppress(Exception):  # nobody reads it any more
                lines.append("")
                stream.write("\n".join(lines))
                stream.flush()
        finally:
            self._writing.release()


def configure_logging(
    level: int | str | None = None, format: Literal["text", "json"] | None = None, *, stream: TextIO | None = None
) -> None:
    """Log to stderr as `semel worker` does, with the execution on each record that is made inside of one.

    Where the app has set up logging itself, its handlers and levels stay as they are, unless a `format` or a `level` is
    asked for. Without either: text, from INFO on.
    """
    root = logging.getLogger()
    theirs = bool(root.handlers)
    if not theirs or format is not None:
        ours = BatchedHandler(JsonFormatter() if format == "json" else TextFormatter(), stream)
        for old in root.handlers[:]:
            root.removeHandler(old)
        root.addHandler(ours)
    if level is not None or not theirs:
        root.setLevel(logging.INFO if level is None else level.upper() if isinstance(level, str) else level)
    else:
        logging.getLogger("semel").setLevel(logging.INFO)
    for handler in root.handlers:
        if not any(isinstance(one, ExecutionFilter) for one in handler.filters):
            handler.addFilter(ExecutionFilter())


def only_handler(log: logging.Logger) -> BatchedHandler | None:
    """The handler that `configure_logging` made, if records of this logger go there and nowhere else, unchanged."""
    found: list[logging.Handler] = []
    logger: logging.Logger | None = log
    if log.filters or logging.getLogRecordFactory() is not logging.LogRecord:
        return None
    while logger is not None:
        found += logger.handlers
        logger = logger.parent if logger.propagate else None
    handler = found[0] if len(found) == 1 else None
    if not isinstance(handler, BatchedHandler) or handler.level > logging.INFO:
        return None
    return handler if all(type(one) is ExecutionFilter for one in handler.filters) else None


def _marks_of(record: logging.LogRecord) -> tuple[object, ...]:
    fields = vars(record)
    return tuple(map(fields.get, FIELDS))


def _is_plain(record: logging.LogRecord) -> bool:
    return not (record.exc_info or record.exc_text or record.stack_info)


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info and not record.exc_text:
        record.exc_text = formatter.formatException(record.exc_info)
    parts = [record.exc_text, record.stack_info and formatter.formatStack(record.stack_info)]
    return "\n".join(part for part in parts if part)


def _printable(value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    try:
        return str(value).encode("utf-8", "backslashreplace").decode()
    except Exception:
        return f"(a {type(value).__name__} that cannot be printed)"
