"""`# semel: allow[RULE] reason` silences one rule in one place; a comment that does not is found itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from semel.check import check

FLOW = """import time, semel
app = semel.App()
@app.workflow
async def flow(ctx: semel.Context) -> None:
    {line}
"""


def names(folder: Path, line: str) -> list[str]:
    (folder / "flow.py").write_text(FLOW.format(line=line), encoding="utf-8")
    return [finding.rule.name for finding in check([folder]).findings]


@pytest.mark.parametrize(
    "line",
    [
        "time.time()  # semel: allow[wall-clock] only for the log",
        "time.time()  # semel: allow[D01] only for the log",
        "time.time()  #semel:allow[ d01 ]: only for the log",
        "# semel: allow[wall-clock] only for the log\n    time.time()",
        "print(time.time())  # semel: allow[wall-clock, console] a demo",
        "x = '''# semel: allow[nothing]'''",
        "time.time()  # noqa  # semel: allow[D01] only for the log",
        "time.time()  # type: ignore[x] # semel: allow[wall-clock] only for the log",
    ],
)
def test_silenced(tmp_path: Path, line: str) -> None:
    assert names(tmp_path, line) == []


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("time.time()  # semel: allow[wall-clock]", ["wall-clock", "bad-allow"]),
        ("time.time()  # semel: allow[wall-clock] -", ["wall-clock", "bad-allow"]),
        ("time.time()  # semel: allow[wall-clok] a reason", ["wall-clock", "bad-allow"]),
        ("time.time()  # semel: allow wall-clock", ["wall-clock", "bad-allow"]),
        ("time.time()  # semel: ignore", ["wall-clock", "bad-allow"]),
        ("time.time()  # noqa  # semel: allow[D01]", ["wall-clock", "bad-allow"]),
        ("time.time()  # semel: allow[unused-allow] a reason", ["wall-clock", "bad-allow"]),
        ("time.time()  # semel: allow[network] a reason", ["wall-clock", "unused-allow"]),
        ("time.time()  # semel: allow[network, wall-clock] a reason", ["unused-allow"]),
        ("pass  # semel: allow[network] a reason", ["unused-allow"]),
        ("# semel: allow[wall-clock] too far\n\n    time.time()", ["unused-allow", "wall-clock"]),
        ("x = 1  # semel: allow[wall-clock] not its line\n    time.time()", ["unused-allow", "wall-clock"]),
    ],
)
def test_not_silenced(tmp_path: Path, line: str, wanted: list[str]) -> None:
    assert names(tmp_path, line) == wanted


def test_a_misspelled_rule_is_corrected(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text("x = 1  # semel: allow[netwrok] why\n", encoding="utf-8")
    (finding,) = check([tmp_path]).findings
    assert "did you mean network?" in finding.message
