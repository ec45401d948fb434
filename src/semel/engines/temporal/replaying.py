"""Runs today's code against a history of Temporal, here and without a worker: nothing is written or performed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer

from semel.define.registry import Registry
from semel.define.workflow import Workflow
from semel.engine.protocol import Replayed
from semel.engines.temporal.classes import class_of, runner
from semel.engines.temporal.deeds import Deed, Witness, recorded
from semel.engines.temporal.hosting import FlowHost
from semel.engines.temporal.reading import Reader, Seen
from semel.settings import Settings

SHOWN = 120
"""Characters of an input that an error shows."""


@dataclass(frozen=True, slots=True)
class Again:
    """What came of a replay."""

    host: FlowHost | None
    """Where the code ran; None: it did not begin."""
    error: str = ""
    """Why a worker with this code would not go on; empty if it would."""
    expected: str = ""
    found: str = ""


async def replay(
    history: WorkflowHistory, registry: Registry, settings: Settings, namespace: str,
    converter: DataConverter = DataConverter.default,
) -> Again:  # fmt: skip
    """Do again what a history says, with the inputs of tasks, children, steps, signals and timers compared too."""
    witness = Witness()
    name = history.events[0].workflow_execution_started_event_attributes.workflow_type.name
    replayer = Replayer(
        workflows=[class_of(registry, registry[name], settings)], workflow_runner=runner(registry),
        namespace=namespace, data_converter=converter, interceptors=[witness.interceptor()],
    )  # fmt: skip
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    then, now = recorded(history), witness.deeds
    failure = result.replay_failure
    expected, found = _other_deeds(then, now) if failure is not None else _other_inputs(then, now)
    if failure is None and not expected:
        return Again(witness.host)
    why = f"its history says {expected or 'something else'}, its code now does {found or 'something else'}"
    if failure is not None:
        why += f" ({failure})"
    text = f"workflow {history.workflow_id!r} ({name}) cannot go on: {why}. {NEXT}"
    return Again(witness.host, text, expected, found)


NEXT = "Deploy code that does what the history says, or put the change behind ctx.patched('…')."


async def try_replay(
    client: Client, reader: Reader, id: str, registry: Registry, settings: Settings
) -> Replayed | None:
    """Would this code go on with what an execution has recorded? None: there is no such execution, or no code."""
    seen = await reader.find(id)
    if seen is None or not isinstance(registry.get(seen.card.name), Workflow):
        return None
    again = await replay(await history_of(client, seen), registry, settings, client.namespace, client.data_converter)
    key = seen.card.key or seen.info.execution.workflow_id
    return Replayed(seen.id, seen.card.name, key, again.error, again.expected, again.found)


async def history_of(client: Client, seen: Seen) -> WorkflowHistory:
    """What happened in one run of a workflow."""
    execution = seen.info.execution
    return await client.get_workflow_handle(execution.workflow_id, run_id=execution.run_id).fetch_history()


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
        if (one.name, one.input) != (deed.name, deed.input):
            return _with_input(deed), _with_input(one)
    return "", ""


def _with_input(deed: Deed) -> str:
    shown = ", ".join(data.decode(errors="replace") for data in deed.input)
    return f"{deed} with {shown if len(shown) <= SHOWN else shown[:SHOWN] + '…'}"
