"""What the files of the corpus say is wrong with them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from semel.check import Report

CORPUS = Path(__file__).parent / "corpus"
_EXPECTED = re.compile(r"# expect: ((?:D\d\d ?)+)$")

Marks = Counter[tuple[str, int, str]]


def expected(folder: Path) -> Marks:
    """Every (file, line, rule) that a comment expects."""
    marks: Marks = Counter()
    for path in folder.rglob("*.py"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if found := _EXPECTED.search(line):
                marks.update((path.as_posix(), number, rule) for rule in found[1].split())
    return marks


def found(report: Report) -> Marks:
    """Every (file, line, rule) that was found."""
    return Counter((finding.path, finding.line, finding.rule.id) for finding in report.findings)
