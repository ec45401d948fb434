"""The warning of a workflow whose journal has become long."""

from __future__ import annotations

import logging
from typing import Any, Final

from semel.flow.instance import Instance
from semel.flow.turn import Turn

LONG: Final = 5_000
"""Entries in a journal from which on a workflow is told to continue as new."""


def warn_of_long_journal(
    log: logging.Logger | logging.LoggerAdapter[Any], instance: Instance, turn: Turn, *, also: str = ""
) -> None:
    """Warn in the turn with which a journal has become long. `also`: what else comes of it on this engine."""
    if instance.entries >= LONG and instance.entries - len(turn.entries) < LONG:
        log.warning(
            "workflow %r has %s entries in its journal: let it continue_as_new now and then, since all of it is read "
            "again after a crash%s",
            instance.who.key,
            f"{instance.entries:,}",
            also,
        )
