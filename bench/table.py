"""Figures and verdicts as tables: aligned for a terminal, or as Markdown."""

from collections.abc import Sequence

from bench.bars import Verdict
from bench.figures import Figures

Rows = list[list[str]]

FIGURE_HEAD = ["workload", "system", "median", "min – max", "runs", "unit", "settings"]
BAR_HEAD = ["workload", "system", "figure", "wanted", "measured", "holds"]


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def figure_rows(figures: Figures) -> Rows:
    rows = [
        [
            figure.work,
            figure.contender,
            number(figure.median),
            f"{number(min(figure.values))} – {number(max(figure.values))}",
            str(len(figure.values)),
            figure.unit,
            ", ".join(f"{name} {value}" for name, value in figure.settings.items()),
        ]
        for figure in figures
    ]
    missing = [
        [f"({part})", contender, "–", "–", "0", "", f"not measured: {why}"]
        for (contender, part), why in figures.missing.items()
    ]
    return rows + missing


def bar_rows(verdicts: Sequence[Verdict], kind: str) -> Rows:
    return [
        [
            verdict.bar.ours,
            verdict.bar.contender.name,
            "–" if verdict.figure is None else number(verdict.figure),
            verdict.bar.wanted,
            "–" if verdict.measured is None else number(verdict.measured),
            {True: "yes", False: "NO", None: "not measured"}[verdict.holds],
        ]
        for verdict in verdicts
        if verdict.bar.kind == kind
    ]


def text(head: Sequence[str], rows: Rows) -> str:
    lines = [list(head), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    padded = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join(line.rstrip() for line in padded)


def markdown(head: Sequence[str], rows: Rows) -> str:
    lines = [list(head), ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
