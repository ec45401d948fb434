"""An entity inside a Temporal workflow, and counts of the messages that it did not take."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy

from semel.codec import decoder_of
from semel.contract.lifecycle import Status
from semel.define.entity import Entity
from semel.engines.temporal.entity_carryover import Packed, Row, pack, unpack
from semel.engines.temporal.entity_turns import AnsweredKeys, read, rests, row_of, written
from semel.engines.temporal.inside.commands import Commands
from semel.engines.temporal.inside.host import FlowHost, Patching, warn_of_conflicts
from semel.engines.temporal.inside.message_counts import MessageCounts
from semel.engines.temporal.inside.task import memo_of_this
from semel.engines.temporal.memo import FAILED_MESSAGES
from semel.engines.temporal.names import updates_of
from semel.engines.temporal.payloads import unwrap, wrap
from semel.engines.temporal.worker_requests import INHERIT
from semel.flow import snapshot
from semel.flow.commands import Kind
from semel.flow.entity import Actor
from semel.flow.entity_messages import Seen, SeenRow
from semel.flow.entries import NOTHING, Signalled, stored
from semel.flow.instance import Instance
from semel.flow.snapshot import Snapshot
from semel.flow.turn import Arrival, Ended, Turn
from semel.settings import Settings

MESSAGES: Final = "semel:messages"
LONG: Final = 1000
"""Events of history after which an entity begins anew, as soon as it has nothing under way."""
STATE_BYTES: Final = 1 << 20
"""A state of at most so many can always be carried to a new history; a message that makes it larger fails."""
MAIL_BYTES: Final = 400_000
"""Messages that wait are carried too. While there are more bytes of them they are handled first."""


class EntityMessage(Struct, array_like=True, frozen=True):
    """A message on its way: `at` is when it was sent, since it may wait for long until there is a worker."""

    name: str
    payload: Raw
    key: str | None
    at: int


read_letters: Final = decoder_of(list[EntityMessage]).decode


class _Actor(Patching, Actor):
    """An entity whose patches are Temporal's."""

    def recorded(self, kind: Kind, name: str) -> bool:
        """See Instance. There is no marker to ask for: a turn that asks for nothing is not run again when replayed."""
        return False


class EntityHost(FlowHost):
    """One run of one entity."""

    def __init__(self, entity: Entity[Any], settings: Settings) -> None:
        super().__init__(replace(settings, max_payload=min(settings.max_payload, STATE_BYTES)))
        self._entity = entity
        self._answered = AnsweredKeys()
        self._last = Snapshot(b"{}")
        """What it was when it last rested."""
        self._fresh: Snapshot | None = None
        """What it begins anew with, once it has ended, for what came meanwhile."""
        self._live: _Actor | None = None
        """The code. None: it is not needed yet, since history tells what it came to."""
        self._stale = False
        """Is what the code came to in history, so that it goes on from there?"""
        self._held = False
        self._marked = False
        """Can it be found as one that has messages which failed?"""

    def receive(self, letters: RawValue) -> None:
        """Messages, in order. No clock of a sender is believed that is ahead."""
        now, source = self.clock.now(), self.count_signal(MESSAGES)
        for one in read_letters(unwrap(letters) or b"[]"):
            self.arrive(Signalled(one.name, one.payload, one.key), min(one.at, now), source)

    async def run(self, input: RawValue, carried: RawValue) -> RawValue:
        """See FlowHost."""
        try:
            return await super().run(input, carried)
        finally:
            if self._live is not None:
                self._live.close()

    async def _taken_over(self, carried: bytes | None) -> bytes | None:
        """From the run before; or from the entity that has ended under this key, since keys outlive it."""
        if carried is not None or self.card.previous is None:
            return carried
        found: RawValue = await workflow.execute_activity(
            INHERIT,
            wrap(msgspec.json.encode(self.card.previous)),
            result_type=RawValue,
            start_to_close_timeout=timedelta(minutes=1),
            retry_policy=RetryPolicy(),
        )
        return unwrap(found)

    async def _instance(self, input: bytes, carried: bytes | None) -> Instance:
        self._who, self._tally = self._identity(input), MessageCounts()
        carried = await self._taken_over(carried)
        if carried is not None:
            taken = unpack(carried)
            if taken.start != NOTHING:
                self._last = snapshot.load(bytes(taken.start))
            for row in taken.rows:
                self._answered.put(row)
        self._live = self._actor()
        self.commands = Commands(self, self._live)
        return self._live

    def _actor(self) -> _Actor:
        """The code, as it goes on from when it last rested."""
        rows = [_seen_row(row) for row in self._answered.rows.values()]
        actor = _Actor(self._entity, self._who, self.settings, self._last, Seen(self._entity.fresh_window(), rows))
        actor.outer = asyncio.get_running_loop()
        self._cover(actor)
        actor.watched = self.events is not None and self.events.events.wants_ends
        if self._held:
            actor.hold(MAIL_BYTES)
        return actor

    async def _serve(self, instance: Instance) -> Ended:
        while True:
            ended = await super()._serve(instance)
            await self._through(self.commands.settled())
            if not self._arrivals or self._fresh is None:
                break
            instance = await self._again(instance, self._fresh)  # came while it ended
        return msgspec.structs.replace(ended, output=self._pack().data) if ended.status is Status.COMPLETED else ended

    async def _again(self, instance: Instance, taken: Snapshot) -> Instance:
        """It has ended, and there is more to do: no need for another history."""
        instance.close()
        self._last = taken
        self._live = self._actor()
        return self._live

    async def _turn(self, instance: Instance, arrivals: Sequence[Arrival]) -> Turn:
        """Run its code, and write down what that came to; or take it from history, where that is written already."""
        while True:
            turn = None if workflow.unsafe.is_replaying() else await self._run(arrivals)
            then = await self._through(self.commands.write(b"null" if turn is None else written(turn)))
            if turn is not None:
                return turn
            if then is not None:
                break
        rest = read(then)
        turn = Turn() if rest.rests and not rest.asks else await self._run(arrivals, rest.frees_keys)
        if rest.rests:
            rest.onto(turn)
            self._stale = True
        return turn

    async def _run(self, arrivals: Sequence[Arrival], frees_keys: bool = True) -> Turn:
        if self._live is None:
            self._live = self._actor()
        self._live.frees_keys = frees_keys
        return await super()._turn(self._live, arrivals)

    async def _note(self, instance: Instance, turn: Turn) -> bytes | None:
        await super()._note(self._live or instance, turn)
        self._fresh = turn.fresh
        for reply in turn.replies:
            self._answered.put(row_of(reply))
        for number in turn.forgotten:
            self._answered.drop(number)
        if turn.snapshot is not None:
            self._last = turn.snapshot
        warn_of_conflicts(self._who.key, turn.conflicts)
        self._tally.add(
            self.clock.now(), seen=turn.hits, overflowed=turn.overflowed, message_differs=len(turn.conflicts)
        )
        self._mark_failed(turn)
        if self._stale and self._live is not None:
            self._live.close()
            self._live = None
        self._stale = False
        if _is_long():
            self._held = True
            if self._live is not None:
                self._live.hold(MAIL_BYTES)
        return None

    def _mark_failed(self, turn: Turn) -> None:
        """Let `semel doctor` find it while it has messages that failed."""
        failing = bool(self._answered.failed)
        if failing == self._marked and not (failing and any(c.kind is Kind.ATTRIBUTE for c in turn.commands)):
            return
        self._marked = failing
        also = [FAILED_MESSAGES] if failing else []
        workflow.upsert_search_attributes(updates_of(self.card, self._last.attributes, (), also))

    async def _rest(self, instance: Instance, turn: Turn) -> None:
        """Between two messages its state is all there is to know: the moment to begin a new history."""
        if rests(turn) and turn.snapshot is not None and _is_long():
            await self.commands.settled()
            if not self._arrivals:
                self._begin_history(turn.snapshot)
        await super()._rest(instance, turn)

    def _begin_history(self, taken: Snapshot) -> None:
        """Nothing is lost on the way: Temporal takes this back if another message has come, and tells of that first."""
        packed = self._pack(snapshot.dump(taken))
        self._tally.add(self.clock.now(), overflowed=packed.keys)
        workflow.continue_as_new(args=[wrap(b"{}"), wrap(packed.data)], memo=memo_of_this())

    def _pack(self, start: bytes | None = None) -> Packed:
        packed = pack(list(self._answered.rows.values()), start)
        if packed.answers or packed.keys:
            workflow.logger.warning(
                "%s: %s answers and %s keys within its window are forgotten, the oldest ones: together they are larger "
                "than the cluster takes. Answer less, or declare a shorter window or fewer max_keys.",
                self._who.key,
                f"{packed.answers:,}",
                f"{packed.keys:,}",
            )
        return packed

    def _set_alarm(self, due: int | None) -> None:
        """An alarm that is too early is kept, and looks again: else each message costs two events of a timer."""
        if self._alarm is not None and due is not None:
            then, ahead, _ = self._alarm
            if then <= due and ahead == self.clock.ahead:
                return
        super()._set_alarm(due)


def _seen_row(row: Row) -> SeenRow:
    failed = None if row.name is None else len(stored(row.body) or b"")
    return SeenRow(row.n, row.key, row.at, row.mark, failed)


def _is_long() -> bool:
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() > LONG
