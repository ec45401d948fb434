"""The determinism checker: reads workflow code, imports and runs none of it, and needs no engine."""

from semel.check.finding import Finding, Kind, Report
from semel.check.reach import check
from semel.check.rules import RULES, Rule
from semel.check.sarif import sarif

__all__ = ["RULES", "Finding", "Kind", "Report", "Rule", "check", "sarif"]
