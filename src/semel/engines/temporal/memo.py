"""What Semel keeps of an execution in the memo of its workflow."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct

from semel.codec import converter_of
from semel.contract.durations import format_duration
from semel.contract.retention import WORKFLOW_RETENTION
from semel.contract.times import instant, micros, span
from semel.engine.start_request import StartRequest
from semel.engines.temporal.payloads import wrap

MEMO: Final = "semel"
"""The name of the memo field."""
BEGUN: Final = "semel.begun"
"""The memo field of a workflow that was to begin later, once it has begun."""
RESET: Final = "semel.reset"
"""The memo field of a workflow that goes on from a row of the one before it."""
PUBLISHED: Final = "semel.published."
"""How the names of memo fields begin that hold published values."""

CLOSE_MODE: Final = "semel.close"
"""The memo field of a child that says how it goes when its parent ends."""
ATTEMPT: Final = "semel.attempt"
"""The memo field of a task that was tried before: how often, the last error, when it is due again."""

DROPPED: Final = "semel.dropped"
"""The memo field of a run of a schedule that nobody began before its start deadline."""

COVERED: Final = WORKFLOW_RETENTION
"""Windows up to this are for the cluster to remember: namespaces keep for as long, or what declares more is refused."""


UNSAID: Final = -1


class ExecutionMemo(Struct, frozen=True, omit_defaults=True):
    """Who an execution is, what it was asked for with, and with which options. Never changes while it lives."""

    kind: str
    name: str
    fingerprint: str = ""
    key: str | None = None
    generation: int = 0
    """How many executions have completed under its key before."""
    previous: str | None = None
    """The execution under its key that it followed."""
    priority: int = 0
    max_attempts: int = 1
    retention: int = 0
    """Microseconds, as the next one."""
    window: int = 0
    due: int | None = None
    """When it may begin at the earliest: microseconds since 1970."""
    timeout: int = UNSAID
    """Of a workflow, in microseconds; 0 for none."""
    root: str | None = None
    """What its effect keys are made of, where it has no key of its own."""
    parent: str | None = None
    """The execution of the workflow that asked for it."""
    concurrency_key: str | None = None
    foreign: bool = False
    """Other people's code: it takes its arguments one by one, and knows nothing of Semel."""
    asked: str = ""
    """The request that it came of: of several who want to follow another one, and when it is sent again."""
    ledger: bool = False
    """Its window is longer than the cluster remembers: the records database remembers its key."""
    earlier: str = ""
    """Tags of the requests whose executions had its key before, the last one first; see `predecessors`."""
    beyond: str | None = None
    """The newest execution before it whose request is not among these tags."""
    start_by: int | None = None
    """It is dropped unless it begins by then: microseconds since 1970."""

    @property
    def kept(self) -> timedelta:
        """How long its result is kept."""
        return span(self.retention)

    def timeout_or(self, unsaid: timedelta | None) -> timedelta | None:
        """The timeout it began with; the other one for what was started before cards said so."""
        return unsaid if self.timeout == UNSAID else span(self.timeout) if self.timeout else None

    @property
    def held(self) -> timedelta:
        """How long its key is held after its end."""
        return span(self.window)


_to_card: Final = converter_of(ExecutionMemo)


def card_of(start: StartRequest, now: int) -> ExecutionMemo:
    """The card of a first execution under its key."""
    options = start.options
    due = None
    if options.delay is not None:
        due = now + micros(options.delay)
    elif options.run_at is not None:
        due = int(options.run_at.timestamp() * 1_000_000)
    return ExecutionMemo(
        options.kind,
        options.name,
        start.fingerprint.hex(),
        start.key,
        priority=options.priority,
        max_attempts=options.max_attempts,
        retention=micros(options.retention),
        window=micros(options.window),
        due=due,
        timeout=0 if options.timeout is None else micros(options.timeout),
        root=start.root,
        parent=start.parent,
        concurrency_key=start.concurrency_key,
        foreign=options.foreign,
        start_by=None if start.start_by is None else instant(start.start_by),
        ledger=start.key is not None and options.kind != "entity" and not options.foreign and options.window > COVERED,
    )


KEPT: Final = [
    timedelta(seconds=seconds)
    for seconds in (0, 60, 600, *(3600 * n for n in (1, 2, 6, 12)), *(86400 * n for n in (1, 2, 3, 5, 7, 10, 14, 21)))
] + [timedelta(days=days) for days in (30, 45, 60, 90, 180, 365)]
"""For how long executions are kept, rounded up: the cleaner asks for each of these what is older."""
OURS: Final = "semel:"
"""How those search attributes begin that are Semel's own."""
FAILED_MESSAGES: Final = OURS + "failed-messages"
"""Of an entity that has messages which failed and were not sent again."""
LONGER: Final = OURS + "kept=longer"
"""Of what is kept so long that the cluster is the one to forget it."""


def kept_mark(kept: timedelta) -> str:
    """The search attribute of what is kept for so long."""
    return f"{OURS}kept={format_duration(kept)}"


def marks(card: ExecutionMemo) -> list[str]:
    """The search attributes that every execution has: for how long it is kept, so that the cleaner finds it.

    None for other people's workflows.
    """
    if card.foreign:
        return []
    kept = max(card.kept, card.held) if card.key is not None else card.kept
    return [next((kept_mark(rung) for rung in KEPT if rung >= kept), LONGER)]


def to_memo(card: ExecutionMemo) -> dict[str, Any]:
    """The memo that holds a card."""
    return {MEMO: wrap(msgspec.json.encode(card))}


def from_memo(value: Any) -> ExecutionMemo | None:
    """The card in a memo field; None: it is not one of ours."""
    try:
        return None if value is None else _to_card(value)
    except msgspec.ValidationError:
        return None
