"""Everything that is wrong on purpose is found, on its line; nothing that is right is."""

from __future__ import annotations

from semel.check import RULES, check
from tests.check.marks import CORPUS, expected, found


def test_everything_bad_is_found_and_nothing_else() -> None:
    wanted = expected(CORPUS / "bad")
    got = found(check([CORPUS / "bad"]))
    assert got - wanted == {}, "found and not expected"
    assert wanted - got == {}, "expected and not found"


def test_the_corpus_has_every_rule() -> None:
    assert {rule for _, _, rule in expected(CORPUS / "bad")} == {rule.id for rule in RULES if rule.allowable}


def test_nothing_good_is_found() -> None:
    report = check([CORPUS / "good"])
    assert [str(finding) for finding in report.findings] == []
    assert report.workflows >= 10


def test_each_good_file_is_good_by_itself() -> None:
    for path in (CORPUS / "good").rglob("*.py"):
        assert [str(finding) for finding in check([path]).findings] == []
