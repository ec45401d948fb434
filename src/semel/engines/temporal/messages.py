"""Messages to entities, in order and many in one signal; their answers, state and keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace
from temporalio.api.common.v1 import Memo, Payloads, WorkflowType
from temporalio.api.enums.v1 import WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import SignalWithStartWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from semel.contract.lifecycle import Status
from semel.contract.records import Undelivered
from semel.engine.protocol import Message, Outcome
from semel.engines.journal.group_commit import Coalescer
from semel.engines.temporal.calls import translate_error
from semel.engines.temporal.entity_carryover import Carried, Row, inherited, unpack
from semel.engines.temporal.entity_history import beginning_in, keys_in, rest_in, state_in
from semel.engines.temporal.executions import CLOSED, Reader, Seen, prior_of
from semel.engines.temporal.inside.entity import MESSAGES, EntityMessage, read_letters
from semel.engines.temporal.memo import ExecutionMemo, card_of, to_memo
from semel.engines.temporal.names import execution_id, split, workflow_id
from semel.engines.temporal.payloads import bytes_of, wrap
from semel.engines.temporal.start import Starter, indexed
from semel.errors import EngineUnavailable
from semel.flow.entity_messages import PRIVATE, load, undelivered_of
from semel.flow.entries import raw, stored

MOST_AT_ONCE: Final = 500
HEAVIEST: Final = 500_000
"""Bytes of messages in one signal; a single one may be heavier, up to what the cluster takes."""
TRIES: Final = 100


class Receipt(str):
    """The execution that a message went to, and when it was sent: which tells it from another one with its key."""

    __slots__ = ("at",)
    at: int


class Mail:
    """Messages of one engine. What is for one entity goes out one signal after the other, so that order is kept."""

    def __init__(self, client: Client, reader: Reader, starter: Starter, now: Callable[[], int]) -> None:
        self._client = client
        self._reader = reader
        self._starter = starter
        self._now = now
        self._lines: WeakValueDictionary[str, Coalescer[_Posted, str]] = WeakValueDictionary()
        """By entity; each is there as long as somebody waits in it."""

    async def send(self, message: Message) -> str:
        """One message; when this returns it is in the cluster. The entity's execution."""
        id_ = workflow_id("entity", message.start.key or "")
        line = self._lines.get(id_)
        if line is None:
            line = self._lines[id_] = Coalescer(self._post, MOST_AT_ONCE, _weight, HEAVIEST)
        return await line.ask((message, self._now()))

    async def _post(self, posted: list[_Posted]) -> list[str | BaseException]:
        """Messages for one entity. It is made if it is missing, in the same call."""
        first = posted[0][0]
        card = card_of(first.start, self._now())
        letters = msgspec.json.encode([EntityMessage(m.name, raw(m.payload), m.key, at) for m, at in posted])
        request = await self._request(first, card, letters)
        for _ in range(TRIES):
            try:
                answer = await self._client.workflow_service.signal_with_start_workflow_execution(request, retry=True)
                return [_receipt(answer.run_id, request.workflow_id, at) for _, at in posted]
            except RPCError as error:
                if error.status is not RPCStatusCode.ALREADY_EXISTS:
                    raise _unsure(error) from error
            await self._revive(request.workflow_id, first, card)
        raise EngineUnavailable(f"{first.start.key!r} comes and goes too often: try again.")

    async def _request(
        self, first: Message, card: ExecutionMemo, letters: bytes
    ) -> SignalWithStartWorkflowExecutionRequest:
        encode, start = self._client.data_converter.encode, first.start
        memo = {name: (await encode([value]))[0] for name, value in to_memo(card).items()}
        return SignalWithStartWorkflowExecutionRequest(
            namespace=self._client.namespace,
            workflow_id=workflow_id("entity", start.key or ""),
            workflow_type=WorkflowType(name=start.options.name),
            task_queue=TaskQueue(name=start.options.queue),
            input=Payloads(payloads=await encode([wrap(start.payload)])),
            identity=self._client.identity,
            request_id=start.id,
            signal_name=MESSAGES,
            memo=Memo(fields=memo),
            search_attributes=indexed(card),
            # One that has ended has keys to leave: the next one has to be told whose heir it is.
            workflow_id_reuse_policy=WorkflowIdReusePolicy.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
            workflow_id_conflict_policy=WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
            signal_input=Payloads(payloads=await encode([wrap(letters)])),
        )

    async def _revive(self, id: str, first: Message, card: ExecutionMemo) -> None:
        """The entity has ended: begin the one that follows it. Of many who do so at once, all begin the same one."""
        seen = await self._reader.describe(id)
        if seen is None or seen.live:
            return
        prior = prior_of(seen, await self._reader.execution(seen))
        await self._starter.follow(
            id, first.start.options.queue, first.start.payload, card, seen, prior.status, prior.generation + 1
        )


_Posted = tuple[Message, int]
"""A message, and when it was sent."""


def _weight(posted: _Posted) -> int:
    return len(posted[0].payload)


def _receipt(run: str, id: str, at: int) -> Receipt:
    made = Receipt(execution_id(run, id))
    made.at = at
    return made


def _unsure(error: RPCError) -> Exception:
    found = translate_error(error)
    if not isinstance(found, EngineUnavailable):
        return found
    return EngineUnavailable(
        f"{found.message} Whether the message has arrived is not known: with a dedup_key it can be sent again."
    )


POLL: Final = (0.01, 1.0)
"""Seconds between two looks for an answer that is not there yet: at first, and at most."""
SLOWER: Final = 1.5
GONE: Final = Outcome(Status.COMPLETED, None, None, expired=True)


@dataclass(slots=True)
class _Look:
    """How far somebody has looked for the answer to one message."""

    key: str
    sent_at: int | None
    """None: any message with this key will do."""
    taken_by: str
    """The run that took the message in."""
    run: str
    """The first run of its entity, as far as is known."""
    heard: bool = False
    """Has the entity heard of the message? Until then an answer under its key is to another one, of long ago."""
    since: datetime | None = None
    """All up to here was looked at."""
    astray: bool = False
    """Is there no such entity any more, or another one?"""
    row: Row | None = None


class Questions:
    """Questions of one engine to entities."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def answer(self, id: str, key: str, timeout: float | None) -> Outcome | None:
        """Wait for the answer to the message with this key, through however many runs."""
        try:
            async with asyncio.timeout(timeout):
                return await self._answer(id, key)
        except TimeoutError:
            return None

    async def _answer(self, id: str, key: str) -> Outcome:
        found = split(id)
        assert found is not None
        look, pause = _Look(key, id.at if isinstance(id, Receipt) else None, found[0], found[0]), POLL[0]
        while True:
            await self._look(found[1], look)
            if look.row is not None:
                return _outcome(look.row)
            if look.astray:
                seen = await self._reader.find(id)
                if seen is None or not seen.live:
                    return await self._last_words(seen, key)
                look.run = seen.first_run  # the message had come to a later run of the same entity
            await asyncio.sleep(pause)
            pause = min(pause * SLOWER, POLL[1])

    async def _look(self, entity: str, look: _Look) -> None:
        """Look from the end of its history back, as far as something new may be."""
        gone: set[int] = set()
        newest: datetime | None = None
        row, written, look.astray = None, False, False
        async for event in self._reader.backwards(entity):
            at = event.event_time.ToDatetime(tzinfo=UTC)
            if newest is None:
                newest = at
                if event.event_type in CLOSED:
                    look.astray = True
                    return
            if look.since is not None and at < look.since:
                break
            rest = await rest_in(self._reader, event)
            if rest is not None:
                written = True
                gone.update(rest.forgotten)
                row = row or _among(rest.rows, look.key, gone)
            elif not look.heard and await self._brings(event, look):
                if not written:
                    return  # it has come, and nobody has heard of it
                look.heard = True
                if row is None and look.key.startswith(PRIVATE):
                    break
            elif event.HasField("workflow_execution_started_event_attributes"):
                row = row or await self._from_before(event, look, gone)
            if row is not None and look.heard:
                look.row = row
                return
        else:
            look.astray = look.astray or newest is None
        if look.heard:
            look.since = newest

    async def _from_before(self, event: HistoryEvent, look: _Look, gone: set[int]) -> Row | None:
        """An answer that a run began with, from the run or the entity before it."""
        began = event.workflow_execution_started_event_attributes
        if not look.heard:
            if began.original_execution_run_id == look.taken_by:
                return None  # it waits in front of its history, for a task to end
            if began.first_execution_run_id != look.run:
                look.astray = True
                return None
        look.heard = True  # it came to an earlier run
        carried = await beginning_in(self._reader, event)
        if carried is None:
            previous = await self._reader.follows(event)
            before = None if previous is None else await self.keys_of(previous)
            carried = None if before is None else unpack(before)
        return None if carried is None else _among(carried.rows, look.key, gone)

    async def _brings(self, event: HistoryEvent, look: _Look) -> bool:
        signal = event.workflow_execution_signaled_event_attributes
        if signal.signal_name != MESSAGES:
            return False
        (payload,) = await self._reader.decode(list(signal.input.payloads))
        letters = read_letters(bytes_of(payload) or b"[]")
        return any(one.key == look.key and look.sent_at in (None, one.at) for one in letters)

    async def _last_words(self, seen: Seen | None, key: str) -> Outcome:
        """Of an entity that has ended: the answer if it gave one, else how it ended."""
        closing = None if seen is None else await self._reader.closing(*_place(seen))
        if seen is None or closing is None:
            return GONE
        ended = await self._reader.ended(closing)
        left = unpack(ended.output) if ended.output is not None else await self._left(seen)
        row = _among(left.rows, key, set())
        if row is not None:
            return _outcome(row)
        return GONE if ended.status is Status.COMPLETED else Outcome(ended.status, None, ended.error, expired=False)

    async def state_of(self, key: str) -> tuple[bool, bytes | None]:
        """Is it there, and what was it after its last message?"""
        return await state_in(self._reader, workflow_id("entity", key))

    async def keys_of(self, id: str) -> bytes | None:
        """What an entity that has ended leaves to the next one under its key: the keys that it has seen."""
        seen = await self._reader.find(id)
        if seen is None:
            return None  # past its retention, and with it all that it knew
        closing = await self._reader.closing(*_place(seen))
        ended = None if closing is None else await self._reader.ended(closing)
        known = ended.output if ended is not None else None
        return inherited(unpack(known) if known is not None else await self._left(seen))

    async def _left(self, seen: Seen) -> Carried:
        """One that was ended from outside could not leave a will: its history tells."""
        left, whole, gone = await keys_in(self._reader, *_place(seen))
        if whole or seen.card.previous is None:
            return left
        before = await self.keys_of(seen.card.previous)
        if before is None:
            return left
        return Carried([*(row for row in unpack(before).rows if row.n not in gone), *left.rows])

    async def undelivered(self, key: str) -> Undelivered:
        """Messages that failed, and messages that were refused, of the newest entity under a key."""
        seen = await self._reader.describe(workflow_id("entity", key))
        if seen is None:
            return Undelivered()
        if seen.live:
            left = await self._left(seen)
        else:
            known = await self.keys_of(seen.id)
            left = Carried([]) if known is None else unpack(known)
        rows = [row for row in left.rows if row.answer is not None]
        return undelivered_of((row.n, row.key, row.at, bytes(row.reply), row.name, stored(row.body)) for row in rows)


def _among(rows: Sequence[Row], key: str, gone: set[int]) -> Row | None:
    """The newest answer to a key that is still kept."""
    return next((row for row in reversed(rows) if row.key == key and row.n not in gone), None)


def _outcome(row: Row) -> Outcome:
    return replace(GONE, mark=row.mark) if row.answer is None else load(row.answer, row.mark)


def _place(seen: Seen) -> tuple[str, str]:
    return seen.info.execution.workflow_id, seen.info.execution.run_id
