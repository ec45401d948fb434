"""An entity inside a workflow of Temporal: it goes on for years, so it begins anew whenever its history gets long."""

from __future__ import annotations

import asyncio
import zlib
from base64 import b64decode, b64encode
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from temporalio import workflow
from temporalio.common import RawValue

from semel.define.entity import Entity
from semel.engines.temporal.commanding import Commands
from semel.engines.temporal.hosting import FlowHost, Patching
from semel.engines.temporal.payloads import wrap
from semel.flow import snapshot
from semel.flow.actor import Actor
from semel.flow.instance import Instance
from semel.flow.replies import dump as dump_reply
from semel.flow.seen import Seen
from semel.flow.snapshot import Snapshot
from semel.flow.turn import Identity, Turn
from semel.settings import Settings

MESSAGE: Final = "semel:message"
ANSWER: Final = "semel:answer"
STATE: Final = "semel:state"
LONG: Final = 1000
"""Events of history after which an entity that rests begins anew."""


class _Carried(Struct, array_like=True):
    """What goes from run to run: a snapshot, and the keys that were seen with their answers."""

    start: Raw
    rows: list[tuple[int, str, int, Raw]]
    skipped: int = 0


class _Actor(Patching, Actor):
    """An entity whose patches are Temporal's."""


class EntityHost(FlowHost):
    """One run of one entity."""

    def __init__(self, entity: Entity[Any], settings: Settings) -> None:
        super().__init__(settings)
        self._entity = entity
        self._replies: dict[str, tuple[int, int, bytes]] = {}
        """Answers by key: number, when, what."""
        self._keys: dict[int, str] = {}
        self._last: Snapshot | None = None
        """What it was when it last rested."""
        self._began = False

    async def _instance(self, who: Identity, input: bytes, carried: bytes | None) -> Instance:
        start = Snapshot(b"{}")
        if carried is not None:
            taken = _unpack(carried)
            start = snapshot.load(bytes(taken.start))
            self.clock.skipped = taken.skipped
            for n, key, at, reply in taken.rows:
                self._replies[key], self._keys[n] = (n, at, bytes(reply)), key
        self._last = None if carried is None else start
        self._who = who
        self._seen = Seen(self._entity.fresh_window(), ((n, key, at) for key, (n, at, _) in self._replies.items()))
        actor = self._actor(start)
        self.commands = Commands(self, actor)
        return actor

    def _actor(self, start: Snapshot) -> Instance:
        actor = _Actor(self._entity, self._who, self.settings, start, self._seen)
        actor.outer = asyncio.get_running_loop()
        return actor

    async def _note(self, instance: Instance, turn: Turn) -> bytes | None:
        await super()._note(instance, turn)
        self._began = True
        for reply in turn.replies:
            self._replies[reply.key] = (reply.n, reply.at, dump_reply(reply))
            self._keys[reply.n] = reply.key
        for number in turn.forgotten:
            key = self._keys.pop(number, None)
            if key is not None and self._replies.get(key, (0,))[0] == number:
                del self._replies[key]
        if turn.snapshot is not None:
            self._last = turn.snapshot
        return None

    async def _rest(self, instance: Instance, turn: Turn) -> None:
        """Between two messages its state is all there is to know: the moment to begin a new history."""
        info = workflow.info()
        long = info.is_continue_as_new_suggested() or info.get_current_history_length() > LONG
        if long and turn.snapshot is not None and not turn.entries:
            await self._again(turn.snapshot)
        await super()._rest(instance, turn)

    async def _again(self, taken: Snapshot) -> None:
        await self.commands.settled()
        await workflow.wait_condition(workflow.all_handlers_finished)
        if self._arrivals:
            return  # came while the last answers were given: they are not for the next run to find
        rows = [(n, key, at, Raw(reply)) for key, (n, at, reply) in self._replies.items()]
        carried = _pack(_Carried(Raw(snapshot.dump(taken)), rows, self.clock.skipped))
        workflow.continue_as_new(args=[wrap(b"{}"), wrap(carried)])

    async def answer(self, key: str) -> RawValue:
        """Wait for what is answered to the message with this key."""
        await workflow.wait_condition(lambda: key in self._replies)
        return wrap(self._replies[key][2])

    def state(self) -> RawValue:
        """Its snapshot after its last message; nothing while it has had none."""
        return wrap(None if self._last is None else snapshot.dump(self._last))


def _pack(carried: _Carried) -> bytes:
    """Small: ten thousand keys are a megabyte, and a payload has two at most."""
    packed = b64encode(zlib.compress(msgspec.json.encode(carried))).decode()
    return msgspec.json.encode({"zlib": packed})


def _unpack(data: bytes) -> _Carried:
    packed = msgspec.json.decode(data)["zlib"]
    return msgspec.json.decode(zlib.decompress(b64decode(packed)), type=_Carried)
