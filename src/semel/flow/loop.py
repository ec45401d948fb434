"""An event loop that does the same again.

It has no selector, no thread and no clock: time stands still until the journal says that it moved, and callbacks run
in the order in which they were made ready. `asyncio.sleep`, `gather`, `wait`, `timeout`, `TaskGroup`, `Event` and
`Queue` need no more than this, so that workflow code uses them as they are.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import weakref
from asyncio import events, tasks
from collections import deque
from collections.abc import Callable
from contextvars import Context
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from semel.errors import Forbidden
from semel.flow.asyncio_order import keep_order, restore_order
from semel.flow.guard import refusal
from semel.flow.source_location import where

if TYPE_CHECKING:
    from semel.flow.turn import Identity

log = logging.getLogger("semel.workflow")
MOST_CLOSINGS: Final = 1000
MOST_CALLBACKS: Final = 200_000
"""In one go, without waiting for anything: more than this is an endless loop."""
NEVER: Final = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""Who sleeps for longer sleeps until then: no calendar has a name for what comes after."""


class FlowFuture(asyncio.Future[Any]):
    """A future whose hash is its number, so that a set of futures has the same order in every process."""

    number: int
    dropped: Callable[[], None] | None = None
    """Told when the code stops waiting for it."""

    def __hash__(self) -> int:
        return self.number

    def cancel(self, msg: Any = None) -> bool:
        """Asyncio cancels what a cancelled task waits for."""
        done = super().cancel(msg)
        dropped, self.dropped = self.dropped, None
        if done and dropped is not None:
            dropped()
        return done


class FlowTask(asyncio.Task[Any]):
    """The same for tasks: `asyncio.wait` and `TaskGroup` keep them in sets."""

    number: int

    def __hash__(self) -> int:
        return self.number


class Timer(events.TimerHandle):
    """A callback that waits for its time; `number` is its place among the commands of the workflow."""

    __slots__ = ("due", "name", "number")

    number: int
    due: int
    name: str


class _Inside:
    """Here this loop is the running one, and the worker's is not. A class, since it is entered for every turn."""

    __slots__ = ("_hooks", "_loop", "_outer", "_task")

    def __init__(self, loop: Any) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        self._outer = outer = events._get_running_loop()
        self._task = task = None if outer is None else tasks.current_task(outer)
        self._hooks = sys.get_asyncgen_hooks()
        if task is not None and outer is not None:
            tasks._leave_task(outer, task)
        events._set_running_loop(self._loop)
        sys.set_asyncgen_hooks(None, None)  # or the worker's loop would finish generators that are not its own
        keep_order()

    def __exit__(self, *_: object) -> None:
        restore_order()
        sys.set_asyncgen_hooks(*self._hooks)
        events._set_running_loop(self._outer)
        if self._task is not None and self._outer is not None:
            tasks._enter_task(self._outer, self._task)
        self._outer = self._task = None  # an instance outlives whoever ran it

    def leave(self) -> None:
        """For good."""
        self._loop = None


class FlowLoop:
    """The loop of one workflow. `set_timer` is told of each timer when it is made."""

    def __init__(self, salt: int, set_timer: Callable[[Timer], None]) -> None:
        self._self: Any = self
        """As asyncio takes it: it has the methods that tasks and futures use, and refuses those that reach outside."""
        self.inside = _Inside(self)
        """Whoever runs it has to be there, and is announced to guards when he enters: they are put up after."""
        self._ready: deque[events.Handle] = deque()
        self._numbers = salt
        self._groups = 0
        self._set_timer = set_timer
        self._tasks: list[weakref.ref[FlowTask]] = []
        self._sweep_at = 100
        self.now = 0
        """Microseconds since 1970, by the journal."""
        self.who: Identity | None = None
        """Whose code runs in it; what is logged there is marked with it."""
        self.replaying = False
        """Does the code do again what it has done before? What it logs has been logged then."""

    def run(self) -> None:
        """Run until nothing can go on without something from outside."""
        ready = self._ready
        for _ in range(MOST_CALLBACKS):
            if not ready:
                return
            handle = ready.popleft()
            if not handle.cancelled():
                try:
                    handle._run()
                except SystemExit:
                    continue  # the task has it; a workflow must not take the worker along
        raise RuntimeError(f"workflow code went on for {MOST_CALLBACKS:,} callbacks without waiting for anything")

    def time(self) -> float:
        """Workflow time in seconds."""
        return self.now / 1_000_000

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> events.Handle:
        """Run it after what is ready already."""
        handle = events.Handle(callback, args, self._self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        """A durable timer."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        """A durable timer."""
        return self._timer(when, callback, args, context)

    def call_when_due(self, due: int, name: str, callback: Callable[[], object]) -> None:
        """The same with a name, which is in the journal, for microseconds since 1970."""
        self._timer(due / 1_000_000, callback, (), None, due, name)

    def _timer(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        due: int | None = None,
        name: str = "",
    ) -> Timer:
        timer = Timer(when, callback, list(args), self._self, context)
        timer.due = max(self.now, round(min(when, NEVER) * 1_000_000)) if due is None else due
        timer.name = name
        self._set_timer(timer)
        return timer

    def fire(self, timer: Timer) -> None:
        """Its time has come."""
        self._ready.append(timer)

    def create_future(self) -> FlowFuture:
        """A future of this loop."""
        future = FlowFuture(loop=self._self)
        future.number = self._next()
        return future

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> FlowTask:
        """A task of this loop."""
        task = FlowTask.__new__(FlowTask)
        task.number = self._next()  # before the rest: asyncio puts a new task into a set at once
        FlowTask.__init__(task, coro, loop=self._self, name=name or "", context=context)
        if len(self._tasks) > self._sweep_at:
            self._sweep()
        self._tasks.append(weakref.ref(task))
        return task

    def _sweep(self) -> None:
        self._tasks = [ref for ref in self._tasks if (one := ref()) is not None and not one.done()]
        self._sweep_at = 100 + 2 * len(self._tasks)

    @property
    def over(self) -> bool:
        """Have all tasks ended?"""
        self._sweep()
        return not self._tasks

    @property
    def many(self) -> bool:
        """Is there more than one task that has not ended?"""
        if len(self._tasks) > 1:
            self._sweep()
        return len(self._tasks) > 1

    @property
    def busy(self) -> bool:
        """Is anything ready to run?"""
        return bool(self._ready)

    def renumber(self, salt: int) -> None:
        """Number what is made from now on as a new loop would."""
        self._numbers = salt

    def halt(self) -> None:
        """Stop after the callback that runs now."""
        self._ready.clear()

    def abandon(self) -> None:
        """The code does not go on: its coroutines are closed, and what they do then counts for nothing."""
        self._ready.clear()
        with self.inside:
            while self._tasks:  # what is closed may make more of them
                task = self._tasks.pop()()
                if task is not None and not task.done():
                    cast(Any, task)._log_destroy_pending = False
                    _close(task.get_coro())
                    _part(task)
        self._ready.clear()

    def dissolve(self) -> None:
        """Nothing runs in it any more: let go of what holds it, so that it leaves memory at once and not when Python
        next looks for circles."""
        self._ready.clear()
        self._set_timer = _forget
        self._self = None
        self.inside.leave()

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def group_number(self) -> int:
        """Of what `gather` gives."""
        self._groups += 1
        return self._groups

    def get_debug(self) -> bool:
        """Never: it would cost and tell nothing."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Has no effect."""

    def is_running(self) -> bool:
        """Whoever can ask runs in it."""
        return True

    def is_closed(self) -> bool:
        """It has nothing to close."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody awaited."""
        self.default_exception_handler(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Say it in the log."""
        log.error("in workflow code: %s", context.get("message"), exc_info=context.get("exception"))

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """Asyncio tells us; a cancelled timer simply never fires."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> NoReturn:
        """Refused: what a thread does cannot be done again in the same way."""
        raise _forbidden("run_in_executor() or asyncio.to_thread()")

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> NoReturn:
        """Refused: no other thread may reach in."""
        raise _forbidden("call_soon_threadsafe()")


def _part(task: Any) -> None:
    """A task and what it waits for hold each other, unless the latter is over."""
    waiter = task._fut_waiter
    if isinstance(waiter, asyncio.Future) and not isinstance(waiter, asyncio.Task):
        asyncio.Future.cancel(waiter)


def _forget(timer: Timer) -> None:
    """Whose timer it was is gone."""


def _close(code: Any) -> None:
    """Close a coroutine for good: what it awaits while it cleans up is closed too, or Python complains of it later."""
    for _ in range(MOST_CLOSINGS):
        try:
            code.close()
            break
        except RuntimeError:
            continue
        except BaseException:
            break


def _forbidden(what: str) -> Forbidden:
    line = where()
    return refusal(
        f"{what} in workflow code{f' at {line}' if line else ''}: a workflow is run again from its journal and must do "
        "the same each time. Do it in a task (ctx.execute_task) or in a step (ctx.step).",
        what,
        line,
    )


def _refuse(name: str) -> None:
    def refused(self: FlowLoop, *args: Any, **kwargs: Any) -> NoReturn:
        raise _forbidden(f"loop.{name}()")

    setattr(FlowLoop, name, refused)


for _name in dir(asyncio.AbstractEventLoop):
    _outside = ("create_", "connect_", "sock_", "add_", "subprocess_", "start_", "getaddr", "getname", "send")
    if _name.startswith(_outside) and _name not in ("create_future", "create_task"):
        _refuse(_name)
