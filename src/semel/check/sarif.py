"""Findings as SARIF 2.1.0, which code hosts show beside the lines."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from semel.check.finding import Finding, Report
from semel.check.rules import RULES, Rule

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(report: Report, version: str) -> dict[str, Any]:
    """The whole log, ready for `json.dumps`."""
    driver = {
        "name": "semel check",
        "semanticVersion": version,
        "rules": [_rule(rule) for rule in RULES],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding) for finding in report.findings],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _level(rule: Rule) -> str:
    return "error" if rule.allowable and not rule.warns else "warning"


def _rule(rule: Rule) -> dict[str, Any]:
    help_text = f"Instead: {rule.semel}. In Temporal: {rule.temporal}. See docs/reference/rules/{rule.name}.md."
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": f"{rule.name}: it {rule.does}"},
        "fullDescription": {"text": f"Workflow code that {rule.does}: {rule.why}."},
        "help": {"text": help_text},
        "defaultConfiguration": {"level": _level(rule)},
    }


def _result(finding: Finding) -> dict[str, Any]:
    region = {"startLine": finding.line, "startColumn": finding.column}
    if finding.end_line is not None and finding.end_column is not None:
        region |= {"endLine": finding.end_line, "endColumn": finding.end_column}
    path = PurePath(finding.path)
    place = {"artifactLocation": {"uri": path.as_uri() if path.is_absolute() else quote(path.as_posix())}}
    return {
        "ruleId": finding.rule.id,
        "ruleIndex": RULES.index(finding.rule),
        "level": _level(finding.rule),
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": place | {"region": region}}],
    }
