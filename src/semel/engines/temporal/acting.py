"""An entity inside a workflow of Temporal: it goes on for years, so it begins anew whenever its history gets long."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy

from semel.contract.lifecycle import Status
from semel.define.entity import Entity
from semel.engines.temporal.bridge import INHERIT
from semel.engines.temporal.carrying import Packed, Row, pack, unpack
from semel.engines.temporal.commanding import Commands
from semel.engines.temporal.hosting import FlowHost, Patching
from semel.engines.temporal.payloads import unwrap, wrap
from semel.engines.temporal.tally import Tally
from semel.flow import snapshot
from semel.flow.actor import Actor
from semel.flow.entries import Signalled
from semel.flow.instance import Instance
from semel.flow.replies import dump as dump_reply
from semel.flow.seen import Seen
from semel.flow.snapshot import Snapshot
from semel.flow.turn import Ended, Turn
from semel.settings import Settings

MESSAGES: Final = "semel:messages"
ANSWERS: Final = "semel:answers"
STATE: Final = "semel:state"
KEYS: Final = "semel:keys"
LONG: Final = 1000
"""Events of history after which an entity begins anew, as soon as it has nothing under way."""
STATE_BYTES: Final = 1 << 20
"""A state of at most so many can always be carried to a new history; a message that makes it larger fails."""
MAIL_BYTES: Final = 400_000
"""Messages that wait are carried too. While there are more bytes of them they are handled first."""
TOLD_BYTES: Final = 1 << 20
"""Answers in the reply to one question; who asked for others asks again."""


class Letter(Struct, array_like=True, frozen=True):
    """A message on its way: `at` is when it was sent, since it may wait for long until there is a worker."""

    name: str
    payload: Raw
    key: str | None
    at: int


class Told(Struct, array_like=True, frozen=True):
    """Answers by key, NOTHING where one was given up, and the first run of the execution that they are from."""

    first_run: str
    answers: dict[str, Raw]


class _Actor(Patching, Actor):
    """An entity whose patches are Temporal's."""


class EntityHost(FlowHost):
    """One run of one entity."""

    def __init__(self, entity: Entity[Any], settings: Settings) -> None:
        super().__init__(replace(settings, max_payload=min(settings.max_payload, STATE_BYTES)))
        self._entity = entity
        self._rows: dict[str, Row] = {}
        """The keys that were seen, oldest first."""
        self._keys: dict[int, str] = {}
        self._last: Snapshot | None = None
        """What it was after its last message."""
        self._fresh: Snapshot | None = None
        """What it begins anew with, once it has ended, for what came meanwhile."""
        self._began = False

    def receive(self, letters: RawValue) -> None:
        """Messages, in order. No clock of a sender is believed that is ahead."""
        now = self.clock.now()
        for one in msgspec.json.decode(unwrap(letters) or b"[]", type=list[Letter]):
            self.arrive(Signalled(one.name, one.payload, one.key), min(one.at, now))

    async def _taken_over(self, carried: bytes | None) -> bytes | None:
        """From the run before; or from the entity that has ended under this key, since keys outlive it."""
        if carried is not None or self.card.previous is None:
            return carried
        found: RawValue = await workflow.execute_activity(
            INHERIT, wrap(msgspec.json.encode(self.card.previous)), result_type=RawValue,
            start_to_close_timeout=timedelta(minutes=1), retry_policy=RetryPolicy(),
        )  # fmt: skip
        return unwrap(found)

    async def _instance(self, input: bytes, carried: bytes | None) -> Instance:
        start, self._tally = Snapshot(b"{}"), Tally()
        carried = await self._taken_over(carried)
        if carried is not None:
            taken = unpack(carried)
            if bytes(taken.start) != b"null":
                start = self._last = snapshot.load(bytes(taken.start))
                self.clock.skipped = taken.skipped
            for row in taken.rows:
                self._rows[row.key], self._keys[row.n] = row, row.key
        self._who, self._began = self._identity(input), True
        self._seen = Seen(self._entity.fresh_window(), ((row.n, row.key, row.at) for row in self._rows.values()))
        actor = self._actor(start)
        self.commands = Commands(self, actor)
        return actor

    def _actor(self, start: Snapshot) -> _Actor:
        actor = _Actor(self._entity, self._who, self.settings, start, self._seen)
        actor.outer = asyncio.get_running_loop()
        return actor

    async def _serve(self, instance: Instance) -> Ended:
        while True:
            ended = await super()._serve(instance)
            await self.commands.settled()
            if not self._arrivals or self._fresh is None:
                break
            instance = self._actor(self._fresh)  # came while it ended
        return replace(ended, output=self._pack().data) if ended.status is Status.COMPLETED else ended

    async def _again(self, instance: Instance, taken: Snapshot) -> Instance:
        """It has ended, and there is more to do: no need for another history."""
        self._last = taken
        return self._actor(taken)

    async def _note(self, instance: Instance, turn: Turn) -> bytes | None:
        await super()._note(instance, turn)
        self._fresh = turn.fresh
        for reply in turn.replies:
            self._rows.pop(reply.key, None)  # its place is among the newest
            self._rows[reply.key] = Row(reply.n, reply.key, reply.at, Raw(dump_reply(reply)))
            self._keys[reply.n] = reply.key
        for number in turn.forgotten:
            key = self._keys.pop(number, None)
            if key is not None and self._rows[key].n == number:
                del self._rows[key]
        if turn.snapshot is not None:
            self._last = turn.snapshot
        self._tally.add(self.clock.now(), seen=turn.hits, overflowed=turn.overflowed)
        if isinstance(instance, Actor) and _is_long():
            instance.hold(MAIL_BYTES)
        return None

    async def _rest(self, instance: Instance, turn: Turn) -> None:
        """Between two messages its state is all there is to know: the moment to begin a new history."""
        if turn.snapshot is not None and not turn.entries and _is_long():
            await self.commands.settled()
            if not self._arrivals:
                self._begin_history(turn.snapshot)
        await super()._rest(instance, turn)

    def _begin_history(self, taken: Snapshot) -> None:
        """Nothing is lost on the way: Temporal takes this back if another message has come, and tells of that first."""
        packed = self._pack(snapshot.dump(taken))
        self._tally.add(self.clock.now(), overflowed=packed.keys)
        workflow.continue_as_new(args=[wrap(b"{}"), wrap(packed.data)])

    def _pack(self, start: bytes | None = None) -> Packed:
        packed = pack(list(self._rows.values()), start, self.clock.skipped)
        if packed.answers or packed.keys:
            workflow.logger.warning(
                "%s: %s answers and %s keys within its window are forgotten, the oldest ones: together they are larger "
                "than the cluster takes. Answer less, or declare a shorter window or fewer max_keys.",
                self._who.key, f"{packed.answers:,}", f"{packed.keys:,}",
            )  # fmt: skip
        return packed

    def _set_alarm(self, due: int | None) -> None:
        """An alarm that is too early is kept, and looks again: else each message costs two events of a timer."""
        if self._alarm is not None and due is not None:
            then, skipped, _ = self._alarm
            if then <= due and skipped == self.clock.skipped:
                return
        super()._set_alarm(due)

    def answers(self, keys: RawValue) -> RawValue:
        """What was answered to the messages with these keys; those that have no answer yet are left out."""
        found: dict[str, Raw] = {}
        room = TOLD_BYTES
        for key in msgspec.json.decode(unwrap(keys) or b"[]", type=list[str]):
            row = self._rows.get(key)
            if row is not None and room > 0:
                found[key] = row.reply
                room -= len(bytes(row.reply))
        return wrap(msgspec.json.encode(Told(workflow.info().first_execution_run_id, found)))

    def state(self) -> RawValue:
        """Its snapshot after its last message; nothing while it has had none."""
        return wrap(None if self._last is None else snapshot.dump(self._last))

    def keys(self) -> RawValue:
        """What another one under the same key inherits; nothing while it does not know itself."""
        return wrap(self._pack().data if self._began else None)


def _is_long() -> bool:
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() > LONG
