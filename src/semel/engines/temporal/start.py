"""Starts on a cluster: one request that only a new key lets through, and the decision about every other."""

from __future__ import annotations

import base64
import functools
import hashlib
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import structs
from temporalio.api.common.v1 import SearchAttributes, WorkflowType
from temporalio.api.enums.v1 import WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1.message_pb2 import OnConflictOptions
from temporalio.api.workflowservice.v1 import StartWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.converter import encode_search_attributes
from temporalio.service import RPCError, RPCStatusCode

from semel.contract.decision import Admit, Join, decide
from semel.contract.fingerprint import fingerprint
from semel.contract.lifecycle import RELEASED, Status
from semel.contract.times import from_micros
from semel.engine.protocol import Admission
from semel.engine.start_request import StartRequest
from semel.engines.temporal import interceptors
from semel.engines.temporal.calls import translate_error
from semel.engines.temporal.executions import Reader, Seen, prior_of
from semel.engines.temporal.foreign_workflows import given_of, inputs_of
from semel.engines.temporal.inside.attempts import priority_of
from semel.engines.temporal.lists import quoted
from semel.engines.temporal.memo import ExecutionMemo, card_of, marks, to_memo
from semel.engines.temporal.names import ATTRIBUTES, SLOT, TASK, execution_id, slot_of, split, workflow_id
from semel.engines.temporal.payloads import wrap
from semel.errors import EngineUnavailable

TRIES: Final = 20
NO_MEMO: Final[Mapping[str, Any]] = {}
_NEXT: Final = uuid.UUID("5e3e1a51-0000-5000-8000-736f6d656c31")
_JOINED: Final = uuid.UUID("5e3e1a51-0000-5000-8000-736f6d656c32")


class Starter:
    """Starts executions in one namespace."""

    def __init__(self, client: Client, reader: Reader, now: Callable[[], int]) -> None:
        self._client = client
        self._reader = reader
        self._now = now

    async def start(self, request: StartRequest, *, after: Admit | None = None, ledger: bool = False) -> Admission:
        """One request. A first execution under its key costs one call.

        `ledger`: its key is remembered beside the cluster, where it was found to be free, or to be so `after` another.
        """
        card = self._card(request, ledger=ledger)
        if after is not None:
            card = structs.replace(card, previous=after.supersedes, generation=after.generation)
        id_ = TASK + request.id if request.key is None else workflow_id(request.options.kind, request.key)
        run = await self.launch(id_, request.options.queue, request.payload, card, request.id)
        if run is not None:
            return Admission(execution_id(run, id_), Admit(None, 0))
        asked = request.contract_request()
        for _ in range(TRIES):
            seen = await self._reader.describe(id_)
            if seen is None:  # its retention ended between two calls
                run = await self.launch(id_, request.options.queue, request.payload, card, request.id)
                if run is not None:
                    return Admission(execution_id(run, id_), Admit(None, 0))
                continue
            if (sent := await find_sent(self._reader, seen, request.id)) is not None:
                return _admission_of(sent)
            prior = prior_of(seen, await self._reader.execution(seen), await self._adopted(seen, request))
            decision = decide(prior, asked, from_micros(self._now()))
            if not isinstance(decision, Admit):
                if prior.parent in (None, request.parent) or not isinstance(decision, Join) or seen.shared:
                    return Admission(prior.id, decision)
                if await self._join(seen, request, card):
                    return Admission(prior.id, decision)
                continue
            if (sent := await find_sent(self._reader, seen, request.id, MOST_PAGES)) is not None:
                return _admission_of(sent)
            run = await self.follow(
                id_, request.options.queue, request.payload, card, seen, prior.status, decision.generation
            )
            if run is not None and await self._is_our_run(id_, run, request.id):
                return Admission(execution_id(run, id_), decision)
        raise EngineUnavailable(f"key {request.key!r} changes hands too quickly: try again.")

    def _card(self, request: StartRequest, *, ledger: bool) -> ExecutionMemo:
        card = card_of(request, self._now())
        return structs.replace(card, asked=request.id, ledger=ledger)

    async def join(self, id: str, request: StartRequest) -> None:
        """A request joins an execution by what the ledger says, which does not know who asked for it."""
        seen = await self._reader.find(id)
        if seen is not None and seen.live and seen.card.parent not in (None, request.parent) and not seen.shared:
            await self._join(seen, request, self._card(request, ledger=True))

    async def _join(self, seen: Seen, request: StartRequest, card: ExecutionMemo) -> bool:
        """Leave word that others want it too, since the workflow that asked for it may stop wanting it.

        The word is a request under its id that changes nothing: one for all who join, and kept with the run. False: it
        has ended meanwhile.
        """
        info = seen.info.execution
        word = str(uuid.uuid5(_JOINED, seen.id))
        run = await self.launch(info.workflow_id, request.options.queue, request.payload, card, word, joins=True)
        return run == info.run_id

    async def look_up(self, request: StartRequest) -> Admission | None:
        """What `start` would answer to a request that is in already, or whose key is taken; None: it would be new."""
        if request.key is None:
            seen = await self._reader.describe(TASK + request.id)
            return None if seen is None else _admission_of(seen)
        seen = await self._reader.describe(workflow_id(request.options.kind, request.key))
        if seen is None:
            return None
        if (sent := await find_sent(self._reader, seen, request.id, MOST_PAGES)) is not None:
            return _admission_of(sent)
        prior = prior_of(seen, await self._reader.execution(seen), await self._adopted(seen, request))
        decision = decide(prior, request.contract_request(), from_micros(self._now()))
        return None if isinstance(decision, Admit) else Admission(prior.id, decision)

    async def sent(self, request: StartRequest) -> Admission | None:
        """What a request with a key has started before; None: nothing that the cluster knows of."""
        seen = await self._reader.describe(workflow_id(request.options.kind, request.key or ""))
        found = None if seen is None else await find_sent(self._reader, seen, request.id, MOST_PAGES)
        return None if found is None else _admission_of(found)

    async def _adopted(self, seen: Seen, request: StartRequest) -> bytes | None:
        """The fingerprint of one that other hands have started, by what they gave it: it may well be the same."""
        if seen.card.fingerprint:
            return None
        id_ = seen.info.execution.workflow_id
        inputs = await self._reader.inputs(id_, seen.first_run)
        return fingerprint(seen.card.name, given_of(inputs, foreign=request.options.foreign))

    async def _is_our_run(self, id: str, run: str, asked: str) -> bool:
        """Is a run that follows another one ours? It is given to all who raced for it, maybe with other input."""
        seen = await self._reader.describe(id, run)
        return seen is not None and seen.card.asked == asked

    async def follow(
        self, id: str, queue: str, payload: bytes, card: ExecutionMemo, ended: Seen, how: Status, generation: int
    ) -> str | None:
        """Start after an execution that has ended. Whoever else follows the same one gets the same run."""
        after = successor_card(card, ended.card, ended.id, generation)
        same = uuid.uuid5(_NEXT, ended.first_run)
        return await self.launch(id, queue, payload, after, str(same), after=how)

    async def launch(
        self,
        id: str,
        queue: str,
        payload: bytes,
        card: ExecutionMemo,
        request_id: str,
        *,
        after: Status | None = None,
        carried: bytes | None = None,
        memo: Mapping[str, Any] = NO_MEMO,
        joins: bool = False,
    ) -> str | None:
        """The run that it started; None: the id is taken. Asked again with one `request_id`, the answer is the same.

        The stable request id is what makes a start safe to repeat, also where the reply to the first was lost. What
        is `carried` comes from a run that ends with this start, if it has not yet. `joins`: one that runs is given,
        and remembers the `request_id`.
        """
        client = self._client
        conflict = WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_FAIL
        if carried is not None:
            conflict = WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING
        if joins:
            conflict = WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING
        request = StartWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_id=id,
            workflow_type=WorkflowType(name=card.name),
            task_queue=TaskQueue(name=queue),
            identity=client.identity,
            request_id=request_id,
            workflow_id_reuse_policy=_policy(after),
            workflow_id_conflict_policy=conflict,
            on_conflict_options=OnConflictOptions(attach_request_id=True) if joins else None,
            search_attributes=indexed(card),
            priority=priority_of(card.priority)._to_proto() if card.priority else None,
        )
        if card.foreign and card.due is not None:  # a workflow of Semel's waits by itself
            request.workflow_start_delay.FromMicroseconds(max(0, card.due - self._now()))
        run: str | None = None

        async def send() -> None:
            nonlocal run
            try:
                run = (await client.workflow_service.start_workflow_execution(request, retry=True)).run_id
            except RPCError as error:
                if error.status is not RPCStatusCode.ALREADY_EXISTS:
                    raise translate_error(error) from error

        inputs = [*inputs_of(card, payload), *([] if carried is None else [wrap(carried)])]
        await interceptors.start(client, request, inputs, {**to_memo(card), **memo}, send)
        return run


def _admission_of(sent: Seen) -> Admission:
    """The answer that the request of an execution got when it was first sent."""
    return Admission(sent.id, Admit(sent.card.previous, sent.card.generation))


def _policy(after: Status | None) -> WorkflowIdReusePolicy.ValueType:
    """What may be there already. Whoever comes late to a failed one must not follow a completed one unawares."""
    if after is None:
        return WorkflowIdReusePolicy.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE
    if after in RELEASED:
        return WorkflowIdReusePolicy.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY
    return WorkflowIdReusePolicy.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE


def indexed(card: ExecutionMemo) -> SearchAttributes:
    """The search attributes that an execution begins with."""
    slot = slot_of(card.key) if card.key is not None and not card.foreign else None
    if slot is None:
        return _indexed(tuple(marks(card)))
    found = SearchAttributes()
    pairs = SearchAttributePair(ATTRIBUTES, marks(card)), SearchAttributePair(SLOT, slot)
    encode_search_attributes(TypedSearchAttributes(pairs), found)
    return found


@functools.cache
def _indexed(marks: tuple[str, ...]) -> SearchAttributes:
    """There are few of them, and encoding takes a quarter of all that a start takes here."""
    found = SearchAttributes()
    encode_search_attributes(TypedSearchAttributes([SearchAttributePair(ATTRIBUTES, list(marks))]), found)
    return found


TAG: Final = 4
"""Characters of a tag. One request in 16 million has the tag of another: then the executions themselves are read."""
MOST_TAGS: Final = 320
"""In one memo: little over a kilobyte, since a cluster warns of memos of two."""
ALWAYS: Final = 64
"""Tags that are passed on where there are too many, so that the last requests are known without reading anything."""
MOST_PAGES: Final = 16
"""Executions, each with its tags, that are read before a request is taken to be new: 4,096 requests back, or more."""


def successor_card(card: ExecutionMemo, holder: ExecutionMemo, holder_id: str, generation: int) -> ExecutionMemo:
    """The card of an execution that follows the `holder` of its key."""
    card = structs.replace(card, generation=generation, previous=holder_id, start_by=None)
    if card.kind == "entity":  # begun by messages, which have keys of their own
        return card
    tags = tag_of(holder.asked) + holder.earlier
    if len(tags) > TAG * MOST_TAGS:
        return structs.replace(card, earlier=tags[: TAG * ALWAYS], beyond=holder_id)
    return structs.replace(card, earlier=tags, beyond=_beyond(holder))


async def find_sent(reader: Reader, holder: Seen, request_id: str, pages: int = 0) -> Seen | None:
    """The execution that a request has started before, be it the holder of the key or one before it.

    None: it has started none, or the cluster has forgotten it. The `pages` are the further executions that may be read
    for their tags, besides the holder; without them nothing is read unless the tag of the request is found.
    """
    seen = holder
    for page in range(pages + 1):
        card = seen.card
        if card.asked == request_id:
            return seen
        if _has_tag(card, request_id) and (found := await _search(reader, seen, request_id)) is not None:
            return found
        beyond = _beyond(card)
        older = None if beyond is None or page == pages else await _read(reader, beyond)
        if older is None:
            return None
        seen = older
    return None


def tag_of(request_id: str) -> str:
    """A request in few characters, whatever its id looks like."""
    return base64.b64encode(hashlib.sha256(request_id.encode()).digest()[:3]).decode()


def _has_tag(card: ExecutionMemo, request_id: str) -> bool:
    tag = tag_of(request_id)
    return any(card.earlier[at : at + TAG] == tag for at in range(0, len(card.earlier), TAG))


def _beyond(card: ExecutionMemo) -> str | None:
    """The newest execution before this one whose request its tags do not tell; older releases wrote no tags."""
    return card.beyond if card.earlier or card.beyond else card.previous


async def _search(reader: Reader, seen: Seen, request_id: str) -> Seen | None:
    """Read the executions that the tags of one stand for, until one came of the request."""
    id_ = seen.info.execution.workflow_id
    for _ in range(len(seen.card.earlier) // TAG):
        before = await _read(reader, seen.card.previous or "")
        if before is None:  # this one was cleaned up; those before it may have been kept for longer
            async for listed in reader.query(f"WorkflowId = {quoted(id_)}"):
                if listed.card.asked == request_id:
                    return await reader.describe(id_, listed.first_run)
            return None
        if before.card.asked == request_id:
            return before
        seen = before
    return None


async def _read(reader: Reader, execution: str) -> Seen | None:
    found = split(execution)
    return None if found is None else await reader.describe(found[1], found[0])
