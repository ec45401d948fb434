"""Carry out a row of the outbox: start, send, signal, cancel, publish, or call a handler of the caller's own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from semel.contract.decision import Reason, Refuse
from semel.contract.durations import parse_duration
from semel.contract.keys import check_key
from semel.define.entity import Entity
from semel.define.registry import Registry
from semel.define.workflow import Workflow
from semel.engine.conflicts import conflict
from semel.engine.protocol import Admission, Engine
from semel.engine.publications import make_publication
from semel.engine.requests import foreign_request, request, workflow_request
from semel.engine.start_request import StartRequest
from semel.errors import (
    EngineError,
    EngineUnavailable,
    InvalidValue,
    KeyConflict,
    NotDecodable,
    NotFound,
    WorkflowEnded,
)
from semel.settings import Settings
from semel.transactional.outbox import events
from semel.transactional.outbox.events import OutboxEvent, TakenRow
from semel.transactional.outbox.trace import TRACE_FIELD, continue_trace

Handler = Callable[[OutboxEvent], Any]
STARTS: Final = frozenset({events.START, events.TASK, events.WORKFLOW, events.EVENT, events.PUBLISH})
PROBE_KEY: Final = "semel:probe"
PERMANENT: Final = (KeyConflict, WorkflowEnded)
"""Errors that trying again does not mend: such a row fails at once."""


class NotServed(Exception):
    """This relay cannot carry out a row, and another one may: it lacks the function, or is of an older release."""


class Dispatcher:
    """Carries out rows on one engine."""

    def __init__(
        self, engine: Engine, registry: Registry, settings: Settings, handlers: Mapping[str, Handler], timeout: float
    ) -> None:
        self._engine = engine
        self._registry = registry
        self._settings = settings
        self._handlers = handlers
        self._timeout = timeout
        self._verbs: dict[str, Callable[[TakenRow], Awaitable[str | None]]] = {
            events.START: self._start,
            events.SEND: self._send,
            events.SIGNAL: self._signal,
            events.CANCEL: self._cancel,
            events.PUBLISH: self._publish,
            events.TASK: self._start_plain,
            events.WORKFLOW: self._start_plain,
            events.EVENT: self._publish_plain,
        }

    @property
    def types(self) -> str:
        """The types that there is a handler for, as a JSON list."""
        return msgspec.json.encode(sorted(self._handlers)).decode()

    async def carry_out(self, row: TakenRow) -> str | None:
        """Do what a row asks for; the execution that it is about, if it is about one.

        EngineUnavailable: the engine does not answer, or refuses everything. NotServed: somebody else can do it.
        """
        if (handler := self._handlers.get(row.event.event_type)) is not None:
            await self._call(handler, row.event)
            return None
        verb = self._verbs.get(row.event.event_type)
        if verb is None or events.is_newer(row.payload):
            raise NotServed(f"rows of type {row.event.event_type!r}, as this one is written")
        with continue_trace(row):
            try:
                return await verb(row)
            except EngineUnavailable:
                raise
            except EngineError as error:
                if await self._refuses_everything():
                    raise EngineUnavailable(f"it refuses everything: {error}") from error
                raise

    async def _refuses_everything(self) -> bool:
        """Does the engine refuse whatever it is asked, as one without tables or with another password does?"""
        try:
            await self._engine.find("task", PROBE_KEY)
        except EngineError:
            return True
        return False

    def is_bulk(self, row: TakenRow) -> bool:
        """Can it be started together with others? One that belongs to a trace is started in it, by itself."""
        return (
            row.event.event_type == events.START
            and TRACE_FIELD not in row.payload
            and events.START not in self._handlers
            and not events.is_newer(row.payload)
        )

    async def start_many(self, rows: Sequence[TakenRow]) -> list[str | Exception]:
        """Start what these rows ask for, in few commits: the execution of each, or its error.

        What this raises says nothing about any of them: then each is carried out by itself, which starts none twice.
        """
        found: dict[int, str | Exception] = {}
        starts: dict[int, StartRequest] = {}
        for row in rows:
            try:
                starts[row.event.id] = self._with_shape(StartRequest.from_bytes(row.payload))
            except NotDecodable as error:
                found[row.event.id] = error
        admissions = await self._engine.start_many(list(starts.values()))
        for (id_, start), admission in zip(starts.items(), admissions, strict=True):
            try:
                found[id_] = await self._admitted(start, admission)
            except KeyConflict as error:
                found[id_] = error
        return [found[row.event.id] for row in rows]

    async def _call(self, handler: Handler, event: OutboxEvent) -> None:
        """A plain function runs in a thread. None has longer than half of the lease of its row."""
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                if inspect.iscoroutinefunction(handler):
                    await handler(event)
                else:
                    await asyncio.to_thread(handler, event)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise RuntimeError("the handler was cancelled by itself") from error  # else the relay would end
        except TimeoutError as error:
            if not limit.expired():  # it is one of the handler's own
                raise
            raise TimeoutError(
                f"the handler did not end within {self._timeout:g} s, half of the relay's lease: give the relay a "
                "longer lease, or have the handler start a task"
            ) from error

    async def _start(self, row: TakenRow) -> str:
        return await self._admit(self._with_shape(StartRequest.from_bytes(row.payload)))

    def _with_shape(self, start: StartRequest) -> StartRequest:
        """An earlier release may have made another fingerprint of the same arguments: the function's shape knows."""
        function = self._registry.get(start.options.name)
        if function is None or isinstance(function, Entity) or start.options.foreign:
            return start
        return replace(start, shape=function.shape)

    async def _admit(self, start: StartRequest) -> str:
        return await self._admitted(start, await self._engine.start(start))

    async def _admitted(self, start: StartRequest, admission: Admission) -> str:
        """What was started before counts as started. KeyConflict: its key stands for something else."""
        if isinstance(decision := admission.decision, Refuse):
            prior, reason = decision.prior, decision.reason
            stored = await self._engine.input_of(prior.id) if reason is Reason.INPUT_DIFFERS else None
            name = start.options.name
            raise conflict(start.key or "", name, prior, reason, stored, start.payload, start.shape)
        return admission.id

    async def _send(self, row: TakenRow) -> str:
        return await self._engine.send(events.message_in(row.payload))

    async def _signal(self, row: TakenRow) -> str:
        execution, start, name, payload, key = events.signal_in(row.payload)
        id_ = await self._locate(execution, start)
        status = await self._engine.signal(id_, name, payload, key)
        if status is None:
            raise NotFound(f"there is no execution {id_}: it may be past its retention.")
        if status.terminal:
            raise WorkflowEnded(f"execution {id_} has ended {status}: the signal {name!r} cannot reach it any more.")
        return id_

    async def _cancel(self, row: TakenRow) -> str:
        execution, start = events.cancel_in(row.payload)
        id_ = await self._locate(execution, start)
        if await self._engine.cancel(id_) is None:
            raise NotFound(f"there is no execution {id_}: it may be past its retention.")
        return id_

    async def _locate(self, execution: str, start: StartRequest | None) -> str:
        """The id of an execution that was started by another row, which may not have been carried out yet."""
        if start is None:
            return execution
        found = await self._engine.look_up(self._with_shape(start))
        if found is None:
            raise NotFound(f"execution {execution} of {start.options.name!r} has not been started yet.")
        return found.id

    async def _publish(self, row: TakenRow) -> None:
        await (await self._engine.events()).publish(events.publication_in(row.payload))

    # Rows of plain SQL.

    async def _start_plain(self, row: TakenRow) -> str:
        plain = events.plain_start_in(row.payload)
        kind = row.event.event_type.partition(".")[2]
        options = plain.options
        run_at = options.run_at
        if options.delay is not None:
            run_at = row.event.created_at + parse_duration(options.delay, "delay")
        if options.task_queue is not None:
            return await self._start_foreign(row, plain, run_at)
        function = self._registry.get(plain.name)
        if function is None or function.kind != kind or isinstance(function, Entity):
            raise NotServed(f"{kind} {plain.name!r}")
        arguments = msgspec.json.decode(bytes(plain.arguments))
        if not isinstance(arguments, dict):
            raise InvalidValue("arguments are a JSON object, by the names of the function's parameters.")
        given: dict[str, Any] = {
            "reuse": options.reuse,
            "priority": options.priority,
            "run_at": run_at,
            "queue": options.queue,
        }
        if isinstance(function, Workflow):
            key = check_key(row.event.key, "key")
            made = workflow_request(self._settings, function, (), arguments, workflow_id=key, **given)
        else:
            made = request(self._settings, function, (), arguments, task_id=row.event.key, **given)
        return await self._admit(replace(made, id=events.request_id(row)))

    async def _start_foreign(self, row: TakenRow, plain: events.PlainStart, run_at: datetime | None) -> str:
        """A workflow that workers other than Semel's run: its arguments are a JSON list."""
        arguments = msgspec.json.decode(bytes(plain.arguments))
        if not isinstance(arguments, list):
            raise InvalidValue("arguments of a workflow with a task_queue are a JSON list: they go by position.")
        made = foreign_request(
            self._settings,
            self._engine.capabilities,
            plain.name,
            tuple(arguments),
            {"task_queue": plain.options.task_queue},
            workflow_id=check_key(row.event.key, "key"),
            reuse=plain.options.reuse,
            priority=plain.options.priority,
            run_at=run_at,
        )
        return await self._admit(replace(made, id=events.request_id(row)))

    async def _publish_plain(self, row: TakenRow) -> None:
        from semel.triggers.envelope import EventEnvelope
        from semel.triggers.problems import validate

        event = validate(EventEnvelope, row.event.payload, "the event of this row")
        made = make_publication(self._settings, event, None, None, datetime.now(UTC))
        delivery = int(events.request_id(row)[-15:], 16)
        await (await self._engine.events()).publish(replace(made, delivery=delivery))
