"""The states of an execution, and every arrow between them. One table; nothing else decides.

pending ──claim──▶ running ──complete──▶ completed
   ▲  ▲               │ ├────fail──────▶ failed
   │  └─────retry─────┤ ├────cancel────▶ cancelled
   │                  │ └────time out──▶ timed_out
   │               suspend
   └────wake──── waiting ──cancel──▶ cancelled
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Status(StrEnum):
    """Where an execution stands. The last four are final: nothing leaves them."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"

    @property
    def terminal(self) -> bool:
        """Has it ended for good?"""
        return not ARROWS[self]

    @property
    def live(self) -> bool:
        """Is there still something to come?"""
        return bool(ARROWS[self])


ARROWS: Final[dict[Status, dict[str, Status]]] = {
    Status.PENDING: {
        "claim": Status.RUNNING,
        "cancel": Status.CANCELLED,
    },
    Status.RUNNING: {
        "complete": Status.COMPLETED,
        "fail": Status.FAILED,
        "time_out": Status.TIMED_OUT,
        "cancel": Status.CANCELLED,
        "retry": Status.PENDING,
        "recover": Status.PENDING,
        "release": Status.PENDING,
        "suspend": Status.WAITING,
    },
    Status.WAITING: {
        "wake": Status.PENDING,
        "cancel": Status.CANCELLED,
        "time_out": Status.TIMED_OUT,
    },
    Status.COMPLETED: {},
    Status.FAILED: {},
    Status.CANCELLED: {},
    Status.TIMED_OUT: {},
}

LIVE: Final = frozenset(s for s in Status if ARROWS[s])
TERMINAL: Final = frozenset(s for s in Status if not ARROWS[s])
RELEASED: Final = TERMINAL - {Status.COMPLETED}
"""Endings that give the key back under `reuse="failed_only"`."""


def after(status: Status, event: str) -> Status:
    """Follow one arrow; a missing arrow is a bug in the caller, hence LookupError."""
    return ARROWS[status][event]
