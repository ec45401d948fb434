"""Would this code go on with that history? Runs code against a journal; nothing is written or performed."""

from __future__ import annotations

from collections.abc import Sequence

from semel.define.registry import Registry
from semel.engine.protocol import RecordedRun, Replayed
from semel.errors import Forbidden, InvalidValue, NonDeterminism, SemelError
from semel.flow import entries, snapshot
from semel.flow.entity import Actor
from semel.flow.entity_messages import Seen
from semel.flow.entries import Began, Entry
from semel.flow.instance import Instance, Refusal
from semel.flow.snapshot import Snapshot
from semel.flow.turn import Identity
from semel.settings import Settings


def replay(
    registry: Registry,
    settings: Settings,
    past: RecordedRun,
    refusal: Refusal | None = None,
) -> None:
    """Do again what a history says. NonDeterminism, Forbidden, NotFound and their kin: it would be parked."""
    if past.input is None:
        raise InvalidValue(f"{past.kind} {past.key!r} ({past.id}) is past its retention: its input is gone.")
    history = [entry for body in past.commits for entry in entries.load(body)]
    who = Identity(
        past.id, past.key, past.name, past.namespace, past.queue, past.generation, past.input, past.parent, past.seed
    )
    start = Snapshot(past.input) if past.snapshot is None else snapshot.load(past.snapshot)
    instance = _instance(registry, settings, who, start, past.kind, history)
    if refusal is not None:
        instance.refusal = refusal
    try:
        instance.replay(history)
        instance.turn(start.active)  # what comes next is not performed; it shows whether the last line was allowed
    finally:
        instance.close()


def _instance(
    registry: Registry, settings: Settings, who: Identity, start: Snapshot, kind: str, history: Sequence[Entry]
) -> Instance:
    if kind == "entity":
        entity = registry.entity(who.name)
        return Actor(entity, who, settings, start, Seen(entity.fresh_window(), ()))
    first = history[0] if history else None
    version = first.version if isinstance(first, Began) else None
    return Instance(registry.workflow(who.name, version), who, settings, start)


def try_replay(
    registry: Registry,
    settings: Settings,
    past: RecordedRun,
    refusal: Refusal | None = None,
) -> Replayed:
    """The same as an answer instead of an error."""
    try:
        replay(registry, settings, past, refusal)
    except NonDeterminism as error:
        return Replayed(past.id, past.name, past.key, error.message, error.expected, error.found, error.where)
    except Forbidden as error:
        return Replayed(past.id, past.name, past.key, error.message, found=error.what, where=error.where)
    except (SemelError, RuntimeError) as error:
        return Replayed(past.id, past.name, past.key, str(error))
    return Replayed(past.id, past.name, past.key)
