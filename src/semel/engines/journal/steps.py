"""Runs the steps of flows: plain functions, in this loop or in a thread beside it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

from semel.contract.lifecycle import Status
from semel.define.context import Running, enter
from semel.engine.outcomes import describe
from semel.engines.journal.claims import Claim
from semel.engines.journal.flow_rows import Held
from semel.flow import entries
from semel.flow.commands import Command
from semel.flow.entries import Resolved, Turned, raw
from semel.flow.instance import Instance
from semel.runtime.steps import describe_step, run_step, transaction_of

if TYPE_CHECKING:
    from semel.engines.journal.worker import JournalWorker

COMPLETED: Final = Status.COMPLETED.value
FAILED: Final = Status.FAILED.value

Tell = Callable[[bytes | None, BaseException | None], bytes]


class Performer:
    """Steps of one worker."""

    def __init__(self, worker: JournalWorker) -> None:
        self._worker = worker

    def at_once(self, command: Command, claim: Claim, instance: Instance) -> Resolved | None:
        """Run a step that cannot wait for anything; its answer. None: it may have to, and wants `perform`."""
        if not command.never_awaits or command.tries.max_attempts > 1 or command.call is None:
            return None
        return copy_context().run(
            self._finish, command, command.call, describe_step(command, instance.who, 1, claim.token)
        )

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

        CancelledError: it was dropped.
        """
        ended = await run_step(
            command,
            lambda attempt: describe_step(command, instance.who, attempt, held.claim.token),
            lambda context, call: self._worker.threads().run(context, call),
            lambda: command.number in held.dropped,
            self._worker.events.retried,
        )
        return Resolved(command.number, ended.status.value, raw(ended.output), ended.error)

    def transaction(
        self, command: Command, claim: Claim, instance: Instance, now: int
    ) -> tuple[Callable[[Any], Any], Tell]:
        """What to do in a transaction, and what makes the row of the journal that says how it went."""

        def tell(output: bytes | None, error: BaseException | None) -> bytes:
            if error is None:
                answer = Resolved(command.number, COMPLETED, raw(output), alone=True)
            else:
                answer = Resolved(command.number, FAILED, error=describe(error), alone=True)
            return entries.dump([Turned(now), answer])

        return transaction_of(command, describe_step(command, instance.who, 1, claim.token)), tell
