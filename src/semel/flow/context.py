"""`ctx`: what workflow code may ask for. Everything it can do outside of itself goes through here."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Coroutine, Iterator, MutableMapping
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NoReturn,
    ParamSpec,
    TypeVar,
    TypeVarTuple,
    Unpack,
    overload,
)

from semel.codec import PUBLISH_DATA, SEND_DATA, encode
from semel.contract.durations import Duration, parse_duration
from semel.contract.keys import check_attribute, check_key, check_name
from semel.contract.keys import effect_key as make_effect_key
from semel.contract.lifecycle import Status
from semel.contract.times import from_micros
from semel.define.options import (
    ChildTaskOptions,
    ChildWorkflowOptions,
    OnClose,
    StepOptions,
    refuse_missing,
    split_options,
)
from semel.define.task import Call, Task
from semel.define.workflow import Workflow, WorkflowCall
from semel.engine.requests import request, workflow_request
from semel.errors import InvalidValue
from semel.flow.commands import RESULT_OF, Command, ContinueAsNew, Kind, mark_of
from semel.flow.logger import WorkflowLogger
from semel.flow.signals import reader_of
from semel.flow.steps import step_of
from semel.flow.turn import Ended
from semel.triggers.ids import parse_run_id

if TYPE_CHECKING:
    from semel.flow.entity import Actor
    from semel.flow.instance import Instance

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")


class Context:
    """The way out of a workflow. What it gives is the same each time the workflow is run from its journal."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self.workflow_id = instance.who.key
        """The id it was started under."""
        self.execution_id = instance.who.seed or instance.who.id
        """The execution; after a reset still the first one, since the journal may hold it."""
        self.parent_workflow_id = instance.who.parent
        """The execution id of the workflow that started it, if one did."""
        self.namespace = instance.who.namespace
        self.generation = instance.who.generation
        """How many executions under its id have completed before it."""
        run = parse_run_id(instance.who.key)
        self.scheduled_for = None if run is None else run[1]
        """The slot of the schedule that started it; None if none did. A parameter of type `semel.Run` tells more."""
        self.search_attributes: MutableMapping[str, str] = Attributes(instance)
        """Words to find it by: `ctx.search_attributes["scope"] = "eu"`."""
        self._log: WorkflowLogger | None = None

    @property
    def run_id(self) -> str:
        """This run of it; another one after `continue_as_new`, and for each message of an entity."""
        return f"{self.execution_id}.{self._instance.run}"

    @property
    def log(self) -> WorkflowLogger:
        """A logger whose lines a replay does not repeat, with the execution id and key on each record."""
        if self._log is None:
            self._log = WorkflowLogger(self._instance.workflow, self._instance.loop)
        return self._log

    @property
    def random(self) -> random.Random:
        """Dice that fall the same way each time."""
        return self._instance.random

    def now(self) -> datetime:
        """The time, in UTC, as it was when this part of the workflow ran first."""
        return from_micros(self._instance.loop.now)

    def uuid4(self) -> uuid.UUID:
        """A random UUID that stays the same."""
        return uuid.UUID(int=self._instance.random.getrandbits(128), version=4)

    def effect_key(self, name: str) -> str:
        """The key for an outside effect of this workflow, the same through retries, replays and resets."""
        who = self._instance.who
        return make_effect_key(who.namespace, "workflow", who.key, who.generation, name)

    def patched(self, id: str) -> bool:
        """True where the new code may run: False while a journal from before the change is replayed."""
        return self._instance.patched(check_name(id, "patch id"))

    async def sleep(self, duration: Duration) -> None:
        """The same as asyncio.sleep, also for "2d"."""
        await asyncio.sleep(parse_duration(duration, "duration").total_seconds())

    @overload
    async def execute_task(self, call: Call[R], /, **options: Unpack[ChildTaskOptions]) -> R: ...

    @overload
    async def execute_task(
        self, task: Callable[[*Ts], Coroutine[Any, Any, R]], /, *args: *Ts, **options: Unpack[ChildTaskOptions]
    ) -> R: ...

    @overload
    async def execute_task(self, task: Callable[[*Ts], R], /, *args: *Ts, **options: Unpack[ChildTaskOptions]) -> R: ...

    async def execute_task(self, task: Any, /, *args: object, **options: Unpack[ChildTaskOptions]) -> Any:
        """Run a task on its own queue and wait for its result; ExecutionFailed and its kin if it did not complete.

        Arguments are given by position, options by keyword; `charge.call(…)` takes arguments by name. With a `task_id`
        it shares the one execution that anyone else asks for under it.
        """
        command = self._task(Kind.TASK, task, args, options)
        command.read = (task.task if isinstance(task, Call) else task).shape.decode_result
        return await self._instance.ask(command)

    @overload
    async def enqueue(self, call: Call[Any], /, **options: Unpack[ChildTaskOptions]) -> None: ...

    @overload
    async def enqueue(
        self, task: Callable[[*Ts], object], /, *args: *Ts, **options: Unpack[ChildTaskOptions]
    ) -> None: ...

    async def enqueue(self, task: Any, /, *args: object, **options: Unpack[ChildTaskOptions]) -> None:
        """Have a task run, and do not wait for it. It is committed together with what this code did before."""
        await self._instance.ask(self._task(Kind.ENQUEUE, task, args, options))

    def _task(self, kind: Kind, task: Any, args: tuple[object, ...], options: ChildTaskOptions) -> Command:
        options, by_name = split_options(options, ChildTaskOptions)
        self._refuse_foreign(kind, task)
        start = request(self._instance.settings, task, args, by_name, **options)
        self._instance.check_start(kind, start)
        if start.key is None:
            start.root = self._occurrence(start.options.name)
        return Command(kind, start.options.name, mark_of(start), ref=start.id, start=start)

    @overload
    async def step(
        self, fn: Callable[[*Ts], Coroutine[Any, Any, R]], /, *args: *Ts, **options: Unpack[StepOptions]
    ) -> R: ...

    @overload
    async def step(self, fn: Callable[[*Ts], R], /, *args: *Ts, **options: Unpack[StepOptions]) -> R: ...

    @overload
    async def step(self, fn: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    async def step(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    async def step(self, fn: Any, /, *args: object, **given: Any) -> Any:
        """Run a function here and now, and record its result: for small things. What is recorded never runs again."""
        name, retry = given.pop("name", None), given.pop("retry", None)
        command = step_of(Kind.STEP, fn, args, given, name, retry, self._instance.settings.max_payload)
        command.effect = self._occurrence(command.name)
        return await self._instance.ask(command)

    @overload
    async def transaction(self, fn: Callable[[Any, *Ts], R], /, *args: *Ts, name: str | None = None) -> R: ...

    @overload
    async def transaction(self, fn: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    async def transaction(self, fn: Any, /, *args: object, **given: Any) -> Any:
        """Run `fn(tx, …)` in the engine's own database, in the transaction that records its result: exactly once.

        `fn` is a plain function; `tx.execute("insert … values ($1)", value)` gives rows. If it raises, its writes are
        rolled back and the error is recorded.
        """
        name = given.pop("name", None)
        command = step_of(Kind.TRANSACTION, fn, args, given, name, None, self._instance.settings.max_payload)
        command.effect = self._occurrence(command.name)
        return await self._instance.ask(command)

    @overload
    async def wait_signal(self, name: str, timeout: Duration | None = None, *, type: type[R]) -> R: ...

    @overload
    async def wait_signal(self, name: str, timeout: Duration | None = None, *, type: Any = Any) -> Any: ...

    async def wait_signal(self, name: str, timeout: Duration | None = None, *, type: Any = Any) -> Any:
        """The next signal of that name, in the order in which they came; TimeoutError when `timeout` is over first.

        With `type=Approval` the payload is read as that type.
        """
        command = Command(Kind.SIGNAL, check_name(name, "signal name"), read=reader_of(type))
        if timeout is None:
            return await self._instance.ask(command)
        async with asyncio.timeout(parse_duration(timeout, "timeout").total_seconds()):
            return await self._instance.ask(command)

    @overload
    async def start_workflow(self, call: WorkflowCall[R], /, **options: Unpack[ChildWorkflowOptions]) -> Child[R]: ...

    @overload
    async def start_workflow(
        self,
        workflow: Callable[[Context, *Ts], Coroutine[Any, Any, R]],
        /,
        *args: *Ts,
        **options: Unpack[ChildWorkflowOptions],
    ) -> Child[R]: ...

    async def start_workflow(
        self, workflow: Any, /, *args: object, **options: Unpack[ChildWorkflowOptions]
    ) -> Child[Any]:
        """Start a child and go on; `on_parent_close` says what becomes of it when this workflow ends first.

        Without it the child goes on: "abandon".
        """
        command = self._child("start_workflow", workflow, args, options, "abandon")
        command.waits = False
        id_: str = await self._instance.ask(command)
        return Child(self._instance, id_, options["workflow_id"], command)

    @overload
    async def execute_workflow(self, call: WorkflowCall[R], /, **options: Unpack[ChildWorkflowOptions]) -> R: ...

    @overload
    async def execute_workflow(
        self,
        workflow: Callable[[Context, *Ts], Coroutine[Any, Any, R]],
        /,
        *args: *Ts,
        **options: Unpack[ChildWorkflowOptions],
    ) -> R: ...

    async def execute_workflow(self, workflow: Any, /, *args: object, **options: Unpack[ChildWorkflowOptions]) -> Any:
        """Start a child and wait for its result. Without `on_parent_close` it is cancelled when this one ends first."""
        return await self._instance.ask(self._child("execute_workflow", workflow, args, options, "cancel"))

    def _child(
        self, verb: str, workflow: Any, args: tuple[object, ...], options: ChildWorkflowOptions, default: OnClose
    ) -> Command:
        refuse_missing(f"ctx.{verb}", options)
        options, by_name = split_options(options, ChildWorkflowOptions)
        workflow_id, on_close = options["workflow_id"], options.get("on_parent_close", default)
        if on_close not in ("abandon", "cancel", "terminate"):
            raise InvalidValue(f"on_parent_close={on_close!r}: use 'abandon', 'cancel' or 'terminate'.")
        self._refuse_foreign(Kind.WORKFLOW, workflow)
        start = workflow_request(
            self._instance.settings,
            workflow,
            args,
            by_name,
            workflow_id=workflow_id,
            queue=options.get("queue"),
            old=True,
        )
        self._refuse_itself(workflow_id, start.options.name)
        self._instance.check_start(Kind.WORKFLOW, start)
        meant = workflow.workflow if isinstance(workflow, WorkflowCall) else workflow
        # It may have been the newest when this was asked for first.
        if meant.newest is not meant and not self._instance.recorded(Kind.WORKFLOW, meant.name):
            meant.refuse_if_old()
        return Command(
            Kind.WORKFLOW,
            start.options.name,
            mark_of(start),
            ref=start.id,
            start=start,
            on_close=on_close,
            read=meant.shape.decode_result,
        )

    def _refuse_foreign(self, kind: Kind, asked: object) -> None:
        """InvalidValue: a function of another app than that of this workflow."""
        one = asked.task if isinstance(asked, Call) else asked.workflow if isinstance(asked, WorkflowCall) else asked
        registry = self._instance.workflow.registry
        if registry is None or not isinstance(one, Task | Workflow):
            return
        try:
            registry.refuse_foreign(one)
        except InvalidValue:
            # Journals may be older than this. Asked last: on Temporal the question leaves a marker in history.
            if not self._instance.recorded(kind, one.name):
                raise

    def _refuse_itself(self, workflow_id: str, name: str) -> None:
        instance = self._instance
        itself = workflow_id == self.workflow_id and instance.workflow.kind == "workflow"
        if itself and not instance.recorded(Kind.WORKFLOW, name):  # journals may be older than this
            raise InvalidValue(
                f"workflow_id={workflow_id!r} is that of this very workflow, which would wait for itself. Give the "
                "child an id of its own, or begin again with ctx.continue_as_new(…)."
            )

    def publish(self, name: str, value: Any) -> None:
        """Let the outside read a value: `await handle.published(name)`."""
        limit = self._instance.settings.max_payload
        payload = encode(value, f"published {name!r}", plain=True, advice=PUBLISH_DATA, limit=limit)
        self._instance.ask(Command(Kind.PUBLISH, check_name(name, "published name"), payload=payload))

    def continue_as_new(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Begin again with this input and an empty journal; the id, waiting signals and seen keys stay."""
        workflow = self._instance.workflow
        if not isinstance(workflow, Workflow):
            raise InvalidValue("continue_as_new() in an entity: its journal is cut after each message by itself.")
        shape = workflow.shape
        raise ContinueAsNew(shape.encode_input(shape.bind(args, kwargs), self._instance.settings.max_payload))

    def _occurrence(self, name: str) -> str:
        who = self._instance.who
        again = f"#{who.generation + 1}" if who.generation else ""
        return f"{name}:{self._instance.count(name)}{again}:{who.key}"


class EntityContext(Context):
    """The way out of an entity's handler."""

    def __init__(self, actor: Actor) -> None:
        super().__init__(actor)
        self._actor = actor
        self.entity_id = actor.who.key.partition("/")[2]
        """The id that messages are sent to."""

    def effect_key(self, name: str) -> str:
        """The key for an outside effect of this message, the same through retries and replays."""
        who = self._actor.who
        message = f"{who.key}#{self._actor.counts['']}"
        return make_effect_key(who.namespace, "entity", message, who.generation, name)

    async def wait_signal(self, name: str, timeout: Duration | None = None, *, type: Any = Any) -> NoReturn:
        """Refused: what comes for an entity are messages."""
        raise InvalidValue(f"wait_signal({name!r}) in an entity: write a handler for it, and keep what it needs.")

    def end(self) -> None:
        """End the entity after this message. A later message begins a new one."""
        self._actor.over = Ended(Status.COMPLETED)


class Child(Generic[R_co]):
    """A workflow that this one has started."""

    def __init__(self, instance: Instance, id: str, key: str, started: Command) -> None:
        self._instance = instance
        self._started = started
        self.id = id
        """Its execution id."""
        self.key = key
        """The id it was started under."""

    async def result(self) -> R_co:
        """Wait for its end."""
        started = self._started
        value: R_co = await self._instance.ask(
            Command(Kind.WORKFLOW, started.name, f"{RESULT_OF}{self.key}", ref=self.id, read=started.read)
        )
        return value

    async def signal(self, name: str, payload: Any = None, *, dedup_key: str | None = None) -> None:
        """Send it a signal."""
        limit = self._instance.settings.max_payload
        data = encode(payload, "payload", plain=True, advice=SEND_DATA, limit=limit)
        if dedup_key is not None:
            check_key(dedup_key, "dedup_key")
        command = Command(Kind.SEND, check_name(name, "signal name"), dedup_key or "", ref=self.id, payload=data)
        await self._instance.ask(command)

    async def cancel(self) -> None:
        """Ask it to stop."""
        await self._instance.ask(Command(Kind.CANCEL, self._started.name, ref=self.id))


class Attributes(MutableMapping[str, str]):
    """Search attributes; each change is a command."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def __getitem__(self, name: str) -> str:
        return self._instance.attributes[name]

    def __setitem__(self, name: str, value: str) -> None:
        name, value = check_attribute(name, value)
        self._instance.ask(Command(Kind.ATTRIBUTE, name, value))
        self._instance.attributes[name] = value

    def __delitem__(self, name: str) -> None:
        if name not in self._instance.attributes:
            raise KeyError(name)
        self._instance.ask(Command(Kind.ATTRIBUTE, name, ""))
        del self._instance.attributes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._instance.attributes)

    def __len__(self) -> int:
        return len(self._instance.attributes)
