"""Runs the steps of flows: plain functions, in this loop or in a thread beside it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

from semel.contract.lifecycle import Status
from semel.define.context import Running, enter
from semel.engine.outcomes import describe
from semel.engines.journal.claiming import Claim
from semel.engines.journal.loading import Held
from semel.errors import InputError
from semel.flow import entries
from semel.flow.commands import Command
from semel.flow.entries import Resolved, Turned, raw
from semel.flow.instance import Instance

if TYPE_CHECKING:
    from semel.engines.journal.worker import JournalWorker

COMPLETED: Final = Status.COMPLETED.value
FAILED: Final = Status.FAILED.value

Tell = Callable[[bytes | None, BaseException | None], bytes]


def _is_async(fn: Any) -> bool:
    code = getattr(fn, "__code__", None)  # asking inspect about a plain function takes ten times as long
    return bool(code.co_flags & inspect.CO_COROUTINE) if code is not None else inspect.iscoroutinefunction(fn)


class Performer:
    """Steps of one worker."""

    def __init__(self, worker: JournalWorker) -> None:
        self._worker = worker

    def at_once(self, command: Command, claim: Claim, instance: Instance) -> Resolved | None:
        """Run a step that cannot wait for anything; its answer. None: it may have to, and wants `perform`."""
        if not command.swift or command.tries.max_attempts > 1 or command.call is None:
            return None
        return copy_context().run(self._finish, command, command.call, self._running(command, claim, instance, 1))

    def _finish(self, command: Command, call: Callable[[], Any], running: Running) -> Resolved:
        enter(running)
        try:
            call().send(None)
        except StopIteration as stop:
            value = stop.value
        except BaseException as error:
            return Resolved(command.number, FAILED, error=describe(error))
        else:
            raise AssertionError("unreachable: it has nothing to wait for")
        try:
            return Resolved(command.number, COMPLETED, raw(command.write(value)))
        except BaseException as error:  # a value may have code of its own that makes JSON of it
            return Resolved(command.number, FAILED, error=describe(error))

    async def perform(self, command: Command, held: Held, instance: Instance) -> Resolved:
        """Run a step to its end, with the tries it has; its answer. Runs in a task of its own.

        CancelledError: it was dropped. One that the step raises by itself is an error like any other.
        """
        attempt = 0
        while True:
            attempt += 1
            enter(self._running(command, held.claim, instance, attempt))
            try:
                if attempt > 1:  # within: a step may have left a cancellation behind, which is its own as well
                    await asyncio.sleep(command.tries.delay(attempt - 1, random.random()))
                output = command.write(await self._call(command.call or _nothing))
                return Resolved(command.number, COMPLETED, raw(output))
            except BaseException as error:
                dropped = command.number in held.dropped
                if dropped and isinstance(error, asyncio.CancelledError):
                    raise
                names = [f"{c.__module__}.{c.__qualname__}" for c in type(error).__mro__]
                if (
                    dropped
                    or attempt >= command.tries.max_attempts
                    or isinstance(error, InputError)
                    or command.tries.hopeless(names)
                ):
                    return Resolved(command.number, FAILED, error=describe(error))

    def _running(self, command: Command, claim: Claim, instance: Instance, attempt: int) -> Running:
        return Running(
            claim.execution, command.effect, command.name, "step", instance.who.namespace, instance.who.queue, attempt,
            command.tries.max_attempts, 0, claim.seq,
        )  # fmt: skip

    async def _call(self, call: Callable[[], Any]) -> Any:
        if _is_async(call.func if isinstance(call, functools.partial) else call):
            return await call()
        value = await self._worker.threads().run(copy_context(), call)
        return await value if inspect.isawaitable(value) else value

    def transaction(self, command: Command, now: int) -> tuple[Callable[[Any], Any], Tell]:
        """What to do in a transaction, and what makes the row of the journal that says how it went.

        The result is encoded within: one that cannot be stored undoes what was written.
        """
        call: Callable[..., Any] = command.call or _nothing

        def do(tx: Any) -> bytes | None:
            return command.write(call(tx))

        def tell(output: bytes | None, error: BaseException | None) -> bytes:
            if error is None:
                answer = Resolved(command.number, COMPLETED, raw(output), alone=True)
            else:
                answer = Resolved(command.number, FAILED, error=describe(error), alone=True)
            return entries.dump([Turned(now), answer])

        return do, tell


def _nothing(*_: object) -> None:
    return None
