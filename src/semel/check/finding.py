"""One thing that was found: where, which rule, and how workflow code gets there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from semel.check.rules import Rule


class Kind(StrEnum):
    """Whose code it is; it decides what is recommended instead, and that of tasks may do more."""

    SEMEL = "semel"
    TEMPORAL = "temporal"
    TASK = "task"


@dataclass(frozen=True, slots=True)
class Finding:
    """Lines and columns count from 1. `chain` leads from a workflow to the function that holds the code."""

    path: str
    line: int
    column: int
    rule: Rule
    subject: str
    chain: tuple[str, ...] = ()
    kind: Kind = Kind.SEMEL
    end_line: int | None = None
    end_column: int | None = None

    @property
    def what(self) -> str:
        """What is done, in words."""
        return f"{self.subject} {self.rule.does}"

    @property
    def instead(self) -> str:
        """What to do instead, in the words of the engine that the workflow is written for."""
        return self.rule.temporal if self.kind is Kind.TEMPORAL else self.rule.semel

    @property
    def reached(self) -> str:
        """How workflow code gets there: empty if it stands in the workflow itself."""
        return f"reached from {' -> '.join(self.chain)}" if len(self.chain) > 1 else ""

    @property
    def message(self) -> str:
        """Everything but the place and the rule."""
        way = f" ({self.reached})" if self.reached else ""
        return f"{self.what}{way}; {self.rule.why}; instead: {self.instead}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.rule.label}: {self.message}"


@dataclass(frozen=True, slots=True)
class Report:
    """What a run of the checker saw. `workflows` counts the workflow functions, entities and Temporal classes."""

    files: int
    workflows: int
    findings: tuple[Finding, ...]

    @property
    def summary(self) -> str:
        """One line for people."""
        counts = ((self.files, "file"), (self.workflows, "workflow"), (len(self.findings), "finding"))
        return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts)
