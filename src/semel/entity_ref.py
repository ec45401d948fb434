"""The caller's end of one entity: send it messages, ask it, query it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple, overload

import msgspec

from semel.codec import encode
from semel.contract.decision import Reuse
from semel.contract.durations import Duration, parse_duration
from semel.contract.fingerprint import ABSENT, NOT_KEPT
from semel.contract.keys import check_key
from semel.contract.lifecycle import Status
from semel.contract.marks import compare_marks, message_mark
from semel.contract.records import Execution, FailedMessage
from semel.define.entity import Entity
from semel.define.handler import Handler, Query, role_of
from semel.engine.conflicts import describe_differences
from semel.engine.ids import new_id
from semel.engine.outcomes import failure
from semel.engine.protocol import Message, Outcome
from semel.engine.start_request import RunOptions, StartRequest
from semel.errors import ExecutionFailed, KeyConflict, NotFound, NotRedrivable, ResultPending, SemelError, phrase
from semel.flow import snapshot
from semel.flow.context import EntityContext
from semel.flow.entity_messages import PRIVATE, REDRIVE
from semel.settings import QueueSettings, Settings

if TYPE_CHECKING:
    from semel.app import App

S = TypeVar("S")
R = TypeVar("R")
M = TypeVar("M", Handler, Query)
Ts = TypeVarTuple("Ts")
MAX_WORKER_CRASHES = 10
MOST_FAILED = 100
"""Messages that failed, and entities that have such, in one answer."""


class Ref(Generic[S]):
    """One entity, whether it is there yet or not. Messages to it are handled one at a time, in the order they came."""

    def __init__(self, app: App, entity: Entity[S], id: str) -> None:
        self._app = app
        self._entity = entity
        self.id = check_key(id, "entity id")
        self.key = check_key(f"{entity.name}/{self.id}", "entity id")
        """The key it is found under: `app.find(ref.key, kind="entity")`."""
        self._run_options: tuple[Settings, RunOptions] | None = None

    def __repr__(self) -> str:
        return f"<Ref {self.key}>"

    @overload
    async def send(
        self,
        handler: Callable[[S, EntityContext, *Ts], Coroutine[Any, Any, object]],
        /,
        *args: *Ts,
        dedup_key: str | None = None,
        connection: Any = None,
    ) -> None: ...

    @overload
    async def send(
        self, handler: str, /, *args: object, dedup_key: str | None = None, connection: Any = None, **kwargs: object
    ) -> None: ...

    async def send(
        self, handler: Any, /, *args: object, dedup_key: str | None = None, connection: Any = None, **kwargs: object
    ) -> None:
        """Hand it a message; when this returns the message is committed. An entity that is missing is made.

        The handler is given as the method, `ref.send(Rewards.add, 50)`, which type checkers follow, or by its name.
        With a `dedup_key` the message counts once, however often it is sent within the entity's window. With a
        `connection` it is sent when your transaction is committed.
        """
        key = None if dedup_key is None else check_key(dedup_key, "dedup_key")
        message = self._message(handler, args, kwargs, key)
        verbs = await self._app._verbs(self._app._connection(connection, "send"))
        await verbs.send(message)

    @overload
    async def ask(
        self,
        handler: Callable[[S, EntityContext, *Ts], Coroutine[Any, Any, R]],
        /,
        *args: *Ts,
        dedup_key: str | None = None,
        timeout: Duration | None = None,
    ) -> R: ...

    @overload
    async def ask(
        self,
        handler: str,
        /,
        *args: object,
        dedup_key: str | None = None,
        timeout: Duration | None = None,
        **kwargs: object,
    ) -> Any: ...

    async def ask(
        self,
        handler: Any,
        /,
        *args: object,
        dedup_key: str | None = None,
        timeout: Duration | None = None,
        **kwargs: object,
    ) -> Any:
        """Hand it a message and wait for what its handler returns. A duplicate gets what the first one got.

        ExecutionFailed if the handler raised, ResultPending when `timeout` is over first (the message stays),
        KeyConflict if the key stands for a message to another handler or with other arguments.
        """
        key = f"{PRIVATE}{new_id()}" if dedup_key is None else check_key(dedup_key, "dedup_key")
        message = self._message(handler, args, kwargs, key)
        seconds = None if timeout is None else parse_duration(timeout, "timeout").total_seconds()
        id_ = await self._app.engine.send(message)
        outcome = await self._app.engine.answer(id_, key, seconds)
        if outcome is None:
            later = ": ask again with the same dedup_key"
            if dedup_key is None:
                later = ", but asked again it would be another one: give a dedup_key if you want to"
            raise ResultPending(
                f"{self.key} has not answered {message.name!r} within {seconds:g} s. The message stays{later}.",
                execution_id=id_,
            )
        if dedup_key is not None:
            self._refuse_another(id_, message, outcome)
        if outcome.expired or outcome.status is not Status.COMPLETED:
            raise self._failure(id_, message.name, outcome)
        return self._entity.handlers[message.name].shape.decode_result(outcome.output)

    @overload
    async def query(self, query: Callable[[S, *Ts], R], /, *args: *Ts) -> R: ...

    @overload
    async def query(self, query: str, /, *args: object, **kwargs: object) -> Any: ...

    async def query(self, query: Any, /, *args: object, **kwargs: object) -> Any:
        """Ask a query of it as it was after its last message, given as the method or by its name.

        NotFound while it has had no message.
        """
        asked = _named("query", query, self._entity.queries, self._entity)
        bound = asked.shape.encode_input(asked.shape.bind(args, kwargs), self._app.settings.max_payload)
        given, named = asked.shape.decode_input(bound)
        state = await self.state()
        return asked.fn(state, *given, **named)

    async def state(self) -> S:
        """Its state after its last message, as a copy. NotFound while it has had none."""
        there, data = await self._app.engine.state_of(self.key)
        if not there:
            raise NotFound(f"there is no entity {self.key!r} (yet): send it a message.")
        if data is None:
            return self._entity.fresh()
        return self._entity.decode_state(snapshot.load(data).input)

    async def failed(self) -> Sequence[FailedMessage]:
        """Its messages that failed and were not sent again, newest first. NotFound while it has had none."""
        return await self._app.failed_messages(self.key)

    async def redrive(self, number: int | None = None) -> Sequence[FailedMessage]:
        """Send its messages that failed again, or one of them; what was sent. See App.redrive_messages."""
        return await self._app.redrive_messages(self.key, number)

    def _refuse_another(self, id: str, message: Message, outcome: Outcome) -> None:
        """KeyConflict if this is the answer to another message, which has the key."""
        offered = message_mark(message.name, message.payload)
        differs = compare_marks(outcome.mark, offered, self._entity.handlers[message.name].defaults)
        if differs is not None:
            given = msgspec.json.decode(message.payload)
            found = {name: (NOT_KEPT, given.get(name, ABSENT)) for name in differs.fields}
            values = f"{differs.held!r} with other arguments ({describe_differences(found)})" if found else str(differs)
            raise KeyConflict(
                f"dedup_key {message.key!r} of {self.key} stands for another message: {values}. This one was not "
                f"handled. Use a new key, or see: semel explain {self.key} --kind entity",
                existing_execution_id=id,
                status=outcome.status,
                differences=found,
            )

    def _failure(self, id: str, handler: str, outcome: Outcome) -> SemelError:
        error = outcome.error
        if outcome.status is not Status.FAILED or error is None:
            return failure(id, f"{self.key}.{handler}", outcome, redrivable=False)
        ended = "did not come to its end," if error.type == "semel.WorkerLost" else "raised"
        return ExecutionFailed(
            f"{self.key}: the handler {handler!r} {ended} {phrase(error)}. Its state is as before.",
            execution_id=id,
            error_type=error.type,
            error_message=error.message,
            traceback=error.traceback,
        )

    def _message(self, asked: object, args: tuple[Any, ...], kwargs: dict[str, Any], key: str | None) -> Message:
        handler = _named("handler", asked, self._entity.handlers, self._entity)
        payload = handler.shape.encode_input(handler.shape.bind(args, kwargs), self._app.settings.max_payload)
        return Message(StartRequest(new_id(), self.key, b"{}", b"", self._options()), handler.name, payload, key)

    def _options(self) -> RunOptions:
        """How it is made, should it be missing; the same object until the settings change."""
        settings, entity = self._app.settings, self._entity
        if self._run_options is None or self._run_options[0] is not settings:
            queue = settings.queues.get(entity.queue, QueueSettings())
            keep = entity.kept(queue.retention)
            self._run_options = (
                settings,
                RunOptions(
                    entity.kind,
                    entity.name,
                    entity.queue,
                    0,
                    Reuse.ALWAYS,
                    MAX_WORKER_CRASHES,
                    keep.retention,
                    keep.window,
                ),
            )
        return self._run_options[1]


def _named(kind: str, asked: object, there: Mapping[str, M], entity: Entity[Any]) -> M:
    """The handler or query that is asked for by its name or as the method. NotFound: the entity has no such."""
    role = None if isinstance(asked, str) else role_of(asked)
    name = asked if role is None else role.name
    found = there.get(name) if isinstance(name, str) and (role is None or role.kind == kind) else None
    if found is None or not (role is None or _has_method(entity.cls, asked)):
        shown = getattr(asked, "__qualname__", None) or repr(asked)
        raise NotFound(f"entity {entity.name!r} has no {kind} {shown}. There are: {', '.join(there) or 'none'}.")
    return found


def _has_method(cls: type, method: object) -> bool:
    return any(method is one for base in cls.__mro__ for one in vars(base).values())


async def find_failed_messages(app: App, key: str | None) -> tuple[FailedMessage, ...]:
    """The messages of one entity, or of all that live, that failed and were not sent again; newest first."""
    if key is not None:
        await _entity_under(app, key)
    keys = await app.engine.failing_entities(MOST_FAILED) if key is None else [key]
    found = [
        replace(one, entity=each) for each in keys for one in (await app.engine.undelivered("entity", each)).failed
    ]
    if key is None:
        found.sort(key=lambda one: one.failed_at, reverse=True)
    return tuple(found[:MOST_FAILED])


async def send_failed_messages_again(app: App, key: str, number: int | None) -> list[FailedMessage]:
    """Send failed messages of an entity again, oldest first, each under its own key: all, or the one of this number."""
    entity = await _entity_under(app, key)
    found = [one for one in await find_failed_messages(app, key) if number in (None, one.number)]
    able = [one for one in reversed(found) if one.arguments is not None]
    if number is not None and not able:
        raise NotRedrivable(
            f"{key} has no failed message #{number}"
            + (" whose arguments were kept: send it anew." if found else f". See: semel entities failed {key}")
        )
    options = RunOptions(
        "entity", entity.name, entity.queue, 0, Reuse.ALWAYS, MAX_WORKER_CRASHES, entity.retention, entity.window
    )
    for one in able:
        payload = encode(one.arguments, "arguments", limit=app.settings.max_payload)
        own = f"{REDRIVE}{one.number}" if one.dedup_key is None else one.dedup_key
        await app.engine.send(Message(StartRequest(new_id(), key, b"{}", b"", options), one.handler, payload, own))
    return able


async def _entity_under(app: App, key: str) -> Execution:
    found = await app.engine.find("entity", check_key(key, "key"))
    if found is None:
        raise NotFound(f"there is no entity {key!r}: its key is Class/id. See: semel workflows list --kind entity")
    return found
