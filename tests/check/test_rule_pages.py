"""Every rule has its page; what the page calls bad yields exactly this rule, and what it calls good none."""

from __future__ import annotations

from pathlib import Path

import pytest

from semel.check import RULES, Rule, check
from tests.docs.pages import DOCS, blocks, read, short, table

FOLDER = DOCS / "reference" / "rules"
# `py` instead of `python`: these blocks are checked here and not run.
CHECKED = [(page, block) for page in sorted(DOCS.rglob("*.md")) for block in blocks(page) if block.language == "py"]


def page(rule: Rule) -> Path:
    return FOLDER / f"{rule.name}.md"


def test_ids_and_names_are_unique_and_in_order() -> None:
    assert [rule.id for rule in RULES] == sorted({rule.id for rule in RULES})
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_every_rule_has_its_page_and_no_page_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {page(rule).name for rule in RULES} | {"index.md"}


def test_the_index_is_the_table_of_rules() -> None:
    rows = table(read("docs/reference/rules/index.md"), "rule")[1:]
    assert rows == [[rule.id, f"[{rule.name}]({rule.name}.md)", rule.does, rule.why] for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_page_of_a_rule(rule: Rule, tmp_path: Path) -> None:
    text = page(rule).read_text(encoding="utf-8")
    assert text.startswith(f"# {rule.id} {rule.name}\n")
    assert f"| Semel | {rule.semel} |\n| Temporal | {rule.temporal} |\n" in text
    shown = {block.marks: block for block in blocks(page(rule))}
    assert set(shown) == {"bad", "good"}
    for marks, block in shown.items():
        (tmp_path / "page.py").write_text(block.body, encoding="utf-8")
        found = {finding.rule.id for finding in check([tmp_path]).findings}
        assert found == ({rule.id} if marks == "bad" else set()), marks


@pytest.mark.parametrize(("path", "block"), CHECKED, ids=lambda part: short(part) if isinstance(part, Path) else "")
def test_blocks_that_are_not_run_are_checked(path: Path, block: object, tmp_path: Path) -> None:
    marks, body = block.marks, block.body  # type: ignore[attr-defined]
    assert marks in ("good", "bad")
    (tmp_path / "page.py").write_text(body, encoding="utf-8")
    assert bool(check([tmp_path]).findings) is (marks == "bad")
