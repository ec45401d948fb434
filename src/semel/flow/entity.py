"""An entity in memory: a flow that serves one message after the other, and forgets its journal whenever it can."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from semel.contract.lifecycle import Status
from semel.contract.marks import compare_marks, message_mark
from semel.contract.records import ErrorInfo
from semel.contract.window import DedupWindow
from semel.define.entity import Entity
from semel.engine.outcomes import describe
from semel.errors import InputError, NonDeterminism
from semel.flow.commands import Command, Kind
from semel.flow.compare import refused
from semel.flow.context import EntityContext
from semel.flow.entity_messages import PRIVATE, REDRIVE, Seen, dump_conflict
from semel.flow.entries import FORMAT, NOTHING, Began, Entry, Happening, Resolved, Signalled
from semel.flow.instance import Instance
from semel.flow.loop import FlowFuture
from semel.flow.snapshot import Snapshot
from semel.flow.turn import Arrival, Ended, Identity, MessageEnd, Reply, Turn
from semel.settings import Settings

log = logging.getLogger("semel.entity")
IDLE: Final = "idle"
FEW: Final = 64
"""Waiting messages that may be written down again with every message; of more, only as the journal grows."""
_NO_KEYS: Final = DedupWindow()
"""Keys of an entity are not in its snapshot."""
_UNDONE: Final = (Kind.ENQUEUE, Kind.PUBLISH, Kind.SEND, Kind.CANCEL)


class _Message(Struct, frozen=True):
    """One that is under way, and what was before it."""

    what: Signalled
    state: bytes
    attributes: dict[str, str]
    number: int
    """Of the last command before it."""
    began: float
    """When this process began with it, by the performance counter; 0.0: nobody watches."""


class Actor(Instance):
    """One entity. Between two messages, with nothing under way, its state is all there is to know of it."""

    watched = False
    """Does somebody want to know of messages that are handled well?"""

    def __init__(self, entity: Entity[Any], who: Identity, settings: Settings, start: Snapshot, seen: Seen) -> None:
        super().__init__(entity, who, settings, start)
        self.entity = entity
        self.state: Any = None
        self.active = start.active
        """When the last message was handled that was no duplicate."""
        self.over: Ended | None = None
        self._known = seen
        self._mail: deque[Signalled] = deque(start.signals)
        self._bell: FlowFuture | None = None
        self._resting = False
        self._mark: Snapshot | None = None
        """What it was when it last had nothing under way; the entries of this turn are from then on."""
        self._encoded: bytes | None = None
        self._warned = False
        self._room: int | None = None
        """While it is held: how many bytes of messages may wait."""
        self._under_way: _Message | None = None
        self._careful = self._paused = False
        """Does each turn handle one message only, and has this one had its message?"""
        self._fail_next_with: ErrorInfo | None = None
        """What the message fails with that cost too many workers."""
        self.frees_keys = True
        """Does a message that fails free its key? Not where older code is replayed, which did not do so."""

    def hold(self, room: int) -> None:
        """Take no further message once nothing is under way, so that it can begin anew elsewhere with those that wait.

        With more than `room` bytes of them it goes on, since they would not fit through the door.
        """
        self._room = room

    def isolate_messages(self, careful: bool, fail_next_with: ErrorInfo | None = None) -> None:
        """`careful`: something is wrong with one of its messages, so let it commit after each, to know which it is.

        With `fail_next_with` that is known: what is under way, or else the next message, is not run any more and fails
        with it.
        """
        self._careful, self._paused, self._fail_next_with = careful, False, fail_next_with

    def _holds(self) -> bool:
        if (self._room is None and not self._paused) or not self._is_calm():
            return False
        if self._paused or self._room is None:
            return True
        return sum(len(bytes(message.payload)) for message in self._mail) <= self._room

    def _begin(self) -> None:
        self.state = self.entity.decode_state(self._start.input)
        self.active = self.active or self.loop.now
        for message in self._mail:
            if message.key is not None:
                self._remember(message)
        context = contextvars.Context()
        self._main = self.loop.create_task(context.run(self._serve), context=context)

    async def _serve(self) -> None:
        ctx = EntityContext(self)
        while self.over is None:
            while not self._mail or self._holds():
                self._bell = self.loop.create_future()
                await self._bell
                self._bell = None
            message = self._mail.popleft()
            self.count("")
            began = time.perf_counter() if self.watched else 0.0
            before = _Message(message, self._stored(), dict(self.attributes), self._numbers, began)
            self._under_way = before
            raised: BaseException | None = None
            try:
                answer = await self._handle(ctx, message)
                self._encoded = self.entity.encode_state(self.state, self.settings.max_payload)
            except (Exception, asyncio.CancelledError) as error:
                if refused(error) or (isinstance(error, asyncio.CancelledError) and self._stopped):
                    raise
                self._undo(before)
                answer, raised = Reply("", Status.FAILED, None, describe(error)), error
            self._done(message, answer, began, raised)
            raised = None  # else it and this frame hold each other for as long as the entity rests

    async def _handle(self, ctx: EntityContext, message: Signalled) -> Reply:
        if self._fail_next_with is not None and self._expected is None:
            error, self._fail_next_with = self._fail_next_with, None
            return Reply("", Status.FAILED, None, error)
        if message.id == IDLE and self.entity.idle is not None:
            await self.entity.idle.fn(self.state, ctx)
            return Reply("", Status.COMPLETED)
        handler = self.entity.handlers.get(message.name)
        if handler is None:
            raise self._unfit(message, "there is no such handler (any more)")
        try:
            args, kwargs = handler.shape.decode_input(bytes(message.payload))
        except InputError as error:
            raise self._unfit(message, error.message) from error
        value = await handler.fn(self.state, ctx, *args, **kwargs)
        return Reply("", Status.COMPLETED, handler.shape.encode_result(value, self.settings.max_payload))

    def _unfit(self, message: Signalled, why: str) -> NonDeterminism:
        """It was looked at when it was sent: it is the code that has changed since, so the message waits."""
        return NonDeterminism(
            f"entity {self.who.key!r}: its message {message.name!r} does not fit the code: {why.rstrip('.')}. It "
            "waits, and so do those behind it: deploy code that takes it."
        )

    def _undo(self, before: _Message) -> None:
        """A message has failed: the state is as it was, and what it asked for since it last waited is not done."""
        self.state = self.entity.decode_state(before.state)
        self._encoded = before.state
        self.over = None
        attributes, commands = before.attributes, self._turn.commands
        commands[:] = [c for c in commands if c.number <= before.number or c.kind not in _UNDONE]
        for name in sorted(attributes.keys() | self.attributes.keys()):
            if attributes.get(name) != self.attributes.get(name):
                self.ask(Command(Kind.ATTRIBUTE, name, attributes.get(name, "")))
        self.attributes.clear()
        self.attributes.update(attributes)

    def _done(self, message: Signalled, answer: Reply, began: float, raised: BaseException | None) -> None:
        self._under_way = None
        self.active = self.loop.now
        if self.loop.many:
            self._encoded = None  # what it has left running may change the state later
        if self._expected is not None:
            return
        self._tell(message, answer)
        self._report(message, answer, began, raised)
        self._paused = self._careful
        if self._mail and self.over is None and not self.loop.busy and self._is_calm():
            self._cut()

    def _tell(self, message: Signalled, answer: Reply) -> None:
        """The key counts as handled, and this is what its duplicates get; of one that failed it is free again."""
        self._turn.moved = True
        key, now = message.key, self.loop.now
        if answer.status is Status.FAILED and self.frees_keys and _may_be_redriven(message):
            payload = bytes(message.payload)
            row, kept = self._known.fail(key, now, len(payload))
            given = payload if kept else None
            reply = Reply(row.key, answer.status, None, answer.error, row.n, now, row.mark, message.name, given)
            self._turn.replies.append(reply)
        elif key is not None:
            mark, n = self._known.mark_of(key), self._known.done(key, now)
            self._turn.replies.append(Reply(key, answer.status, answer.output, answer.error, n, now, mark))

    def _report(self, message: Signalled, answer: Reply, began: float, raised: BaseException | None = None) -> None:
        """Let who watches this worker know of a message that failed, or of any if they want to."""
        if answer.status is Status.FAILED or self.watched:
            seconds = time.perf_counter() - began if began else None
            name = message.name or IDLE
            self._turn.messages.append(MessageEnd(name, answer.status, answer.error, raised, seconds))

    def _give_up(self, turn: Turn, now: int, error: ErrorInfo) -> None:
        """Begin anew without the message under way, which fails, or else without what was left running.

        Its code is not asked: it may be what workers die of.
        """
        turn.entries, turn.commands, turn.dropped = [], [], []
        self.loop.now = self.active = now
        if (message := self._under_way) is None:
            log.error("%s: what its handlers had left running is given up: %s", self.who.key, error.message)
        else:
            self._undo(message)
            failed = Reply("", Status.FAILED, None, error)
            self._tell(message.what, failed)
            self._report(message.what, failed, message.began)
        self.run += 1
        turn.entries, turn.moved, turn.again = [], True, self._snapshot(tuple(self._mail))

    def _cut(self) -> None:
        """Nothing is under way, and there is more to do: what was before does not matter any more."""
        if len(self._mail) > max(FEW, self.entries + len(self._turn.entries)):
            return
        self._renew(1)  # the task that serves
        self._mark_here()

    def _mark_here(self) -> None:
        """Write down what it is now, and from here on what happens."""
        self._mark = self._snapshot(tuple(self._mail))
        self._turn.entries = [Began(FORMAT, 1, self.run, self.loop.now)]

    def _deliver(self, signal: Signalled) -> None:
        self._mail.append(signal)
        self._ring()

    def _ring(self) -> None:
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    def _is_new(self, signal: Signalled, at: int) -> bool:
        key, mark = signal.key or "", _mark_of(signal)
        if self._known.push(key, at, mark):
            return True
        handler = self.entity.handlers.get(signal.name)
        differs = compare_marks(self._known.mark_of(key), mark, None if handler is None else handler.defaults)
        if differs is None:
            self._turn.hits += 1
        else:
            conflict = self._refuse(key, differs, at)
            row = self._known.refuse(at)
            output = dump_conflict(conflict)
            self._turn.replies.append(Reply(row.key, Status.FAILED, output, None, row.n, at))
        return False

    def _remember(self, signal: Signalled) -> None:
        self._known.remember(signal.key or "", self.loop.now, _mark_of(signal))

    def _overdue(self, now: int) -> tuple[int, Happening] | None:
        due = self._idle_at()
        rests = self._resting and not self._mail
        return (due, Signalled("", NOTHING, None, IDLE)) if rests and due is not None and due <= now else None

    def _idle_at(self) -> int | None:
        idle = self.entity.idle
        return None if idle is None else self.active + int(idle.after.total_seconds() * 1_000_000)

    def _take_in(self, turn: Turn, now: int, waiting: deque[Arrival]) -> None:
        error = self._fail_next_with
        if error is not None and self._main is not None and not self._resting:
            self._give_up(turn, now, error)
            return
        self._paused = False
        if self._careful and self._resting and self._mail and not self._holds():
            self._wake(now)
        super()._take_in(turn, now, waiting)

    def _deliver_next(self, turn: Turn, now: int, waiting: deque[Arrival]) -> None:
        """Messages that find it at rest come in together: as if it had begun with them all."""
        if self._paused and self._resting:
            waiting.clear()  # they stay in the inbox, for another turn
            return
        came, most = len(self._mail), 1 if self._careful else FEW
        if not self._resting or came >= most or not isinstance(waiting[0].what, Signalled):
            super()._deliver_next(turn, now, waiting)
            return
        while waiting and isinstance(waiting[0].what, Signalled) and len(self._mail) < most:
            what = self._next_of(turn, waiting)
            if isinstance(what, Signalled):
                self._mail.append(what)
        if len(self._mail) > came:
            self._wake(now)

    def _wake(self, now: int) -> None:
        self._move_to(now)
        self._resting = False
        self.loop.renumber(self._salt() + 1)  # the task that serves
        self._mark_here()
        self._ring()
        self.loop.run()
        self._rest()

    def _feed(self, what: Happening) -> None:
        if self._resting:
            self._resting = False
            self._mark_here()
        super()._feed(what)
        self._rest()

    def _absorb(self, entries: Sequence[Entry]) -> None:
        if self._fail_next_with is None:  # else its code is not to go on from here
            super()._absorb(entries)
            self._rest()

    def _answer(self, resolved: Resolved) -> None:
        self._turn.moved = True
        super()._answer(resolved)

    def _is_calm(self) -> bool:
        return not self.pending and self._timers.first() is None and not self.loop.many

    def _rest(self) -> None:
        """With nothing under way, what was before does not matter any more: it begins anew, as from a snapshot."""
        waits = self._bell is not None and not self._bell.done() and (not self._mail or self._holds())
        if waits and not self._resting and self._is_calm():
            self._resting = True
            self._renew(2)  # the task that serves, and what it waits for

    def _stored(self) -> bytes:
        if self._encoded is None or self.loop.many:
            self._encoded = self.entity.encode_state(self.state, self.settings.max_payload)
        return self._encoded

    def _snapshot(self, mail: tuple[Signalled, ...] = ()) -> Snapshot:
        return Snapshot(
            self._stored(),
            self.run,
            self._numbers,
            dict(self.counts),
            dict(self.attributes),
            mail,
            _NO_KEYS,
            self.active,
        )

    def _conclude(self, turn: Turn) -> None:
        super()._conclude(turn)
        if turn.ended is not None and self.over is not None:
            self._end(turn)
        elif self._resting:
            self._mark = self._snapshot(tuple(self._mail))
            turn.entries = []
            turn.due = self._idle_at()
            turn.more = self._paused and bool(self._mail)
        turn.snapshot, self._mark, self._fail_next_with = self._mark, None, None
        turn.forgotten = self._known.forget(self.loop.now)
        turn.overflowed = self._known.overflowed()
        if turn.overflowed and not self._warned:
            self._warned = True
            log.warning(
                "%s: more than max_keys=%s message keys within its window: the oldest are forgotten, and a duplicate "
                "of their messages would count again",
                self.who.key,
                f"{self.entity.max_keys:,}",
            )

    def _end(self, turn: Turn) -> None:
        """It ends unless there is more to do, here or in its inbox. Keys and counts are not for one life only."""
        self.run += 1
        fresh = Snapshot(b"{}", self.run, self._numbers, dict(self.counts), dict(self.attributes), tuple(self._mail))
        if self._mail:
            turn.ended, turn.again = None, fresh
        else:
            turn.ended, turn.fresh = self.over, fresh


def _mark_of(signal: Signalled) -> str | None:
    """What a message is compared by; a question without a key of its own is never a duplicate."""
    if signal.key is None or signal.key.startswith(PRIVATE):
        return None
    return message_mark(signal.name, bytes(signal.payload))


def _may_be_redriven(message: Signalled) -> bool:
    """Was it sent by somebody who may not hear that it failed? Whoever asked without a key does."""
    if message.id == IDLE:
        return False
    return message.key is None or not message.key.startswith(PRIVATE) or message.key.startswith(REDRIVE)
