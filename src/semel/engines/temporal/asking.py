"""What entities have to say: answers, their state, and the keys they leave.

Answers are asked for by queries and not by updates: a query waits for the messages before it, leaves no event in
history, and has no limit of ten at a time. A handler that waits for something is asked again, less and less often.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.enums.v1 import EventType, QueryRejectCondition
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.workflowservice.v1 import QueryWorkflowRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from semel.contract.lifecycle import Status
from semel.define.registry import Registry
from semel.engine.protocol import Outcome
from semel.engines.journal.coalesce import Coalescer
from semel.engines.temporal import replaying
from semel.engines.temporal.acting import ANSWERS, KEYS, STATE, EntityHost, Told
from semel.engines.temporal.calling import told
from semel.engines.temporal.carrying import Carried, inherited, unpack
from semel.engines.temporal.names import split, workflow_id
from semel.engines.temporal.payloads import bytes_of, unwrap, wrap
from semel.engines.temporal.reading import Reader, Seen
from semel.errors import EngineError, EngineUnavailable
from semel.flow.entries import stored
from semel.flow.replies import load
from semel.settings import Settings

log = logging.getLogger("semel.entity")
MOST_AT_ONCE: Final = 500
POLL: Final = (0.01, 1.0)
"""Seconds between two questions for an answer that is not there yet: at first, and at most."""
SLOWER: Final = 1.5
PATIENCE: Final = 2.0
"""Seconds for a worker to say something, after which this process helps itself, or asks again."""
GONE: Final = Outcome(Status.COMPLETED, None, None, expired=True)
_LATER: Final = (
    RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.ABORTED,
)  # fmt: skip
"""Nobody serves it now, or too many ask, or its code cannot go on: whoever waits may ask again."""
OUTAGE: Final = 20
"""Questions in a row that did not reach the cluster, after which it is away."""


class _Silence(Exception):
    """Nobody has answered."""

    def __init__(self, error: RPCError) -> None:
        super().__init__(error.message)
        self.error = error


class _Heard(Struct, frozen=True):
    """What is known of one answer. `run` is the first run of who was asked; "": there is nobody; None: not heard of."""

    run: str | None
    there: bool = False
    reply: bytes | None = None


class Questions:
    """Questions of one engine to entities."""

    def __init__(self, client: Client, reader: Reader, registry: Registry, settings: Settings) -> None:
        self._client = client
        self._reader = reader
        self._registry = registry
        self._settings = settings
        self._lines: WeakValueDictionary[str, Coalescer[str, _Heard]] = WeakValueDictionary()
        self._outage = 0

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
        run, entity = found
        line = self._lines.get(entity)
        if line is None:
            line = self._lines[entity] = Coalescer(partial(self._hear, entity), MOST_AT_ONCE)
        pause = POLL[0]
        while True:
            heard = await line.add(key)
            if heard.there:
                return GONE if heard.reply is None else load(heard.reply)
            if heard.run is not None and heard.run != run:
                seen = await self._reader.find(id)
                if seen is None or not seen.live:
                    return await self._last_words(seen, key)
                run = seen.first_run  # the message had come to a later run of the same entity
            await asyncio.sleep(pause)
            pause = min(pause * SLOWER, POLL[1])

    async def _hear(self, entity: str, keys: list[str]) -> list[_Heard | BaseException]:
        try:
            said = await self._query(entity, ANSWERS, msgspec.json.encode(keys))
        except _Silence:
            return [_Heard(None)] * len(keys)
        if said is None:
            return [_Heard("")] * len(keys)
        answers = msgspec.json.decode(said, type=Told)
        return [_heard(answers, key) for key in keys]

    async def _last_words(self, seen: Seen | None, key: str) -> Outcome:
        """Of an entity that has ended: the answer if it gave one, else how it ended."""
        closing = None if seen is None else await self._reader.closing(*_place(seen))
        if seen is None or closing is None:
            return GONE
        ended = await self._reader.ended(closing)
        left = unpack(ended.output) if ended.output is not None else await self._left(seen)
        for row in left.rows if left is not None else ():
            if row.key == key:
                return GONE if row.answer is None else load(row.answer)
        return GONE if ended.status is Status.COMPLETED else Outcome(ended.status, None, ended.error, expired=False)

    async def state_of(self, key: str) -> tuple[bool, bytes | None]:
        """Is it there, and what was it after its last message? Without a worker its history is run again here."""
        id_ = workflow_id("entity", key)
        try:
            said = await self._query(id_, STATE)
        except _Silence as silence:
            seen = await self._reader.describe(id_)
            if seen is None or not seen.live:
                return False, None
            return True, await self._replayed(seen, silence)
        return (False, None) if said is None else (True, None if said == b"null" else said)

    async def _replayed(self, seen: Seen, silence: _Silence) -> bytes | None:
        history = await replaying.history_of(self._client, seen)
        if not any(one.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED for one in history.events):
            return None
        again = await replaying.replay(history, self._registry, self._settings, self._client.namespace)
        if again.error or not isinstance(again.host, EntityHost):
            raise EngineUnavailable(
                f"the state of entity {seen.card.key!r} is not known: no worker tells it ({silence}), and its history "
                f"does not fit the code here ({again.error}). Start a worker for queue {seen.info.task_queue!r} with "
                "the code that it began with."
            )
        return unwrap(again.host.state())

    async def keys_of(self, id: str) -> bytes | None:
        """What an entity that has ended leaves to the next one under its key: the keys that it has seen."""
        seen = await self._reader.find(id)
        if seen is None:
            return None  # past its retention, and with it all that it knew
        closing = await self._reader.closing(*_place(seen))
        ended = None if closing is None else await self._reader.ended(closing)
        if ended is not None and ended.output is not None:
            return inherited(unpack(ended.output))
        left = await self._left(seen)
        if left is not None:
            return inherited(left)
        began = await self._reader.inputs(*_place(seen))
        if len(began) > 1 and began[1] is not None:
            return inherited(unpack(began[1]))
        return None if seen.card.previous is None else await self.keys_of(seen.card.previous)

    async def _left(self, seen: Seen) -> Carried | None:
        """One that was ended from outside could not leave a will: its code tells, run once more. None: it cannot."""
        id_, run = _place(seen)
        try:
            said = await self._query(id_, KEYS, run=run)
        except (_Silence, EngineError) as error:
            log.warning(
                "%s: what it had seen when it was ended from outside cannot be told (%s): duplicates of the messages "
                "of its last run would count again", seen.card.key, error,
            )  # fmt: skip
            return None
        return None if said is None or said == b"null" else unpack(said)

    async def _query(self, id: str, name: str, ask: bytes | None = None, run: str = "") -> bytes | None:
        """Ask the newest run of an entity, if it is open, or any `run` of it. None: there is none."""
        reject = QueryRejectCondition.QUERY_REJECT_CONDITION_NOT_OPEN
        request = QueryWorkflowRequest(
            namespace=self._client.namespace, execution=WorkflowExecution(workflow_id=id, run_id=run),
            query=WorkflowQuery(query_type=name, query_args=await self._args(ask)),
            query_reject_condition=QueryRejectCondition.QUERY_REJECT_CONDITION_NONE if run else reject,
        )  # fmt: skip
        try:
            # Not retried by the SDK, which would wait a second wherever many ask one entity at once.
            found = await self._client.workflow_service.query_workflow(
                request, retry=False, timeout=timedelta(seconds=PATIENCE)
            )
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            self._outage = self._outage + 1 if error.status is RPCStatusCode.UNAVAILABLE else 0
            if error.status not in _LATER or self._outage > OUTAGE:
                raise told(error) from error
            raise _Silence(error) from error
        self._outage = 0
        if found.HasField("query_rejected"):
            return None
        payloads = await self._reader.decode(list(found.query_result.payloads))
        return bytes_of(payloads[0]) or b"null"

    async def _args(self, ask: bytes | None) -> Payloads:
        return Payloads(payloads=[] if ask is None else await self._client.data_converter.encode([wrap(ask)]))


def _place(seen: Seen) -> tuple[str, str]:
    return seen.info.execution.workflow_id, seen.info.execution.run_id


def _heard(said: Told, key: str) -> _Heard:
    if key not in said.answers:
        return _Heard(said.first_run)
    return _Heard(said.first_run, True, stored(said.answers[key]))
