"""`semel check` reads `@workflow.defn` classes as they are."""

from __future__ import annotations

from pathlib import Path

import semel.check
from tests.engines.temporal import tenants

HERE = Path(tenants.__file__)


def test_good_ones_are_clean() -> None:
    report = semel.check.check([HERE])
    assert (report.findings, report.workflows) == ((), 2)


def test_a_clock_in_a_helper_of_a_handler_is_found(tmp_path: Path) -> None:
    text = HERE.read_text(encoding="utf-8")
    text = text.replace('message["key"], workflow.now()', 'message["key"], clock()')
    text += "\n\ndef clock():\n    from datetime import UTC, datetime\n\n    return datetime.now(UTC)\n"
    (tmp_path / "theirs.py").write_text(text, encoding="utf-8")
    (found,) = semel.check.check([tmp_path]).findings
    assert found.rule.id == "D01"
    assert "workflow.now()" in found.instead
