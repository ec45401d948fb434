"""A flow inside a workflow of Temporal.

Semel's own instance runs the code, as on every engine: it is fed what arrives, and says what the code asked for.
Temporal makes both durable: what arrives comes from its history, what is asked for becomes its commands. So `ctx`,
signals, cancellation and entities mean the same everywhere.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
from temporalio import workflow
from temporalio.common import RawValue, SearchAttributeKey

from semel.define.workflow import Workflow
from semel.engines.temporal.card import PUBLISHED, Card
from semel.engines.temporal.clock import Clock
from semel.engines.temporal.commanding import Commands
from semel.engines.temporal.concluding import conclude
from semel.engines.temporal.names import execution_id
from semel.engines.temporal.payloads import unwrap, wrap
from semel.engines.temporal.tasking import card_of_this
from semel.errors import NonDeterminism
from semel.flow import entries, snapshot
from semel.flow.commands import Kind
from semel.flow.entries import Happening, Stopped
from semel.flow.instance import Instance
from semel.flow.snapshot import Snapshot
from semel.flow.turn import Arrival, Ended, Identity, Turn
from semel.settings import Settings

ATTRIBUTES: Final = SearchAttributeKey.for_keyword_list("SemelAttributes")
BASELINE: Final = "semel.version."
"""How markers begin that say which version of a workflow a run began with."""


class Patching(Instance):
    """An instance whose patches are Temporal's, since it is Temporal that replays."""

    outer: asyncio.AbstractEventLoop

    def patched(self, name: str) -> bool:
        """See Instance."""
        if name not in self._patches:
            inner = events._get_running_loop()
            events._set_running_loop(self.outer)  # Temporal knows its workflow by its loop
            try:
                self._patches[name] = workflow.patched(name)
            finally:
                events._set_running_loop(inner)
        return self._patches[name]


class FlowHost:
    """One run of one flow."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = Clock()
        self.card = Card("workflow", "")
        self.journal: list[bytes] = []
        """What this run did, as the other engines would have it in their journal."""
        self.marks: list[int] = []
        """For each of its rows: how long Temporal's history was."""
        self._arrivals: list[Arrival] = []
        self._alarm: tuple[int, int, asyncio.TimerHandle] | None = None
        self._rung = False
        self.on_alarm: Callable[[object, float], None] | None = None
        """Hears of timers while a history is replayed."""

    def arrive(self, what: Happening) -> None:
        """Something for the code to know of."""
        self._arrivals.append(Arrival(self.clock.now(), what))

    async def run(self, input: RawValue, carried: RawValue) -> RawValue:
        """Serve the code to its end; raises what tells Temporal how else it ended."""
        self.card = card_of_this()
        if not self.clock.skipped:
            self.clock.skipped = self.card.skipped
        data = unwrap(input) or b"{}"
        instance = self._instance(self._identity(data), data, unwrap(carried))
        self.commands = Commands(self, instance)
        try:
            ended = await self._serve(instance)
            await self.commands.settled()
            return conclude(ended)
        finally:
            self.commands.forget()

    def _identity(self, input: bytes) -> Identity:
        info, card = workflow.info(), self.card
        first = info.first_execution_run_id
        return Identity(
            execution_id(first, info.workflow_id), card.key or info.workflow_id, card.name, info.namespace,
            info.task_queue, card.generation, input, card.parent, execution_id(first, info.workflow_id),
        )  # fmt: skip

    def _instance(self, who: Identity, input: bytes, carried: bytes | None) -> Instance:
        raise NotImplementedError

    async def _serve(self, instance: Instance) -> Ended:
        while True:
            arrivals, self._arrivals = self._arrivals, []
            self._rung = False
            turn = instance.turn(self.clock.now(), arrivals)
            _refuse_what_temporal_refuses(instance)
            self._note(instance, turn)
            self.commands.carry_out(turn)
            if turn.again is not None:
                await self._again(turn.again)
            if turn.ended is not None:
                if not self._arrivals or await self._stays_ended(turn):
                    return turn.ended
                continue
            if not self._arrivals:
                self._set_alarm(turn.due)
                await self._rest(instance, turn)

    async def _rest(self, instance: Instance, turn: Turn) -> None:
        try:
            await workflow.wait_condition(lambda: bool(self._arrivals) or self._rung)
        except asyncio.CancelledError:
            if _leaving():
                raise
            self.arrive(Stopped())

    async def _stays_ended(self, turn: Turn) -> bool:
        """Something came while the code returned: a workflow ends nevertheless."""
        return True

    async def _again(self, taken: Snapshot) -> None:
        await self.commands.settled()
        workflow.continue_as_new(args=[wrap(taken.input), wrap(snapshot.dump(taken))])

    def _note(self, instance: Instance, turn: Turn) -> None:
        if turn.entries:
            self.journal.append(entries.dump(turn.entries))
            self.marks.append(workflow.info().get_current_history_length())
        if any(c.kind is Kind.ATTRIBUTE for c in turn.commands):
            values = [f"{name}={value}" for name, value in sorted(instance.attributes.items())]
            workflow.upsert_search_attributes([ATTRIBUTES.value_set(values)])
        published = {PUBLISHED + c.name: c.payload for c in turn.commands if c.kind is Kind.PUBLISH}
        if published:
            workflow.upsert_memo({name: msgspec.json.decode(data or b"null") for name, data in published.items()})

    def _set_alarm(self, due: int | None) -> None:
        """One timer at a time, kept while it is the right one: each is two events of history."""
        if self._alarm is not None:
            if self._alarm[:2] == (due, self.clock.skipped):
                return
            self._alarm[2].cancel()
            self._alarm = None
        if due is not None:
            wait = max(0.0, (due - self.clock.now()) / 1e6)
            handle = asyncio.get_running_loop().call_later(wait, self._ring)
            self._alarm = (due, self.clock.skipped, handle)
            if self.on_alarm is not None:
                self.on_alarm(handle, wait)

    def _ring(self) -> None:
        self._alarm = None
        self._rung = True

    def skip(self, micros: int) -> None:
        """Move the clock."""
        self.clock.skip(micros)
        self._rung = True


class WorkflowHost(FlowHost):
    """One run of one workflow. `versions` are the functions of its name that there are."""

    def __init__(self, versions: Sequence[Workflow[..., Any]], settings: Settings) -> None:
        super().__init__(settings)
        self._versions = sorted(versions, key=lambda one: one.version, reverse=True)

    def _instance(self, who: Identity, input: bytes, carried: bytes | None) -> Instance:
        start = Snapshot(input) if carried is None else snapshot.load(carried)
        made = Patching(self._version(), who, self.settings, start)
        made.outer = asyncio.get_running_loop()
        return made

    def _version(self) -> Workflow[..., Any]:
        """The newest for a run that begins, and for others the one they began with."""
        for one in self._versions:
            if workflow.patched(f"{BASELINE}{one.version}"):
                return one
        there = ", ".join(str(one.version) for one in reversed(self._versions))
        name = self._versions[0].name
        raise NonDeterminism(
            f"workflow {name!r} began with another version than this code has ({there}). It waits. Keep the old "
            "function until all that began with it ended.",
            expected="the version it began with", found=f"versions {there}",
        )  # fmt: skip


def _leaving() -> bool:
    """Is this workflow let go of here, to go on elsewhere? Temporal cancels all of it then, as if it were to stop."""
    return bool(getattr(asyncio.get_running_loop(), "_deleting", False))


def lease_of(settings: Settings) -> timedelta:
    """For how long a worker may be silent about an activity."""
    return settings.worker.lease


def _refuse_what_temporal_refuses(instance: Instance) -> None:
    """What the sandbox forbids is no failure of the workflow: it waits for code that does not do it."""
    main = instance._main
    if main is not None and main.done() and not main.cancelled():
        error = main.exception()
        if isinstance(error, workflow.NondeterminismError):
            raise error
