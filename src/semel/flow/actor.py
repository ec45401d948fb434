"""An entity in memory: a flow that serves one message after the other, and forgets its journal whenever it rests."""

from __future__ import annotations

import contextvars
import logging
from collections import deque
from typing import Any, Final

from semel.contract.lifecycle import Status
from semel.contract.window import DedupWindow
from semel.define.entity import Entity
from semel.engine.outcomes import describe
from semel.errors import Forbidden, NonDeterminism, NotFound
from semel.flow.context import EntityContext
from semel.flow.entries import FORMAT, NOTHING, Began, Happening, Signalled
from semel.flow.instance import Instance
from semel.flow.loop import FlowFuture
from semel.flow.snapshot import Snapshot
from semel.flow.turn import Ended, Identity, Reply, Turn
from semel.settings import Settings

log = logging.getLogger("semel.entity")
IDLE: Final = "idle"


class Actor(Instance):
    """One entity. Between two messages, with nothing under way, its state is all there is to know of it."""

    def __init__(
        self, entity: Entity[Any], who: Identity, settings: Settings, start: Snapshot, seen: DedupWindow, kept: int
    ) -> None:
        super().__init__(entity, who, settings, start)
        self.entity = entity
        self.state: Any = None
        self.active = start.active
        """When the last message came that was no duplicate."""
        self.over: Ended | None = None
        self._seen = seen
        self._kept = kept
        """The number of the last key that was written down."""
        self._forgotten = kept - len(seen)
        self._mail: deque[Signalled] = deque(start.signals)
        self._bell: FlowFuture | None = None
        self._unwritten = 0
        """Keyed messages that have come and are not yet done."""
        self._resting = False
        self._mark: Snapshot | None = None

    def _begin(self) -> None:
        self.state = self.entity.decode_state(self._start.input)
        self.active = self.active or self.loop.now
        self._unwritten = sum(message.key is not None for message in self._mail)
        context = contextvars.Context()
        self._main = self.loop.create_task(context.run(self._serve), context=context)

    async def _serve(self) -> None:
        ctx = EntityContext(self)
        while self.over is None:
            if not self._mail:
                self._bell = self.loop.create_future()
                await self._bell
                self._bell = None
            message = self._mail.popleft()
            before = self.entity.encode_state(self.state, self.settings.max_payload)
            try:
                answer = await self._handle(ctx, message)
                self.entity.encode_state(self.state, self.settings.max_payload)
            except (Forbidden, NonDeterminism):
                raise
            except Exception as error:
                log.exception("%s: the handler of %r raised; nothing of it is kept", self.who.key, message.name)
                self.state = self.entity.decode_state(before)
                self.over = None
                answer = Reply("", Status.FAILED, None, describe(error))
            self._done(message, answer)

    async def _handle(self, ctx: EntityContext, message: Signalled) -> Reply:
        if message.id == IDLE and self.entity.idle is not None:
            await self.entity.idle.fn(self.state, ctx)
            return Reply("", Status.COMPLETED)
        handler = self.entity.handlers.get(message.name)
        if handler is None:
            raise NotFound(f"entity {self.who.name!r} has no handler {message.name!r} (any more).")
        args, kwargs = handler.shape.decode_input(bytes(message.payload))
        value = await handler.fn(self.state, ctx, *args, **kwargs)
        return Reply("", Status.COMPLETED, handler.shape.encode_result(value, self.settings.max_payload))

    def _done(self, message: Signalled, answer: Reply) -> None:
        self.active = self.loop.now
        if message.key is not None:
            self._unwritten -= 1
            self._kept += 1
            if self._expected is None:
                done = Reply(message.key, answer.status, answer.output, answer.error, self._kept, self.loop.now)
                self._turn.replies.append(done)

    def _deliver(self, signal: Signalled) -> None:
        self._mail.append(signal)
        if signal.key is not None:
            self._unwritten += 1
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    def _concerns(self, what: Happening) -> bool:
        if super()._concerns(what):
            return True
        if isinstance(what, Signalled):
            self._turn.hits += 1
        return False

    def _overdue(self, now: int) -> Happening | None:
        due = self._idle_at()
        return Signalled("", NOTHING, None, IDLE) if self._resting and due is not None and due <= now else None

    def _idle_at(self) -> int | None:
        idle = self.entity.idle
        return None if idle is None else self.active + int(idle.after.total_seconds() * 1_000_000)

    def _feed(self, what: Happening) -> None:
        if self._resting:
            self._mark = self._snapshot()
            self._resting = False
        super()._feed(what)
        self._rest()

    def _rest(self) -> None:
        """With nothing under way, what was before does not matter any more: it begins anew, as from a snapshot."""
        waits = self._bell is not None and not self._bell.done() and not self._mail
        if not waits or self.pending or self._next_timer() is not None or self.loop.alive > 1:
            return
        self._resting = True
        self._mark = None
        self._renew()
        self.entries = 0
        self._turn.entries = [Began(FORMAT, 1, self.run, self.loop.now)]

    def _snapshot(self) -> Snapshot:
        state = self.entity.encode_state(self.state, self.settings.max_payload)
        return Snapshot(state, self.run, self._numbers, dict(self.counts), dict(self.attributes), active=self.active)

    def _conclude(self, turn: Turn) -> None:
        super()._conclude(turn)
        if turn.ended is not None and self.over is not None:
            turn.ended = self.over
            self.run += 1
            turn.fresh = Snapshot(b"{}", self.run, self._numbers, signals=tuple(self._mail))
        if self._resting:
            self._mark = self._snapshot()
            turn.entries = []
            turn.due = self._idle_at()
        turn.snapshot = self._mark
        upto = self._kept - (len(self._seen) - self._unwritten)
        if upto > self._forgotten:
            self._forgotten = turn.forgotten = upto
