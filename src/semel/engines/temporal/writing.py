"""Messages to entities: in the order in which a process sends them, as many in one signal as have gathered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

import msgspec
from temporalio.api.common.v1 import Memo, Payloads, WorkflowType
from temporalio.api.enums.v1 import WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import SignalWithStartWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from semel.engine.protocol import Message
from semel.engines.journal.coalesce import Coalescer
from semel.engines.temporal.acting import MESSAGES, Letter
from semel.engines.temporal.calling import told
from semel.engines.temporal.card import Card, card_of, to_memo
from semel.engines.temporal.names import execution_id, workflow_id
from semel.engines.temporal.payloads import wrap
from semel.engines.temporal.reading import Reader, prior_of
from semel.engines.temporal.starting import Starter, indexed
from semel.errors import EngineUnavailable
from semel.flow.entries import raw

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
        letters = msgspec.json.encode([Letter(m.name, raw(m.payload), m.key, at) for m, at in posted])
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

    async def _request(self, first: Message, card: Card, letters: bytes) -> SignalWithStartWorkflowExecutionRequest:
        encode, start = self._client.data_converter.encode, first.start
        memo = {name: (await encode([value]))[0] for name, value in to_memo(card).items()}
        return SignalWithStartWorkflowExecutionRequest(
            namespace=self._client.namespace, workflow_id=workflow_id("entity", start.key or ""),
            workflow_type=WorkflowType(name=start.options.name), task_queue=TaskQueue(name=start.options.queue),
            input=Payloads(payloads=await encode([wrap(start.payload)])), identity=self._client.identity,
            request_id=start.id, signal_name=MESSAGES, memo=Memo(fields=memo), search_attributes=indexed(card),
            # One that has ended has keys to leave: the next one has to be told whose heir it is.
            workflow_id_reuse_policy=WorkflowIdReusePolicy.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
            workflow_id_conflict_policy=WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
            signal_input=Payloads(payloads=await encode([wrap(letters)])),
        )  # fmt: skip

    async def _revive(self, id: str, first: Message, card: Card) -> None:
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
    found = told(error)
    if not isinstance(found, EngineUnavailable):
        return found
    return EngineUnavailable(
        f"{found.message} Whether the message has arrived is not known: with a dedup_key it can be sent again."
    )
