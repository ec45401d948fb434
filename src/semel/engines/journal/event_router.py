"""Routes events by remembered subscriptions: what they start is committed with them, and begins afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from semel.contract.decision import Reuse
from semel.contract.events import EventRun
from semel.contract.runs import Why
from semel.engine.event_routing import Plan, Router
from semel.engine.subscriptions import Publication
from semel.engines.journal import event_scripts as scripts
from semel.engines.journal.event_scripts import KnownEvent, Recorded, RouterChanged
from semel.engines.journal.runs import LaneMissing, Runs
from semel.engines.journal.script import ScriptRunner
from semel.errors import EngineUnavailable, phrase
from semel.runtime.retries import pause, retry_unavailable
from semel.triggers.ids import event_run_id

if TYPE_CHECKING:
    from semel.triggers.envelope import EventEnvelope

log = logging.getLogger("semel.events")
TRIES: Final = 20
UNAVAILABLE: Final = 5
"""So often it is tried while the database does not answer."""
MayRoute = Callable[[KnownEvent, Plan], bool]


class EventRouter:
    """Routes the events of one namespace. Their runs are beside them, or elsewhere (`starts_later`)."""

    def __init__(
        self, store: ScriptRunner, namespace: str, where: Runs, max_payload: int, *, starts_later: bool
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._where = where
        self._max_payload = max_payload
        self._starts_later = starts_later
        self._router: Router | None = None

    async def carry_out(
        self,
        publications: Sequence[Publication],
        run: Callable[[Router, list[Plan]], Awaitable[Recorded]],
        *,
        why: Why = Why.EVENT,
        only: Collection[str] | None = None,
        reuse: Reuse | None = None,
    ) -> Recorded:
        """Route events by the subscriptions of now, and see to it that what was started begins."""
        for attempt in range(TRIES):
            router = await self.load_router()
            most = self._max_payload
            plans = [router.plan(one, why=why, only=only, reuse=reuse, max_payload=most) for one in publications]
            starts = [start for plan in plans for start in plan.starts]
            await self._where.prepare((), {id(s.request.options): s.request.options for s in starts}.values())
            try:
                recorded = await run(router, plans)
            except RouterChanged:
                self._router = None
                continue
            except LaneMissing:
                self._where.start_over()
                continue
            except EngineUnavailable:
                if attempt >= UNAVAILABLE - 1:
                    raise
                await asyncio.sleep(pause(attempt))
                continue
            await self._follow_up(recorded)
            return recorded
        raise EngineUnavailable("subscriptions were changed again and again by others: try again.")

    async def _follow_up(self, recorded: Recorded) -> None:
        started = {run.execution for run in recorded.runs}
        starts = [s for plan in recorded.routed for s in plan.starts if self._starts_later or s.request.id in started]
        if starts:
            await self._begin_runs(self._where.follow_up(starts))

    async def _begin_runs(self, start: Awaitable[None]) -> None:
        """Start what is committed; while that cannot be done, it is left to a worker, or to who comes next."""
        try:
            await start
        except EngineUnavailable as error:
            log.warning("runs for events are recorded, and will be started later: %s", phrase(error))

    async def load_router(self) -> Router:
        """The subscriptions as they were read last: every statement that relies on them checks that they still are."""
        router = self._router
        if router is None:
            router = Router(*await retry_unavailable(self._store.run, scripts.read_subscriptions, self._namespace))
            self._router = router
        return router

    async def read_router(self) -> Router:
        """The subscriptions as they are."""
        self._router = None
        return await self.load_router()

    async def runs(self, event: EventEnvelope, activities: Sequence[str]) -> list[EventRun]:
        """See EngineEvents."""
        keys = [event_run_id(activity, event.event_id) for activity in activities]
        return await self.read_runs(keys) if keys else []

    async def read_runs(self, keys: list[str]) -> list[EventRun]:
        """The newest run under each of these keys, with the function that its activity runs.

        Those that somebody has recorded and not started are started.
        """
        found = await retry_unavailable(self._store.run, scripts.runs_of, self._namespace, keys)
        if not all(run.started for run in found):
            await self._begin_runs(self._where.start_pending())
            found = await retry_unavailable(self._store.run, scripts.runs_of, self._namespace, keys)
        subscriptions = (await self.load_router()).subscriptions
        return [
            replace(run, name=one.definition.options.name) if (one := subscriptions.get(run.activity)) else run
            for run in found
        ]

    async def route(
        self,
        publications: Sequence[Publication],
        may_route: MayRoute,
        *,
        why: Why = Why.EVENT,
        only: Collection[str] | None = None,
        reuse: Reuse | None = None,
        renew: bool = False,
    ) -> Recorded:
        """Route recorded events, those of them that `may_route` lets pass under their lock."""

        async def run(router: Router, plans: list[Plan]) -> Recorded:
            return await self._store.run(
                scripts.route, self._namespace, router.stamp, plans, self._where, may_route, renew
            )

        return await self.carry_out(publications, run, why=why, only=only, reuse=reuse)

    async def started(self, event: EventEnvelope, recorded: Recorded) -> Sequence[EventRun]:
        """The runs that a transaction has started, as they are on record."""
        if not self._starts_later:
            return recorded.runs
        return await self.runs(event, [run.activity for run in recorded.runs])
