"""The caller's end of one execution, and how an engine's answer becomes one or an error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from semel.codec import SEND_DATA, decode_plain, encode
from semel.contract.decision import Admit, Join, Prior, Reason, Refuse, Replay
from semel.contract.durations import Duration, parse_duration
from semel.contract.keys import check_key, check_name, check_text
from semel.contract.lifecycle import Status
from semel.contract.records import Execution
from semel.define.entity import Entity
from semel.define.task import Call
from semel.engine.conflicts import conflict
from semel.engine.ids import new_id
from semel.engine.outcomes import failure
from semel.engine.protocol import Admission, EngineVerbs, RecordedRun
from semel.engine.start_request import StartRequest
from semel.errors import (
    AlreadyCompleted,
    AlreadyExists,
    InvalidValue,
    KeyConflict,
    NotCommitted,
    NotFound,
    ResultPending,
    TaskAlreadyCompleted,
    TaskAlreadyExists,
    WorkflowAlreadyCompleted,
    WorkflowAlreadyExists,
    WorkflowEnded,
)
from semel.flow import history_file, snapshot
from semel.flow.fork import commit_before
from semel.flow.history import Event, history_events
from semel.transactional.outbox.verbs import OutboxVerbs

if TYPE_CHECKING:
    from semel.app import App

T_co = TypeVar("T_co", covariant=True)


class Handle(Generic[T_co]):
    """One execution. Duplicates under the same key hold a handle to the same one."""

    __slots__ = ("__weakref__", "_app", "_start", "_uncommitted", "duplicate", "id", "key", "name")

    def __init__(
        self,
        app: App,
        id: str,
        name: str,
        key: str | None,
        duplicate: bool,
        uncommitted: bool = False,
        start: StartRequest | None = None,
    ) -> None:
        self._app = app
        self._uncommitted = uncommitted
        self._start = start
        """What is in an outbox. None: the execution is known to the engine, or was."""
        self.id = id
        """The execution's id. Of a start in an outbox it is that of the request, until it was relayed."""
        self.key = key
        """The `task_id` it was admitted under, or None."""
        self.name = name
        """The task's name."""
        self.duplicate = duplicate
        """True when the request that made this handle did not start the execution."""

    def __repr__(self) -> str:
        key = "" if self.key is None else f" key={self.key!r}"
        return f"<Handle {self.name!r} {self.id}{key}{' duplicate' if self.duplicate else ''}>"

    async def result(self, timeout: Duration | None = None) -> T_co:
        """Wait for the end and return the result.

        Raises ExecutionFailed, ExecutionCancelled or ExecutionTimedOut when it ended so, ResultExpired past retention,
        and ResultPending when `timeout` is over first (the execution goes on).
        """
        return cast(T_co, _decode_result(self._app, self.name, await self._output(timeout)))

    async def output(self, timeout: Duration | None = None) -> Any:
        """Wait for the end and return the result as plain JSON data; raises what `result` raises."""
        return decode_plain(await self._output(timeout))

    async def _output(self, timeout: Duration | None) -> bytes | None:
        seconds = None if timeout is None else parse_duration(timeout, "timeout").total_seconds()
        if self._start is not None:
            seconds = await self._await_relay(seconds)
        elif self._uncommitted:
            await self.describe()
        outcome = await self._app.engine.outcome(self.id, seconds)
        if outcome is None:
            raise ResultPending(
                f"no end of execution {self.id} of {self.name!r} was seen within {seconds:g} s. It goes on: ask again.",
                execution_id=self.id,
            )
        if outcome.status is not Status.COMPLETED or outcome.expired:
            raise failure(self.id, self.name, outcome)
        return outcome.output

    async def input(self) -> dict[str, Any] | None:
        """The arguments as plain JSON data, by name; None once retention has dropped them."""
        await self._locate()
        found: dict[str, Any] | None = decode_plain(await self._app.engine.input_of(self.id))
        return found

    async def state(self) -> dict[str, Any] | None:
        """The state of an entity as plain JSON data, as its last message left it; None once the entity has ended."""
        execution = await self.describe()
        if execution.kind != "entity" or execution.key is None:
            raise InvalidValue(f"execution {self.id} is a {execution.kind}: only an entity has a state.")
        there, data = await self._app.engine.state_of(execution.key)
        if data is None or not execution.status.live:
            return {} if there and data is None else None
        found: dict[str, Any] = decode_plain(snapshot.load(data).input)
        return found

    async def describe(self) -> Execution:
        """The execution as it stands now. NotFound once it is past its retention."""
        await self._locate()
        execution = await self._app.engine.get(self.id)
        if execution is None:
            raise self._missing()
        self._uncommitted = False
        return execution

    async def _locate(self) -> None:
        """Find what a start in an outbox became. NotCommitted: nothing yet. KeyConflict: its key is another's."""
        start = self._start
        if start is None:
            return
        found = await self._app.engine.look_up(start)
        if found is None:
            raise NotCommitted(
                f"execution {self.id} of {self.name!r} is not there: the transaction that started it was rolled back "
                "or is not committed yet, or no relay has taken its row of the outbox. See: semel outbox list"
            )
        if isinstance(found.decision, Refuse):
            raise await refusal(self._app, self._app.engine, start, found)
        self.id, self.duplicate = found.id, not isinstance(found.decision, Admit)
        self._start, self._uncommitted = None, False

    async def _await_relay(self, seconds: float | None) -> float | None:
        """Wait until a start in an outbox was relayed; what is left of the time. Without a time: look once."""
        end, look = time.monotonic() + (seconds or 0.0), 0.01
        while True:
            try:
                await self._locate()
                return None if seconds is None else max(0.0, end - time.monotonic())
            except NotCommitted:
                if time.monotonic() >= end:
                    raise
            await asyncio.sleep(min(look, max(0.0, end - time.monotonic())))
            look = min(1.0, look * 1.5)

    def _missing(self) -> NotFound:
        if self._uncommitted:
            return NotCommitted(
                f"execution {self.id} of {self.name!r} is not there: the transaction that started it was rolled back, "
                "or is not committed yet."
            )
        return NotFound(f"execution {self.id} is not known (any more): it may be past its retention.")

    async def status(self) -> Status:
        """Where it stands now."""
        return (await self.describe()).status

    async def cancel(self, *, connection: Any = None) -> Status:
        """Cancel it, and say how it stands then.

        `cancelled`: it had not begun and will not. `running`: its worker has been asked to stop it.
        Anything else: it had ended before. With a `connection` it is so once your transaction is committed; with one
        to another database than the engine's, once that was relayed, and the answer is `running`.
        """
        verbs = await self._app._verbs(self._app._connection(connection, "cancel"))
        if isinstance(verbs, OutboxVerbs):
            return await verbs.cancel_later(self.id, self._start)
        await self._locate()
        status = await verbs.cancel(self.id)
        if status is None:
            raise self._missing()
        return status

    async def signal(
        self, name: str, payload: Any = None, *, dedup_key: str | None = None, connection: Any = None
    ) -> None:
        """Send a signal to a workflow: delivered once, in order with others of its name.

        With a `dedup_key` it may be sent again and again and still counts once. WorkflowEnded if it has ended. With a
        `connection` it is sent when your transaction is committed.
        """
        key = None if dedup_key is None else check_key(dedup_key, "dedup_key")
        limit = self._app.settings.max_payload
        data = None if payload is None else encode(payload, "payload", plain=True, advice=SEND_DATA, limit=limit)
        verbs = await self._app._verbs(self._app._connection(connection, "signal"))
        name = check_name(name, "signal name")
        if isinstance(verbs, OutboxVerbs):
            await verbs.signal_later(self.id, self._start, name, data, key)
            return
        await self._locate()
        self._live(await verbs.signal(self.id, name, data, key))

    async def terminate(self, why: str = "terminated") -> Status:
        """End a workflow at once, without a chance to clean up; the status then."""
        await self._locate()
        status = await self._app.engine.terminate(self.id, check_text(why, "why"))
        if status is None:
            raise self._missing()
        return status

    async def published(self, name: str, default: Any = None) -> Any:
        """The value that the workflow last published under a name."""
        await self._locate()
        data = await self._app.engine.published(self.id, check_name(name, "published name"))
        if data is None:
            await self.describe()  # NotFound is another thing than nothing published
            return default
        return decode_plain(data)

    async def attributes(self) -> dict[str, str]:
        """The search attributes of the workflow."""
        await self._locate()
        found = await self._app.engine.attributes(self.id)
        if not found:
            await self.describe()
        return found

    async def history(self) -> list[Event]:
        """What happened to the workflow, since it last continued as new."""
        past = await self._story()
        return history_events(past.commits, past.base + 1)

    async def export(self) -> str:
        """Its history as JSON, to be replayed against other code with `app.replay_history(text)`."""
        return history_file.dump(await self._story())

    async def reset(self, to: int | str) -> Handle[T_co]:
        """Let a workflow go on from before the answer to a command, as a new execution under the same id.

        `to` is the number of a command, its name (the last one of that name), or "row:7" to keep a journal up to its
        row 7. What the journal holds up to there is not run again; effect keys stay. If this one has not ended, it
        does. NotResettable says why not.
        """
        commit = commit_before(await self._past(), to)
        fresh = await self._app.engine.reset(self.id, new_id(), commit)
        return Handle(self._app, fresh, name=self.name, key=self.key, duplicate=False)

    async def _story(self) -> RecordedRun:
        past = await self._past()
        if past.kind == "task":
            raise InvalidValue(f"execution {self.id} is a task, and a task has no history: describe() says how it is.")
        return past

    async def _past(self) -> RecordedRun:
        await self._locate()
        past = await self._app.engine.past(self.id)
        if past is None:
            raise self._missing()
        return past

    def _live(self, status: Status | None) -> None:
        if status is None:
            raise self._missing()
        if status.terminal:
            raise WorkflowEnded(f"workflow {self.key!r} ({self.id}) has ended {status}: nothing can reach it any more.")


Batch = Call[Any] | tuple[Call[Any], str | None]


def handle_of(
    app: App, start: StartRequest, admission: Admission, on_duplicate: str, uncommitted: bool = False
) -> Handle[Any] | None:
    """The handle that the caller gets; None: there is an error instead, see `refusal`. Most calls end here."""
    new = isinstance(admission.decision, Admit)
    if not new and (on_duplicate == "raise" or isinstance(admission.decision, Refuse)):
        return None
    return Handle(app, admission.id, start.options.name, start.key, not new, uncommitted)


async def write_starts(
    app: App, verbs: OutboxVerbs, starts: Sequence[StartRequest], on_duplicate: str
) -> list[Handle[Any]]:
    """Write starts into an outbox; a handle to what each of them will be."""
    if on_duplicate == "raise":
        raise InvalidValue(
            "on_duplicate='raise' needs the answer of the engine, and in a transaction of another database it is not "
            "asked: leave it away, and look at handle.duplicate once it was relayed."
        )
    admissions = await verbs.start_many(starts)
    return [
        Handle(app, admission.id, start.options.name, start.key, False, True, start)
        for start, admission in zip(starts, admissions, strict=True)
    ]


def _decode_result(app: App, name: str, data: bytes | None) -> Any:
    task = app.tasks.get(name)
    if task is None or isinstance(task, Entity):
        return decode_plain(data)
    return task.shape.decode_result(data)


async def refusal(
    app: App, verbs: EngineVerbs, start: StartRequest, admission: Admission
) -> KeyConflict | AlreadyExists | AlreadyCompleted:
    """The error that says why there is no handle for the caller."""
    match admission.decision:
        case Refuse(prior, reason):
            return await _conflict(verbs, start, prior, reason)
        case Join(prior) | Replay(prior):
            return await _duplicate(app, verbs, start, prior)
        case Admit():
            raise AssertionError("what was admitted has a handle")


async def _conflict(verbs: EngineVerbs, start: StartRequest, prior: Prior, reason: Reason) -> KeyConflict:
    stored = await verbs.input_of(prior.id) if reason is Reason.INPUT_DIFFERS else None
    return conflict(start.key or "", start.options.name, prior, reason, stored, start.payload, start.shape)


async def _duplicate(
    app: App, verbs: EngineVerbs, start: StartRequest, prior: Prior
) -> AlreadyExists | AlreadyCompleted:
    workflow = start.options.kind == "workflow"
    execution = await verbs.get(prior.id)
    if execution is not None and execution.status is Status.COMPLETED and execution.finished_at is not None:
        when = execution.finished_at
        outcome = None if execution.expired else await verbs.outcome(prior.id, None)
        return (WorkflowAlreadyCompleted if workflow else TaskAlreadyCompleted)(
            f"{start.options.kind} {start.key!r} completed at {when:%Y-%m-%d %H:%M:%S} UTC as execution {prior.id}.",
            existing_execution_id=prior.id,
            completed_at=when,
            result=None if outcome is None else _decode_result(app, start.options.name, outcome.output),
        )
    status = prior.status if execution is None else execution.status
    return (WorkflowAlreadyExists if workflow else TaskAlreadyExists)(
        f"{start.options.kind} {start.key!r} is already {status}, as execution {prior.id}.",
        existing_execution_id=prior.id,
        status=status,
    )
