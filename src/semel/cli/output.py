"""What commands print: tables for people or JSON for programs on stdout, everything else on stderr."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import IO, Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table
from rich.text import Text

from semel import Status
from semel.contract.durations import format_duration
from semel.records import to_json
from semel.settings import Settings, load

PIPED_WIDTH = 200
"""The width of lines that do not go to a terminal."""

_BY_APP = ("worker", "replay", "apply", "reconcile")
"""Commands that take an app instead of --url."""

STYLES = {
    Status.PENDING: "cyan",
    Status.RUNNING: "bold blue",
    Status.WAITING: "cyan",
    Status.COMPLETED: "green",
    Status.FAILED: "bold red",
    Status.CANCELLED: "yellow",
    Status.TIMED_OUT: "red",
}


def console(stream: IO[str] | None = None) -> Console:
    """A console that prints text as it is, without markup or automatic colours."""
    stream = stream or sys.stdout
    width = None if stream.isatty() else PIPED_WIDTH
    return Console(file=stream, markup=False, highlight=False, emoji=False, width=width)


def complain(line: str) -> None:
    """One line on stderr."""
    console(sys.stderr).print(Text(safe(line), "red"), soft_wrap=True)


def print_error(message: str, *, type: str, code: str | None, exit_code: int, **more: Any) -> None:
    """An error for programs: one line of JSON on stderr, after whatever notes there are."""
    error = {"type": type, "code": code, "message": message, "exit_code": exit_code, **more}
    sys.stderr.write(json.dumps({"error": error}, ensure_ascii=False) + "\n")
    sys.stderr.flush()


def note(line: str) -> None:
    """A remark on stderr, out of the way of what is piped on."""
    console(sys.stderr).print(Text(safe(line), "dim"), soft_wrap=True)


def safe(text: str) -> str:
    """Text without the control characters that could take over a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


class Output:
    """The output of one command."""

    def __init__(self, as_json: bool, settings: Settings) -> None:
        self.as_json = as_json
        self._settings = settings

    def data(self, value: Any) -> None:
        """Print the answer as JSON."""
        sys.stdout.write(json.dumps(to_json(value), ensure_ascii=False, indent=2) + "\n")
        sys.stdout.flush()

    def line(self, text: str = "", style: str = "") -> None:
        """Print a line for people."""
        console().print(Text(safe(text), style), soft_wrap=True)

    def next(self, verb: str, *arguments: str) -> None:
        """Suggest the next command, on the same database."""
        words = ["semel", verb, *(shlex.quote(argument) for argument in arguments)]
        self.line(f"  next: {' '.join(words)}{'' if verb in _BY_APP else self._place()}", "dim")

    def _place(self) -> str:
        """The options for the same database, if it is not the default one; never a password."""
        default = load("semel.toml")
        url, namespace = self._settings.url, self._settings.namespace
        shown = '"$SEMEL_URL"' if urlsplit(url).password else shlex.quote(url)
        return (f" --url {shown}" if url != default.url else "") + (
            f" --namespace {namespace}" if namespace != default.namespace else ""
        )

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
        """Print rows under headings; the first column is never wrapped, since people copy it."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for at, column in enumerate(columns):
            table.add_column(column, no_wrap=at == 0, overflow="fold")
        for row in rows:
            table.add_row(*(safe(cell) if isinstance(cell, str) else cell for cell in row))
        console().print(table)


def status_text(status: Status) -> Text:
    """A status in its colour."""
    return Text(status.value, STYLES[status])


def when(moment: datetime | None) -> str:
    """A time in UTC, to the second."""
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(moment: datetime) -> str:
    """How long ago, in one unit."""
    return f"{_rough(datetime.now(UTC) - moment)} ago"


def ahead(moment: datetime) -> str:
    """How long until then, in one unit."""
    return f"in {_rough(moment - datetime.now(UTC))}"


def _rough(span: timedelta) -> str:
    seconds = span.total_seconds()
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def elapsed(span: timedelta) -> str:
    """A span to the millisecond while it is short, then to the second."""
    seconds = span.total_seconds()
    return f"{seconds:.3f}s" if seconds < 60 else format_duration(timedelta(seconds=round(seconds)))


def brief(text: str, most: int) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
