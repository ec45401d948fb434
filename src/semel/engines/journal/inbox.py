"""What comes for a workflow or an entity from outside, and messages to entities, many in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.codec import decoder_of
from semel.contract.lifecycle import Status
from semel.contract.records import Undelivered
from semel.engine.protocol import Message, Outcome
from semel.engine.start_request import StartRequest
from semel.engines.journal import read
from semel.engines.journal.admit import insert
from semel.engines.journal.group_commit import Coalescer
from semel.engines.journal.lanes import Lanes
from semel.engines.journal.notifications import Hub
from semel.engines.journal.read import load_error
from semel.engines.journal.rows import row_of
from semel.engines.journal.script import ConnectionRole, Row, Script, ScriptRunner, SqlBatch, SqlQuery, procedure
from semel.errors import EngineUnavailable
from semel.flow.entity_messages import load as load_reply
from semel.flow.entity_messages import undelivered_of
from semel.flow.entries import Happening, Resolved, Signalled, Stopped, raw
from semel.flow.turn import Arrival
from semel.runtime.retries import retry_unavailable

_read_id = decoder_of(str).decode


def answer_of(command: int, execution: str | None) -> str:
    """What an answer is for, as a row has it, and which execution gives it where that is not the flow's own."""
    return str(command) if execution is None else f"{command} {execution}"


def command_in(ref: str) -> tuple[int, str | None]:
    """The same again."""
    command, _, execution = ref.partition(" ")
    return int(command), execution or None


def arrivals_of(row: Sequence[Any]) -> Arrival:
    """One row of the inbox: id, kind, name, ref, body, error, at."""
    id_, kind, name, ref, body, error, at = row
    what: Happening
    match kind:
        case "done" if name == "started":
            what = Resolved(int(ref), name, ref=_read_id(body))
        case "done":
            command, execution = command_in(ref)
            what = Resolved(command, name, raw(body), load_error(error), execution)
        case "signal" | "message":
            what = Signalled(name, raw(body), ref)
        case _:
            what = Stopped()
    return Arrival(at, what, (id_, at))


MOST_AT_ONCE = 1000
TRIES = 100
POLL = (0.05, 2.0)
EntityStart = tuple[StartRequest, int]
"""How to make an entity, and the lane it goes to."""


@procedure(ConnectionRole.ADMIT)
def post(
    namespace: str, entity_starts: dict[str, EntityStart], mail: list[tuple[str, Row]]
) -> Script[list[str | None]]:
    """Put messages into inboxes, in order; the entity each is for now, or None: try again."""
    known = dict(map(tuple, (yield SqlBatch("entities", [(key,) for key in entity_starts], (namespace,)))))
    missing = {key: row_of(*start) for key, start in entity_starts.items() if key not in known}
    if missing:
        held = yield SqlBatch("priors", [("entity", key) for key in missing], (namespace,))
        successors = []
        for _, key, prior, _, _, _, generation, *_ in held:  # one that has ended gives its key to a new one
            if (yield SqlQuery("release_key", (prior,))):
                missing[key] = missing[key]._replace(generation=generation + 1, previous_id=prior)
                successors.append((prior, missing[key].id))
        yield from insert.script(namespace, [*missing.values()])
        if successors:
            yield SqlBatch("inherit_seen", successors)
        known |= dict(map(tuple, (yield SqlBatch("entities", [(key,) for key in missing], (namespace,)))))
    rows = [(known[key], "message", *row) for key, row in mail if key in known]
    reached = {row[0] for row in (yield SqlBatch("deliver", rows))} if rows else set()
    return [known[key] if known.get(key) in reached else None for key, _ in mail]


@procedure(ConnectionRole.READ, atomic=True)
def replies(rows: list[Row]) -> Script[list[Outcome | None]]:
    """Answers to messages; of an entity that ended without one, how it ended. None: not yet."""
    ended = yield from read.outcomes.script(list({execution for execution, _ in rows}))
    found = {(execution, key): (bytes(data), mark) for execution, key, data, mark in (yield SqlBatch("replies", rows))}
    gone = Outcome(Status.COMPLETED, None, None, expired=True)
    answers: list[Outcome | None] = []
    for execution, key in rows:
        row, end = found.get((execution, key)), ended.get(execution, gone)
        if row is None and end is not None and end.status is Status.COMPLETED:
            end = gone
        answers.append(end if row is None else load_reply(*row))
    return answers


@procedure(ConnectionRole.READ, atomic=True)
def state(namespace: str, key: str) -> Script[tuple[bool, bytes | None]]:
    """Is there such an entity, and what was it when it last rested?"""
    rows = yield SqlQuery("entity_state", (namespace, key))
    return bool(rows), bytes(rows[0][0]) if rows and rows[0][0] is not None else None


@procedure(ConnectionRole.READ, atomic=True)
def undelivered(namespace: str, kind: str, key: str) -> Script[Undelivered]:
    """Messages that the newest flow under a key failed to handle or refused."""
    return undelivered_of((yield SqlQuery("undelivered", (namespace, kind, key))))


@procedure(ConnectionRole.READ, atomic=True)
def failed_messages(namespace: str, most: int) -> Script[list[tuple[str, int]]]:
    """Entities with messages that failed, and how many they are."""
    return [(key, count) for key, count in (yield SqlQuery("failed_messages", (namespace, most)))]


class Mail:
    """Messages of one engine."""

    def __init__(self, store: ScriptRunner, namespace: str, lanes: Lanes, hub: Hub, time_limit: float) -> None:
        self._store = store
        self._namespace = namespace
        self._lanes = lanes
        self._hub = hub
        self._group: Coalescer[Message, str] = Coalescer(self._flush, MOST_AT_ONCE, _weight, time_limit=time_limit)
        self._asks: Coalescer[tuple[str, str], Outcome | None] = Coalescer(
            self._read, MOST_AT_ONCE, time_limit=time_limit
        )

    async def send(self, message: Message) -> str:
        """One message; when this returns it is committed. The entity's execution."""
        return await self._group.ask(message)

    async def post(self, message: Message) -> str:
        """One message in a transaction of its own, or of whoever runs the scripts. The entity's execution."""
        (reached,) = await self._flush([message])
        if isinstance(reached, BaseException):
            raise reached
        return reached

    async def answer(self, execution: str, key: str, timeout: float | None) -> Outcome | None:
        """Wait for the answer to a keyed message; None: not within `timeout`."""
        return await self._hub.until(execution, lambda: self._asks.add((execution, key)), timeout, POLL)

    async def _read(self, asked: list[tuple[str, str]]) -> list[Outcome | BaseException | None]:
        return list(await retry_unavailable(self._store.run, replies, asked))

    async def _flush(self, messages: list[Message]) -> list[str | BaseException]:
        answers: dict[int, str] = {}
        waiting = list(range(len(messages)))
        for _ in range(TRIES):
            entity_starts: dict[str, EntityStart] = {}
            for i in waiting:
                start = messages[i].start
                if start.key is not None and start.key not in entity_starts:
                    entity_starts[start.key] = start, await self._lanes.of(start.options)
            mail = [(messages[i].start.key or "", _row(messages[i])) for i in waiting]
            reached = await self._post(entity_starts, mail, messages, waiting)
            answers |= {i: id_ for i, id_ in zip(waiting, reached, strict=True) if id_ is not None}
            waiting = [i for i in waiting if i not in answers]
            if not waiting:
                break
            for i in waiting:  # it has ended at this moment, or its lane is gone
                self._lanes.forget(messages[i].start.options)
        self._hub.news(set(answers.values()))
        self._hub.work(())
        lost = TimeoutError("the entity came and went too often")
        return [answers.get(i, lost) for i in range(len(messages))]

    async def _post(
        self,
        entity_starts: dict[str, EntityStart],
        mail: list[tuple[str, Row]],
        messages: list[Message],
        waiting: list[int],
    ) -> Sequence[str | None]:
        """A lost reply may be asked for again only where keys make that harmless."""
        if all(messages[i].key is not None for i in waiting):
            return await retry_unavailable(self._store.run, post, self._namespace, entity_starts, mail)
        try:
            return await self._store.run(post, self._namespace, entity_starts, mail)
        except EngineUnavailable as error:
            raise EngineUnavailable(
                f"{error.message} Whether the message has arrived is not known: with a dedup_key it can be sent again."
            ) from error

    async def close(self) -> None:
        """Let pending messages go out."""
        await self._group.drained()


def _row(message: Message) -> Row:
    return (message.name, message.key, message.payload, None)


def _weight(message: Message) -> int:
    return len(message.payload)
