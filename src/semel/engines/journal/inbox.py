"""What came for a flow, as its code will hear of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.codec import decoder_of
from semel.engines.journal.reading import load_error
from semel.flow.entries import Happening, Resolved, Signalled, Stopped, raw
from semel.flow.turn import Arrival

_read_id = decoder_of(str).decode


def answer_of(command: int, execution: str | None) -> str:
    """What an answer is for, as a row has it, and which execution gives it where that is not the flow's own."""
    return str(command) if execution is None else f"{command} {execution}"


def command_in(ref: str) -> tuple[int, str | None]:
    """The same again."""
    command, _, execution = ref.partition(" ")
    return int(command), execution or None


def arrivals_of(row: Sequence[Any]) -> Arrival:
    """One row of the inbox: id, kind, name, ref, body, error, at."""
    id_, kind, name, ref, body, error, at = row
    what: Happening
    match kind:
        case "done" if name == "started":
            what = Resolved(int(ref), name, ref=_read_id(body))
        case "done":
            command, execution = command_in(ref)
            what = Resolved(command, name, raw(body), load_error(error), execution)
        case "signal" | "message":
            what = Signalled(name, raw(body), ref)
        case _:
            what = Stopped()
    return Arrival(at, what, (id_, at))
