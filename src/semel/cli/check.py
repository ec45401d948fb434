"""`semel check`: find workflow code that a replay would not repeat."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from semel import InvalidValue, __version__
from semel.check import Finding, Report, sarif
from semel.check import check as check_paths
from semel.cli.command import Debug, Exit, Json, guarded
from semel.cli.output import console, note, safe
from semel.records import to_json

Paths = Annotated[list[Path], typer.Argument(metavar="PATH", help="Files and folders to check.", show_default=False)]
Sarif = Annotated[
    str | None,
    typer.Option("--sarif", metavar="FILE", help="Write SARIF 2.1.0 to this file as well; - for stdout only."),
]


def check(paths: Paths, as_json: Json = False, sarif_file: Sarif = None, debug: Debug = False) -> None:
    """Find workflow code that a replay would not repeat: clocks, random numbers, I/O, threads, the order of sets.

    Checks Semel's workflows and entities, Temporal's workflow classes, and the functions they call in the given files.
    Warns of tasks that change something outside without an effect key. Nothing is imported or run. Exits with 6 if
    something was found that is more than a warning.
    """

    def work() -> Exit:
        report = _check(paths)
        if sarif_file is not None:
            _write_sarif(report, sarif_file)
        if as_json:
            sys.stdout.write(json.dumps(to_json(report), ensure_ascii=False, indent=2) + "\n")
        elif sarif_file != "-":
            _print(report)
        if not report.workflows:
            note("no workflow was found: give the paths of your workflows and of the functions they call")
        return Exit.FINDINGS if any(not finding.rule.warns for finding in report.findings) else Exit.OK

    guarded(work, debug, as_json)


def _check(paths: list[Path]) -> Report:
    """Check the paths, with a progress bar on a terminal."""
    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn())
    watched = sys.stderr.isatty()
    with Progress(*columns, console=console(sys.stderr), transient=True, disable=not watched) as bar:
        task = bar.add_task("reading", total=None)
        return check_paths(
            paths, progress=lambda done, of: bar.update(task, completed=done, total=of) if watched else None
        )


def _print(report: Report) -> None:
    out = console()
    for finding in report.findings:
        out.print(_line(finding), soft_wrap=True)
    style = "bold red" if report.findings else "green"
    out.print(Text(f"{report.summary}.", style), soft_wrap=True)


def _line(finding: Finding) -> Text:
    """`file:line:col: D01 wall-clock: what (reached from …); why; instead: …`"""
    place = f"{finding.path}:{finding.line}:{finding.column}: "
    way = f" ({finding.reached})" if finding.reached else ""
    parts = (
        (place, "bold"),
        (f"{finding.rule.label}: ", "red"),
        (finding.what, ""),
        (way, "cyan"),
        (f"; {finding.rule.why}", "dim"),
        ("; instead: ", "dim"),
        (finding.instead, "green"),
    )
    return Text.assemble(*((safe(text), style) for text, style in parts))


def _write_sarif(report: Report, name: str) -> None:
    text = json.dumps(sarif(report, __version__), ensure_ascii=False, indent=2) + "\n"
    if name == "-":
        sys.stdout.write(text)
        return
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidValue(f"--sarif {name!r} cannot be written: {error}. Give another file.") from error
