"""What is declared and could not be kept on a cluster is refused: equal or refused, never silently weaker."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from semel.contract.durations import format_duration
from semel.define.registry import Definition
from semel.define.task import Task
from semel.engine.start_request import StartRequest
from semel.engines.temporal.names import workflow_id
from semel.errors import ConfigError, InputError, SemelError
from semel.flow.commands import Kind


class Coverage(NamedTuple):
    """What a cluster can keep of what is declared."""

    namespace: str
    kept: timedelta
    """For how long the namespace keeps closed workflows."""
    records: bool
    """Is there a database that remembers keys for longer?"""

    def refusal(self, start: StartRequest) -> SemelError | None:
        """Why an execution cannot be started as it is asked for; None: it can."""
        options = start.options
        whose = f"{options.kind} {options.name!r}"
        if options.rate_limited or options.keyed:
            return limited(options.name, rate=options.rate_limited)
        if options.retention > self.kept and not options.foreign:
            return too_short(self.namespace, self.kept, options.retention, whose)
        if start.key is None or options.kind == "entity":
            return None
        if options.window > self.kept and (options.foreign or not self.records):  # nobody writes a ledger for others
            return too_short(self.namespace, self.kept, options.window, whose)
        try:
            workflow_id(options.kind, start.key)
        except InputError as error:
            return error
        return None

    def refusal_inside(self, kind: Kind, start: StartRequest) -> SemelError | None:
        """Why a start inside a workflow or entity is refused. A task without a key is no execution of its own there."""
        options = start.options
        if kind is Kind.TASK and start.key is None:
            return limited(options.name, rate=options.rate_limited) if options.rate_limited or options.keyed else None
        return self.refusal(start)

    def refusal_again(self, one: Definition | None) -> SemelError | None:
        """Why something is not run again as it is declared now."""
        if isinstance(one, Task) and (one.rate_limit is not None or one.keyed):
            return limited(one.name, rate=one.rate_limit is not None)
        return None


def too_short(namespace: str, kept: timedelta, needs: timedelta, whose: str) -> ConfigError:
    """A namespace would forget what has to be kept."""
    return ConfigError(
        f"{whose} is to be kept for {format_duration(needs)}, and namespace {namespace!r} keeps for "
        f"{format_duration(kept)}. Run semel migrate, which raises that, or declare a shorter retention or "
        "dedup_window. For keys alone, a records= database remembers longer."
    )


def limited(name: str, *, rate: bool) -> ConfigError:
    """A task has a limit that nobody would keep."""
    what = "rate_limit" if rate else "concurrency_key"
    return ConfigError(
        f"task {name!r} declares a {what}, which Temporal cannot enforce. Give its queue a rate_limit, or use another "
        "engine. See docs/reference/engines.md."
    )
