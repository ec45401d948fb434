"""What the docs show as a workflow is one: the checker finds nothing in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from semel.check import check
from tests.docs.pages import PAGES, ROOT, blocks, short

WITH_PYTHON = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=short)
def test_the_workflows_of_a_page_can_be_replayed(page: Path, tmp_path: Path) -> None:
    shown = "\n".join(block.body for block in blocks(page) if block.language == "python")
    (tmp_path / "page.py").write_text(shown, encoding="utf-8")
    assert [str(finding) for finding in check([tmp_path]).findings] == []


def test_the_workflows_of_the_examples_can_be_replayed() -> None:
    assert [str(finding) for finding in check([ROOT / "examples"]).findings] == []
