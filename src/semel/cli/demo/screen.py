"""What one sees of the demo: lines as things happen, and below them, on a terminal, how things stand."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Group
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from semel.cli.paper import console

PARTS = ("requests", "worker", "execution", "provider")


class Screen:
    """Lines and a live table on a terminal; plain lines anywhere else."""

    def __init__(self) -> None:
        self.console = console(sys.stdout)
        self._parts = dict.fromkeys(PARTS, Text("-", "dim"))
        self._live: Live | None = None
        self._began = time.monotonic()

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show the table while the block runs, if there is a terminal to show it on."""
        self._began = time.monotonic()
        if not self.console.is_terminal:
            yield
            return
        with Live(self._table(), console=self.console, refresh_per_second=12, transient=True) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def say(self, text: str, style: str = "") -> None:
        """Something happened."""
        clock = Text(f"{time.monotonic() - self._began:5.1f} s  ", "dim")
        self.console.print(clock + Text(text, style), soft_wrap=True)

    def line(self, text: str = "", style: str = "") -> None:
        """A line without a time."""
        self.console.print(Text(text, style), soft_wrap=True)

    def stands(self, part: str, text: str, style: str = "") -> None:
        """How a part stands now."""
        self._parts[part] = Text(text, style)
        if self._live is not None:
            self._live.update(self._table())

    def _table(self) -> Group:
        table = Table.grid(padding=(0, 2))
        for part, text in self._parts.items():
            table.add_row(Text(part, "bold"), text)
        return Group(Rule(style="dim"), table)
