"""One question at every boundary: this key is asked for, that one is there. What now?

| prior                        | failed_only (default) | reject  | always  |
|------------------------------|-----------------------|---------|---------|
| none, or its window is over  | Admit                 | Admit   | Admit   |
| pending, running, waiting    | Join                  | Join    | Join    |
| completed                    | Replay                | Replay  | Admit   |
| failed, cancelled, timed_out | Admit                 | Replay  | Admit   |

Where the answer would be Join or Replay and the input or the function differs, it is Refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from semel.contract.lifecycle import RELEASED, Status


class Reuse(StrEnum):
    """Which finished executions give their key back. A live one never does."""

    FAILED_ONLY = "failed_only"
    REJECT = "reject"
    ALWAYS = "always"


class Reason(StrEnum):
    """Why a request did not become an execution; `explain` counts by it."""

    JOINED = "joined"
    REPLAYED = "replayed"
    INPUT_DIFFERS = "input_differs"
    FUNCTION_DIFFERS = "function_differs"
    SEEN = "seen"
    """A message whose key its entity has seen within its window."""
    MESSAGE_DIFFERS = "message_differs"
    """A message or signal that was refused: its key stands for another handler, signal or other arguments."""
    OVERFLOWED = "overflowed"
    """No duplicate: a key that its entity forgot before its window was over, because there were too many."""


class Prior(Struct, frozen=True):
    """The execution that holds the key."""

    id: str
    name: str
    fingerprint: bytes
    status: Status
    generation: int
    window_ends_at: datetime | None
    """None while it is live."""
    parent: str | None = None
    """The workflow that asked for it, and may stop wanting it."""
    previous: str | None = None
    """The execution that held the key before it, where that is known without another question."""


class Request(Struct, frozen=True):
    """What is asked for under the key."""

    name: str
    fingerprint: bytes
    reuse: Reuse
    older: Callable[[], Iterable[bytes]] = tuple
    """Makes other fingerprints that stand for the same input; asked only where the first one differs."""

    def is_same_input(self, fingerprint: bytes) -> bool:
        """Does this fingerprint stand for the input that is asked for?"""
        return fingerprint == self.fingerprint or any(fingerprint == one for one in self.older())


class Admit(Struct, frozen=True):
    """Run it. `supersedes` must still hold the key when the new one takes it."""

    supersedes: str | None
    generation: int


class Join(Struct, frozen=True):
    """One is under way: share it."""

    prior: Prior


class Replay(Struct, frozen=True):
    """One has finished: share its outcome."""

    prior: Prior


class Refuse(Struct, frozen=True):
    """The key stands for something else."""

    prior: Prior
    reason: Reason


Decision = Admit | Join | Replay | Refuse


def reason_of(decision: Join | Replay | Refuse) -> Reason:
    """What `explain` counts a request under that did not become an execution."""
    if isinstance(decision, Refuse):
        return decision.reason
    return Reason.JOINED if isinstance(decision, Join) else Reason.REPLAYED


def decide(prior: Prior | None, request: Request, now: datetime) -> Decision:
    """The contract in one function."""
    if prior is None:
        return Admit(None, 0)
    if prior.status.terminal and _runs_again(prior, request.reuse, now):
        return Admit(prior.id, prior.generation + (prior.status is Status.COMPLETED))
    if prior.name != request.name:
        return Refuse(prior, Reason.FUNCTION_DIFFERS)
    if not request.is_same_input(prior.fingerprint):
        return Refuse(prior, Reason.INPUT_DIFFERS)
    return Join(prior) if prior.status.live else Replay(prior)


def _runs_again(prior: Prior, reuse: Reuse, now: datetime) -> bool:
    if prior.window_ends_at is not None and now >= prior.window_ends_at:
        return True
    match reuse:
        case Reuse.FAILED_ONLY:
            return prior.status in RELEASED
        case Reuse.ALWAYS:
            return True
        case Reuse.REJECT:
            return False
