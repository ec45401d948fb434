"""Routes events by remembered subscriptions: what they start is committed with them, and begins afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from semel.contract.decision import Reuse
from semel.contract.events import EventMatch, EventOutcome, EventRun, SubscriptionInfo
from semel.contract.runs import Why
from semel.engine.event_flow import FlowId
from semel.engine.event_routing import NOT_GATHERED, GatheredRun, Plan, Router
from semel.engine.subscriptions import Publication, SubscriptionDefinition
from semel.engines.journal import event_cancellation, event_pauses
from semel.engines.journal import event_flow_scripts as flow_scripts
from semel.engines.journal import event_scripts as scripts
from semel.engines.journal.event_flow_scripts import AT_ONCE, RouterChanged, Taken, limit_of
from semel.engines.journal.event_scripts import KnownEvent, Recorded
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
RESUMED_AT_ONCE: Final = 10
"""Transactions in which whoever resumes an activity takes in events, before the rest is left to workers."""
MayRoute = Callable[[KnownEvent, Plan], bool]
T = TypeVar("T")


class EventRouter:
    """Routes the events of one namespace. Their runs are beside them, or elsewhere (`starts_later`)."""

    def __init__(
        self,
        store: ScriptRunner,
        namespace: str,
        where: Runs,
        max_payload: int,
        on_change: Callable[[], None],
        *,
        starts_later: bool,
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._where = where
        self._max_payload = max_payload
        self._starts_later = starts_later
        self._on_change = on_change
        self._router: Router | None = None
        self._flows_one_at_a_time = asyncio.Lock()
        """Around a transaction with what a cluster was asked for it."""

    async def carry_out(
        self,
        publications: Sequence[Publication],
        run: Callable[[Router, list[Plan]], Awaitable[Recorded]],
        *,
        why: Why = Why.EVENT,
        only: Collection[str] | None = None,
        reuse: Reuse | None = None,
        gathered: Mapping[str, GatheredRun] = NOT_GATHERED,
    ) -> Recorded:
        """Route events by the subscriptions of now, and see to it that what was started begins."""

        async def attempt() -> Recorded:
            router = await self.load_router()
            plans = [router.plan(one, why=why, only=only, reuse=reuse, gathered=gathered) for one in publications]
            options = {id(s.request.options): s.request.options for plan in plans for s in plan.starts}
            takes = [take for plan in plans if plan.takes for take in plan.takes]
            options |= {id(one): one for take in takes for one in (take.subscription.definition.options,)}
            await self._where.prepare((), options.values())
            if not takes:
                return await run(router, plans)
            async with self._flows_one_at_a_time:
                await self._ask_cluster([id_ for take in takes if (id_ := limit_of(take)) is not None])
                return await run(router, plans)

        recorded = await self._try(attempt)
        await self._follow_up(recorded)
        return recorded

    async def _try(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Do something by remembered subscriptions, and again where they, or the lanes of runs, have changed."""
        for number in range(TRIES):
            try:
                return await attempt()
            except RouterChanged:
                self._router = None
            except LaneMissing:
                self._where.start_over()
            except EngineUnavailable:
                if number >= UNAVAILABLE - 1:
                    raise
                await asyncio.sleep(pause(number))
        raise EngineUnavailable("subscriptions were changed again and again by others: try again.")

    async def _ask_cluster(self, flows: Sequence[FlowId]) -> None:
        """Ask a cluster how runs stand that an event may have to wait for; beside a journal a transaction can see."""
        if self._where.asks_first:
            singletons = [id_ for id_ in flows if id_.kind == "singleton"]
            ids = await self._store.run(flow_scripts.singleton_executions, self._namespace, singletons, AT_ONCE)
            await self._where.look_at(ids)

    async def carry_on_flows(self) -> int:
        """Start what is due of events that were gathered or put off; how many flows were."""

        async def attempt() -> Taken:
            due = await self._store.run(flow_scripts.find_due, self._namespace, AT_ONCE)
            if not due:
                return Taken()
            router = await self.load_router()
            known = [router.subscriptions.get(activity) for activity in {row.activity for row in due}]
            await self._where.prepare((), [one.definition.options for one in known if one is not None])
            async with self._flows_one_at_a_time:
                await self._ask_cluster([row.id for row in due])
                return await self._store.run(flow_scripts.carry_on, self._namespace, router, self._where, AT_ONCE)

        total = await self._cancel_runs() + await self._take_paused()
        while True:
            taken = await self._try(attempt)
            await self._follow_up(Recorded(taken=taken))
            total += taken.flows
            if taken.flows < AT_ONCE:
                return total

    async def _cancel_runs(self) -> int:
        """Cancel runs for events that came; how many of those were due."""
        done = 0
        while True:
            due = await self._store.run(flow_scripts.find_due, self._namespace, AT_ONCE)
            requests = [row for row in due if row.kind == "cancel"]
            for row in requests:
                if self._where.asks_first:  # a cancellation may be sent again, so it is sent before it is noted
                    await self._where.start_pending()
                    ids = await self._store.run(event_cancellation.find_cancelled, self._namespace, row)
                    await self._where.look_at(ids)
                    await self._where.cancel(ids)
                taken = await self._store.run(event_cancellation.cancel_runs, self._namespace, row, self._where)
                await self._follow_up(Recorded(taken=taken))
                done += 1
            if not requests:
                return done

    async def _take_paused(self) -> int:
        """Take in what came while activities were paused that have been resumed, or are gone."""
        done = 0
        while True:
            due = await self._store.run(flow_scripts.find_due, self._namespace, AT_ONCE)
            resumed = {row.activity for row in due if row.kind == "pause"}
            for activity in sorted(resumed):
                done += await self._try(partial(self._take_some, activity))
            if not resumed:
                return done

    async def _take_first(self, activity: str) -> None:
        """Take in some of what came while an activity was paused; workers do the rest."""
        for _ in range(RESUMED_AT_ONCE):
            if not await self._try(partial(self._take_some, activity)):
                return

    async def _take_some(self, activity: str) -> int:
        router = await self.load_router()
        subscription = router.subscriptions.get(activity)
        await self._where.prepare((), [] if subscription is None else [subscription.definition.options])
        async with self._flows_one_at_a_time:
            await self._ask_cluster(())
            take = event_pauses.take_paused
            taken = await self._store.run(take, self._namespace, activity, router, self._where)
        await self._follow_up(Recorded(taken=taken))
        return taken.flows

    async def pause(self, activity: str, note: str | None) -> bool:
        """See EngineEvents."""
        found = await retry_unavailable(self._store.run, event_pauses.pause, self._namespace, activity, note)
        self._router = None
        return found

    async def resume(self, activity: str, note: str | None) -> bool:
        """See EngineEvents."""
        found = await retry_unavailable(self._store.run, event_pauses.resume, self._namespace, activity, note)
        if found:
            self._router = None
            await self._begin_runs(self._take_first(activity))
            self._on_change()
        return found

    async def _follow_up(self, recorded: Recorded) -> None:
        taken = recorded.taken
        started = {run.execution for run in (*recorded.runs, *taken.runs)}
        starts = [s for plan in recorded.routed for s in plan.starts if self._starts_later or s.request.id in started]
        starts += [start for start in taken.starts if self._starts_later or start.request.id in started]
        if starts:
            await self._begin_runs(self._where.follow_up(starts))
        if taken.stops:
            await self._begin_runs(self._where.cancel(taken.stops))
        if taken.opened:
            self._on_change()

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
            stamp, rows = await retry_unavailable(self._store.run, scripts.read_subscriptions, self._namespace)
            router = Router(stamp, rows, self._max_payload)
            self._router = router
        return router

    async def read_router(self) -> Router:
        """The subscriptions as they are."""
        self._router = None
        return await self.load_router()

    async def matches(self, event: EventEnvelope) -> list[EventMatch]:
        """See EngineEvents."""
        return (await self.read_router()).matches(event)

    async def subscription(self, id: str) -> SubscriptionDefinition | None:
        """See EngineEvents."""
        row = await retry_unavailable(self._store.run, scripts.get_subscription, self._namespace, id)
        return None if row is None else SubscriptionDefinition.from_bytes(row.definition, row.id)

    async def subscriptions(self, after: str, limit: int) -> list[SubscriptionInfo]:
        """See EngineEvents."""
        rows = await retry_unavailable(self._store.run, scripts.page_subscriptions, self._namespace, after, limit)
        return [scripts.info_of_subscription(row) for row in rows]

    async def outcomes(self, id: str) -> list[EventOutcome]:
        """See EngineEvents."""
        found = await retry_unavailable(self._store.run, flow_scripts.outcomes_of, self._namespace, [id])
        return [outcome for _, outcome in found]

    async def events_of_run(self, key: str) -> list[str]:
        """See EngineEvents."""
        return await retry_unavailable(self._store.run, flow_scripts.events_of_run, self._namespace, key)

    async def runs(self, id: str, event: EventEnvelope, activities: Sequence[str]) -> list[EventRun]:
        """See EngineEvents."""
        if not activities:
            return []
        gathered = {one.activity: one.run for one in await self.outcomes(id) if one.run is not None}
        return await self.read_runs(
            [gathered.get(activity) or event_run_id(activity, event.event_id) for activity in activities]
        )

    async def read_runs(self, keys: list[str]) -> list[EventRun]:
        """The newest run under each of these keys, with the function that its activity runs.

        Those that somebody has recorded and not started are started.
        """
        functions = (await self.load_router()).functions
        found = await retry_unavailable(self._store.run, scripts.runs_of, self._namespace, keys, functions)
        if not all(run.started for run in found):
            await self._begin_runs(self._where.start_pending())
            found = await retry_unavailable(self._store.run, scripts.runs_of, self._namespace, keys, functions)
        return found

    async def route(
        self,
        publications: Sequence[Publication],
        may_route: MayRoute,
        *,
        why: Why = Why.EVENT,
        only: Collection[str] | None = None,
        reuse: Reuse | None = None,
        renew: bool = False,
        gathered: Mapping[str, GatheredRun] = NOT_GATHERED,
    ) -> Recorded:
        """Route recorded events, those of them that `may_route` lets pass under their lock."""

        async def run(router: Router, plans: list[Plan]) -> Recorded:
            return await self._store.run(
                scripts.route, self._namespace, router.stamp, plans, self._where, may_route, renew
            )

        return await self.carry_out(publications, run, why=why, only=only, reuse=reuse, gathered=gathered)

    async def started(self, recorded: Recorded) -> Sequence[EventRun]:
        """The runs that a transaction has started, as they are on record."""
        runs = (*recorded.runs, *recorded.taken.runs)
        if not self._starts_later or not runs:
            return runs
        return await self.read_runs([run.key for run in runs])
