"""`# semel: allow[RULE] reason`: exceptions, written where they are made, with their reason."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator

from semel.check.finding import Finding
from semel.check.rules import BAD_ALLOW, UNUSED_ALLOW, Rule, near, rule_named
from semel.check.source import Module

_MARK = re.compile(r"#\s*semel:\s*(?P<verb>[\w-]*)\s*(?:\[(?P<rules>[^\]]*)\])?\s*(?P<reason>.*)")


class Allow:
    """One comment: the rules it silences on its own line, or on the next if it stands alone."""

    def __init__(self, module: Module, line: int, column: int, text: str, alone: bool) -> None:
        self.module = module
        self.line = line
        self.column = column
        self.covers = {line, line + 1} if alone else {line}
        self.trouble: str | None = None
        self.rules: dict[Rule, bool] = {}
        self._read(text)

    def _read(self, text: str) -> None:
        mark = _MARK.match(text)
        if mark is None or mark["verb"] != "allow" or mark["rules"] is None:
            self.trouble = "not of the form allow[RULE] reason"
            return
        for word in mark["rules"].split(","):
            rule = rule_named(word)
            if rule is None or not rule.allowable:
                meant = near(word)
                self.trouble = f"no rule {word.strip()!r}" + (f", did you mean {meant}?" if meant else "")
                return
            self.rules[rule] = False
        if not mark["reason"].strip(" -:."):
            self.rules.clear()
            self.trouble = "no reason given"

    def silences(self, finding: Finding) -> bool:
        """Whether the finding is excused; then the comment has been of use."""
        if finding.line not in self.covers or finding.rule not in self.rules:
            return False
        self.rules[finding.rule] = True
        return True

    def findings(self) -> Iterator[Finding]:
        """What is wrong with the comment itself, once all findings have been seen."""
        place = (self.module.shown, self.line, self.column)
        if self.trouble is not None:
            yield Finding(*place, BAD_ALLOW, f"this comment ({self.trouble})")
        for rule, used in self.rules.items():
            if not used:
                yield Finding(*place, UNUSED_ALLOW, f"allow[{rule.name}]")


def sieve(findings: Iterable[Finding], modules: Iterable[Module]) -> list[Finding]:
    """The findings that are not excused, and those about the excuses."""
    allows: dict[str, list[Allow]] = {}
    for module in modules:
        if b"semel:" in module.raw and module.trouble is None:
            allows[module.shown] = list(allows_in(module))
    left = [finding for finding in findings if not [a for a in allows.get(finding.path, []) if a.silences(finding)]]
    return left + [finding for each in allows.values() for allow in each for finding in allow.findings()]


def allows_in(module: Module) -> Iterator[Allow]:
    """The comments of a file that speak to the checker. Strings that look like one are not comments."""
    try:
        for token in tokenize.tokenize(io.BytesIO(module.raw).readline):
            mark = re.search(r"#\s*semel:", token.string) if token.type == tokenize.COMMENT else None
            if mark is not None:  # perhaps after a comment for another tool
                line, column = token.start
                text, alone = token.string[mark.start() :], not token.line[:column].strip()
                yield Allow(module, line, column + mark.start() + 1, text, alone)
    except (SyntaxError, tokenize.TokenError, ValueError):  # pragma: no cover - what parses, tokenizes
        return
