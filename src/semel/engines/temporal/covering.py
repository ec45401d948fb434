"""What is declared and could not be kept on a cluster is refused: equal or refused, never silently weaker."""

from __future__ import annotations

from datetime import timedelta

from semel.contract.durations import spell
from semel.engine.protocol import Start
from semel.errors import ConfigError


def too_short(namespace: str, kept: timedelta, needs: timedelta, whose: str) -> ConfigError:
    """A namespace would forget what has to be kept."""
    return ConfigError(
        f"{whose} is to be kept for {spell(needs)}, and namespace {namespace!r} keeps for {spell(kept)}. Run semel "
        "migrate, which raises that, or declare a shorter retention or dedup_window. For keys alone, a records= "
        "database remembers longer."
    )


def refuse_limits(request: Start) -> None:
    """ConfigError: limits that nobody would keep."""
    terms = request.terms
    if terms.rate_limited or terms.keyed:
        what = "rate_limit" if terms.rate_limited else "concurrency_key"
        raise ConfigError(
            f"task {terms.name!r} declares a {what}, which Temporal has no word for: it would not be kept. Give its "
            "queue a rate_limit, or use another engine. See docs/reference/engines.md."
        )
