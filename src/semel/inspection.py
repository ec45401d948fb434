"""The part of an app that looks for executions, explains keys, checks histories and runs what failed again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from semel.contract.durations import Duration
from semel.contract.keys import ID_LENGTH, KINDS, check_key, check_kind
from semel.contract.lifecycle import Status
from semel.contract.records import Execution, Explanation, FailedMessage, Undelivered
from semel.contract.words import explain_text
from semel.definitions import Definitions
from semel.engine.filters import make_filter
from semel.engine.ids import new_id
from semel.engine.protocol import Engine, Replayed
from semel.engine.served_functions import describe_unserved, is_unserved
from semel.entity_ref import find_failed_messages, send_failed_messages_again
from semel.errors import EngineError, NotFound, NotRedrivable, phrase
from semel.events import Publishing
from semel.flow import history_file
from semel.flow.replay import try_replay
from semel.handle import Handle
from semel.outbox import explain_row
from semel.replay import own_flows, without_code
from semel.schedules import Scheduling
from semel.settings import Settings

if TYPE_CHECKING:
    from semel.app import App


class Inspection(Definitions, Scheduling, Publishing):
    """An app's verbs about executions that exist."""

    settings: Settings

    @property
    @abstractmethod
    def engine(self) -> Engine:
        """The engine of the running event loop."""

    @property
    def _app(self) -> App:
        return cast("App", self)

    async def find(self, key: str, *, kind: str | None = None) -> Handle[Any] | None:
        """A handle to the newest execution under a key, or None; of a task, else of a workflow, else of an entity."""
        key = check_key(key, "key")
        for one in KINDS if kind is None else (check_kind(kind),):
            execution = await self.engine.find(one, key)
            if execution is not None:
                return self._handle(execution)
        return None

    async def get(self, id: str) -> Handle[Any]:
        """A handle by execution id, or by the beginning of one. NotFound if there is none."""
        execution = await self.engine.get(check_key(id, "id", ID_LENGTH))
        if execution is None:
            raise NotFound(
                f"no execution {id!r}, or more than one whose id begins so, in namespace "
                f"{self.settings.namespace!r}. See: semel list"
            )
        return self._handle(execution)

    def _handle(self, execution: Execution) -> Handle[Any]:
        return Handle(self._app, execution.id, execution.name, execution.key, duplicate=False)

    async def list(
        self,
        *,
        status: Status | str | None = None,
        queue: str | None = None,
        name: str | None = None,
        kind: str | None = None,
        attributes: Mapping[str, str] | None = None,
        scheduled_after: datetime | None = None,
        scheduled_before: datetime | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[Execution]:
        """Executions, newest first; for the next page pass the last id as `before`.

        `attributes={"scope": "eu"}` finds workflows by their search attributes. With `scheduled_after` or
        `scheduled_before` it finds runs of schedules whose slot is at the one time or after it, and before the other,
        ordered by their slots.
        """
        scheduled = scheduled_after, scheduled_before
        which = make_filter(status, queue, name, kind, before, limit, attributes, scheduled)
        return await self.engine.executions(which)

    async def replay(
        self,
        *,
        status: Status | str | None = None,
        name: str | None = None,
        since: Duration | None = None,
        limit: int = 1000,
        progress: Callable[[int, int], None] = lambda done, of: None,
        missing: bool = True,
    ) -> Sequence[Replayed]:
        """Run the code of this app against what its workflows and entities have recorded: would they go on?

        The newest `limit` of them, begun within `since`. Nothing is written, and no step or task runs. With `missing`,
        the answer also names what waits for a function that this app does not have: one task, workflow or entity of
        each function.
        """
        found = await own_flows(self._app, status, name, since, limit)
        answers = []
        for done, execution in enumerate(found, 1):
            replayed = await self.engine.replay(execution.id, self.tasks, self.settings)
            if replayed is not None:
                answers.append(replayed)
            progress(done, len(found))
        return [*answers, *(await without_code(self._app, name) if missing else ())]

    def replay_history(self, text: str | bytes) -> Replayed:
        """The same for one history that `handle.export()` or `semel workflows export` made. Needs no database.

        For tests: `assert app.replay_history(path.read_text()).ok`. InvalidValue: the text is no history.
        """
        return try_replay(self.tasks, self.settings, history_file.load(text))

    async def redrive(self, id: str) -> Handle[Any]:
        """Run a failed, cancelled or timed-out task or workflow again, as a new execution; the old one stays."""
        old = await (await self.get(id)).describe()
        if old.kind == "entity":
            raise NotRedrivable(
                f"{old.key!r} is an entity: its next message begins a new one, which knows its "
                f"keys. Messages that failed are sent again with: semel entities redrive {old.key}"
            )
        redriven = await self.engine.redrive(old.id, new_id())
        if redriven is None:
            raise NotRedrivable(
                f"execution {old.id} is {old.status}: only a failed, cancelled or timed-out one that is the newest "
                "under its key and within its retention can be run again."
            )
        return Handle(self._app, redriven, old.name, old.key, duplicate=False)

    async def explain(self, key: str, *, kind: str | None = None) -> Explanation:
        """Everything known of a key, also in words: `print(await app.explain("order-1"))`.

        Tasks, workflows and entities do not share keys: without a `kind` it is the first of these that is there, and
        `other_kinds` names the others.
        """
        key = check_key(key, "key")
        found = [await self._explain(one, key) for one in (KINDS if kind is None else (check_kind(kind),))]
        known = [one for one in found if one.executions] or found[:1]
        told = replace(known[0], other_kinds=tuple(one.kind for one in known[1:]))
        if not told.executions and kind != "entity" and (row := await self._outbox_row(key)):
            nothing = told.text == explain_text(key, (), None, told.asked_at)
            head = f"No execution is known under the key {key!r}." if nothing else told.text
            return replace(told, text=f"{head}\n\n{row}")
        return told

    async def _outbox_row(self, key: str) -> str:
        """What the outbox of the settings says of a key that the engine does not know; empty: nothing."""
        if self.settings.outbox is None:
            return ""
        try:
            row = await self._app.outbox.find_start(key)
        except EngineError as error:
            return f"The outbox could not be asked: {phrase(error)}"
        return "" if row is None else explain_row(row)

    async def _explain(self, kind: str, key: str) -> Explanation:
        executions, suppressed, now = await self.engine.explain(kind, key)
        found = Undelivered()
        if kind != "task" and executions:
            found = await self.engine.undelivered(kind, key)
        text = explain_text(key, executions, suppressed, now, await self._why_it_waits(executions), found)
        if run := await self.schedules.explain_run(key, now) or await self.events.explain_run(key):
            text = f"{text}\n\n{run}" if executions else run
        counted = None if suppressed is None else tuple(suppressed)
        return Explanation(key, kind, tuple(executions), counted, now, text, found)

    async def failed_messages(self, key: str | None = None) -> Sequence[FailedMessage]:
        """The messages of an entity (`Class/id`), or of all that live, that failed and were not sent again.

        Newest first, at most 100, for 30 days; of all entities, those of the 100 that failed last (on Temporal: that
        were started last). NotFound if there is no such entity.
        """
        return await find_failed_messages(self._app, key)

    async def redrive_messages(self, key: str, number: int | None = None) -> Sequence[FailedMessage]:
        """Send messages of an entity that failed again, oldest first, each under its own key; what was sent.

        All of them whose arguments were kept, or the one with this number: NotRedrivable if that is not there.
        """
        return await send_failed_messages_again(self._app, key, number)

    async def _why_it_waits(self, executions: Sequence[Execution]) -> str:
        newest = executions[0] if executions else None
        if newest is None or newest.status not in (Status.PENDING, Status.WAITING):
            return ""
        try:
            workers = await self.engine.workers()
        except EngineError:  # a server that keeps no list of workers
            return ""
        missing = is_unserved(workers, newest.name, newest.queue)
        return describe_unserved(newest.kind, newest.name, newest.queue) if missing else ""
