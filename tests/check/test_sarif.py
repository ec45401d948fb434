"""The SARIF log has what 2.1.0 demands, and says the same as the report."""

from __future__ import annotations

import json

from semel.check import RULES, check, sarif
from tests.check.marks import CORPUS


def test_the_log_has_the_rules_and_every_finding() -> None:
    report = check([CORPUS / "bad"])
    log = json.loads(json.dumps(sarif(report, "1.2.3")))
    assert (log["version"], "sarif-2.1.0" in log["$schema"]) == ("2.1.0", True)
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["semanticVersion"]) == ("semel check", "1.2.3")
    assert [rule["id"] for rule in driver["rules"]] == [rule.id for rule in RULES]
    for rule in driver["rules"]:
        assert set(rule) == {"id", "name", "shortDescription", "fullDescription", "help", "defaultConfiguration"}
        assert rule["help"]["text"]
    assert len(run["results"]) == len(report.findings)
    for result, finding in zip(run["results"], report.findings, strict=True):
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == finding.rule.id
        assert result["message"]["text"] == finding.message
        assert result["level"] in ("error", "warning")
        region = result["locations"][0]["physicalLocation"]["region"]
        assert (region["startLine"], region["startColumn"]) == (finding.line, finding.column)
        assert (region["endLine"], region["endColumn"]) > (region["startLine"], region["startColumn"])


def test_paths_are_uris() -> None:
    report = check([CORPUS / "bad" / "clocks.py"])
    (place,) = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in _results(report)}
    assert place.startswith("file:///")


def _results(report: object) -> list[dict[str, object]]:
    return sarif(report, "1")["runs"][0]["results"]  # type: ignore[arg-type, no-any-return]
