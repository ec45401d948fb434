"""Runs today's code against a history of Temporal, here and without a worker: nothing is written or performed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer

from semel.define.entity import Entity
from semel.define.registry import Registry
from semel.define.workflow import Workflow
from semel.engine.protocol import Replayed
from semel.engines.temporal import resetting
from semel.engines.temporal.classes import class_of
from semel.engines.temporal.covering import Coverage
from semel.engines.temporal.deeds import Deed, Witness, recorded
from semel.engines.temporal.hosting import FlowHost
from semel.engines.temporal.names import execution_id
from semel.engines.temporal.payloads import uncover
from semel.engines.temporal.reading import Reader, Seen
from semel.engines.temporal.sandboxing import runner
from semel.flow import replaying
from semel.settings import Settings

SHOWN = 120
"""Characters of an input that an error shows."""
DERIVED = frozenset({"fingerprint"})
"""What is made of the arguments, in the request for a child or a task whose key is taken."""
NEXT = "Deploy code that does what the history says, or put the change behind ctx.patched('…')."


@dataclass(frozen=True, slots=True)
class Again:
    """What came of a replay."""

    told: Replayed
    host: FlowHost | None
    """Where the code ran; None: it did not begin, or it was a task."""

    @property
    def error(self) -> str:
        """Why a worker with this code would not go on; empty if it would."""
        return self.told.error


async def replay(
    history: WorkflowHistory, registry: Registry, settings: Settings, namespace: str, coverage: Coverage | None = None
) -> Again:
    """Do again what a history says: would a worker with this code go on with it?

    What the code asks for is compared with the journal in the history, as workers do it; what goes out to Temporal is
    compared with what went out then, and that they do not do.
    """
    begun = history.events[0].workflow_execution_started_event_attributes
    name = begun.workflow_type.name
    id_ = execution_id(begun.first_execution_run_id, history.workflow_id)
    witness = Witness()
    replayer = Replayer(
        workflows=[class_of(registry, registry[name], settings, coverage)],
        workflow_runner=runner(registry, DataConverter.default), namespace=namespace,
        interceptors=[witness.interceptor()],
    )  # fmt: skip
    failure = (await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure
    return Again(_told(Replayed(id_, name, history.workflow_id), history, witness, failure), witness.host)


def _told(one: Replayed, history: WorkflowHistory, witness: Witness, failure: Exception | None) -> Replayed:
    if (known := witness.mismatch) is not None:
        return replace(one, error=known.message, expected=known.expected, found=known.found, where=known.where)
    then, now = recorded(history), witness.deeds
    expected, found = _other_deeds(then, now) if failure is not None else _other_inputs(then, now)
    if failure is None and not expected:
        return one
    why = f"its history says {expected}, its code now does {found}{f' ({failure})' if failure else ''}"
    text = f"{one.key!r} ({one.name}) cannot go on: {why}. {NEXT}"
    return replace(one, error=text, expected=expected, found=found)


async def try_replay(
    client: Client, reader: Reader, id: str, registry: Registry, settings: Settings, coverage: Coverage
) -> Replayed | None:
    """The same for what an execution has recorded. None: there is no such execution, or no code for it.

    Once with the journal in its history, which tells lines, or with its state; once with all that Temporal compares.
    """
    seen = await reader.find(id)
    if seen is None or not isinstance(registry.get(seen.card.name), Workflow | Entity):
        return None
    past = await resetting.past(client, reader, seen, whole=False)
    if past.input is None:
        return None
    replayed = replaying.try_replay(registry, settings, past, coverage.refusal_inside)
    if not replayed.ok:
        return replayed
    again = await replay(await history_of(client, seen), registry, settings, client.namespace, coverage)
    return replace(again.told, key=past.key)


async def history_of(client: Client, seen: Seen) -> WorkflowHistory:
    """What happened in one run of a workflow, without what a codec did to it."""
    execution = seen.info.execution
    history = await client.get_workflow_handle(execution.workflow_id, run_id=execution.run_id).fetch_history()
    codec = client.data_converter.payload_codec
    if codec is not None:
        for event in history.events:
            await uncover(event, codec)
    return history


def _other_deeds(then: Sequence[Deed], now: Sequence[Deed]) -> tuple[str, str]:
    """The first thing that is on one side only, for each side."""
    done, said = {(d.kind, d.id) for d in now}, {(d.kind, d.id) for d in then}
    expected = next((d for d in then if (d.kind, d.id) not in done), None)
    found = next((d for d in now if (d.kind, d.id) not in said), None)
    return str(expected or "nothing more"), str(found or "nothing more")


def _other_inputs(then: Iterable[Deed], now: Iterable[Deed]) -> tuple[str, str]:
    """The first thing that is asked for with something else than before. What comes after the history is new."""
    done: defaultdict[tuple[str, str], list[Deed]] = defaultdict(list)
    for deed in now:
        done[deed.kind, deed.id].append(deed)
    for deed in then:
        same = done[deed.kind, deed.id]
        if not same:
            continue
        one = same.pop(0)
        if one.name != deed.name or not _covers(one.input, deed.input):
            return _with_input(deed), _with_input(one)
    return "", ""


def _covers(now: Sequence[bytes], then: Sequence[bytes]) -> bool:
    """Are they alike, but for arguments that only one of them names? Those hold their defaults: the journal says so."""
    return len(now) == len(then) and all(
        new == old or _holds(_read(new), _read(old)) for new, old in zip(now, then, strict=True)
    )


def _read(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data  # other people's, in a form of their own


def _holds(now: Any, then: Any) -> bool:
    if isinstance(now, dict) and isinstance(then, dict):
        return all(_holds(now[name], then[name]) for name in now.keys() & then.keys() - DERIVED)
    return bool(now == then)


def _with_input(deed: Deed) -> str:
    shown = ", ".join(data.decode(errors="replace") for data in deed.input)
    return f"{deed} with {shown if len(shown) <= SHOWN else shown[:SHOWN] + '…'}"
