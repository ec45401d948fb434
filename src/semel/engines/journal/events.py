"""The events of a namespace: publishing in groups, routing by remembered subscriptions, replay and backfill."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from semel.contract.decision import Reason, Reuse
from semel.contract.events import (
    EventInfo,
    EventOutcome,
    EventRun,
    EventState,
    MatchKind,
    OutcomeState,
)
from semel.contract.lifecycle import RELEASED, Status
from semel.contract.records import Execution
from semel.contract.runs import Why
from semel.contract.times import instant, micros
from semel.engine.event_routing import PROBLEM_LENGTH, FilterData, GatheredRun, Plan, Router, run_key
from semel.engine.failure_log import RepeatedFailures
from semel.engine.protocol import Finding
from semel.engine.publications import find_conflict, read_event, read_publication
from semel.engine.subscriptions import Publication, Receipt
from semel.engines.journal import event_flow_scripts as flow_scripts
from semel.engines.journal import event_scripts as scripts
from semel.engines.journal.event_router import EventRouter
from semel.engines.journal.event_scripts import AT_ONCE, KnownEvent, Recorded
from semel.engines.journal.group_commit import Coalescer, fitting
from semel.engines.journal.lanes import Lanes
from semel.engines.journal.notifications import Hub
from semel.engines.journal.runs import JournalRuns, Runs
from semel.engines.journal.script import Collision, ScriptRunner
from semel.errors import EngineUnavailable, InvalidValue, NotFound, phrase
from semel.runtime.duplicates import CountRow, DuplicateCounter
from semel.runtime.retries import retry_unavailable
from semel.settings import Settings

if TYPE_CHECKING:
    from semel.triggers.envelope import EventEnvelope

log = logging.getLogger("semel.events")
MOST_AT_ONCE: Final = 1000
MOST_COUNTED: Final = 1000
END_OF_TIME: Final = 2**62
CAREFUL_FOR: Final = 600.0
"""Seconds in which events are looked up first, after one that was taken for new and was not."""


class StoredEvents(EventRouter):
    """The events of one namespace in a database. Their runs are in the same one, or elsewhere (`starts_later`)."""

    def __init__(
        self,
        store: ScriptRunner,
        namespace: str,
        where: Runs,
        settings: Settings,
        find: Callable[[str], Awaitable[Execution | None]],
        on_change: Callable[[], None],
        *,
        starts_later: bool = False,
    ) -> None:
        super().__init__(store, namespace, where, settings.max_payload, on_change, starts_later=starts_later)
        self._settings = settings
        self._keep = settings.event_retention
        self._find = find
        self._group: Coalescer[Publication, Receipt] = Coalescer(
            self._flush, MOST_AT_ONCE, _weight, time_limit=settings.call_timeout.total_seconds()
        )
        self._duplicates = DuplicateCounter(self._write_counts, log)
        self._failures = RepeatedFailures()
        self._mostly_duplicates = False
        self._careful_until = 0.0
        """Until then events are looked up before they are taken for new ones."""
        self._in_one_statement = not starts_later

    def on(self, transaction: ScriptRunner, lanes: Lanes) -> StoredEvents:
        """The same in a transaction of the caller's, which tells workers by its commit.

        What is counted in memory is counted here: that transaction will have ended when it is written.
        """
        runs = JournalRuns(self._namespace, lanes, Hub())
        joined = StoredEvents(transaction, self._namespace, runs, self._settings, self._find, lambda: None)
        joined._duplicates = self._duplicates
        joined._in_one_statement = False  # what fails would abort that transaction
        return joined

    # Publishing.

    def publish(self, publication: Publication) -> Awaitable[Receipt]:
        """See EngineEvents. Shares its commit with those that arrive at the same time, and its time limit, too."""
        return self._group.ask(publication)

    async def publish_many(self, publications: Sequence[Publication]) -> list[Receipt | BaseException]:
        """See EngineEvents. A thousand share a commit."""
        answers: list[Receipt | BaseException] = []
        while len(answers) < len(publications):
            rest = publications[len(answers) : len(answers) + MOST_AT_ONCE]
            answers += await self._flush(list(rest[: fitting(rest, MOST_AT_ONCE, _weight)]))
        return answers

    async def _flush(self, publications: list[Publication]) -> list[Receipt | BaseException]:
        first: dict[str, Publication] = {}
        for one in publications:
            first.setdefault(one.id, one)
        recorded = await self._record(list(first.values()))
        plans = {plan.publication.id: plan for plan in recorded.routed}
        known = {one.id: one for one in recorded.known}
        if self._router is not None and any(one.stamp != self._router.stamp for one in recorded.known):
            self._router = None
        self._mostly_duplicates = len(known) * 2 > len(first)
        outcomes = await self._outcomes_of(recorded)
        runs = await self._runs_of(first, recorded, outcomes)
        answers: list[Receipt | BaseException] = []
        for one in publications:
            before = known.get(one.id)
            if before is None:
                plan = plans[one.id]
                same = one.fingerprint == plan.publication.fingerprint
                receipt = Receipt(one.id, one is not plan.publication, plan.state, runs.get(one.id, ()), plan.problem)
            else:
                same = one.fingerprint == before.fingerprint
                duplicate = one.delivery != before.delivery
                state, ran = EventState(before.state), runs.get(one.id, ())
                receipt = Receipt(one.id, duplicate, state, ran, before.problem)
            if one.id in outcomes:
                receipt = receipt._replace(outcomes=tuple(outcomes[one.id]))
            if not same and (conflict := await self._find_conflict(one, plans.get(one.id))) is not None:
                answers.append(conflict)
                continue
            if receipt.duplicate and before is not None and _is_over(before, one):
                receipt = await self._begin_anew(one, receipt)
            if receipt.duplicate:
                self._duplicates.add(one.id, Reason.SEEN, instant(one.published_at) if before is None else before.now)
                log.info("event %s was delivered again; it had been %s", one.id, receipt.state)
                if before is not None and receipt.runs:
                    receipt = await self._run_failed_again(one, receipt)
            answers.append(receipt)
        return answers

    async def _record(self, publications: list[Publication]) -> Recorded:
        """Record events and start their runs, in one transaction. Where most are known, they are looked up first."""
        before = Recorded()
        if self._mostly_duplicates or time.monotonic() < self._careful_until:
            router = await self.load_router()
            before = await retry_unavailable(self._store.run, scripts.find_known, self._namespace, publications, router)
            there = {one.id for one in before.known}
            publications = [one for one in publications if one.id not in there]
            if not publications:
                return before

        async def run(router: Router, plans: list[Plan]) -> Recorded:
            given = self._namespace, router.stamp, plans, self._where
            if self._in_one_statement and scripts.are_plain(plans):
                try:
                    return await self._store.run(scripts.publish_new, *given)
                except Collision:
                    self._careful_until = time.monotonic() + CAREFUL_FOR
            return await self._store.run(scripts.publish, *given)

        recorded = await self.carry_out(publications, run)
        if any(plan.state is EventState.WAITING for plan in recorded.routed):
            self._on_change()
        return recorded._replace(known=(*before.known, *recorded.known), found=before.found)

    async def _outcomes_of(self, recorded: Recorded) -> dict[str, list[EventOutcome]]:
        """What became of each event, by its id, for activities that gather or limit events, or are paused."""
        found = list(recorded.taken.outcomes)
        if recorded.known:
            special = (await self.load_router()).special
            asked = [one.id for one in recorded.known if not special.isdisjoint(one.ran)] if special else []
            if asked:
                read = flow_scripts.outcomes_of
                found += await retry_unavailable(self._store.run, read, self._namespace, asked)
        outcomes: dict[str, list[EventOutcome]] = {}
        for id_, outcome in found:
            outcomes.setdefault(id_, []).append(outcome)
        return outcomes

    async def _runs_of(
        self, first: Mapping[str, Publication], recorded: Recorded, outcomes: Mapping[str, Sequence[EventOutcome]]
    ) -> dict[str, tuple[EventRun, ...]]:
        """The runs of each event, by its id. What was started elsewhere is read again, and so is what was there."""
        keys: dict[str, list[str]] = {}
        runs: dict[str, tuple[EventRun, ...]] = {}
        for known in recorded.known:
            gathered = {one.activity: one.run for one in outcomes[known.id]} if known.id in outcomes else {}
            for activity in known.ran:
                key = gathered[activity] if activity in gathered else run_key(activity, first[known.id])
                if key is not None:
                    keys.setdefault(key, []).append(known.id)
        started = iter(recorded.runs)
        for plan in recorded.routed:
            id_ = plan.publication.id
            if self._starts_later:
                for start in plan.starts:
                    keys.setdefault(start.request.key or "", []).append(id_)
            elif plan.starts:
                runs[id_] = tuple([next(started) for _ in plan.starts])
            for one in outcomes.get(id_, ()):
                if one.run is not None:
                    keys.setdefault(one.run, []).append(id_)
        if not keys:
            return runs
        others = recorded.found if self._starts_later else (*recorded.found, *recorded.taken.runs)
        found = [run for run in others if run.key in keys]
        have = {run.key for run in found}
        wanted = [key for key in keys if key not in have]
        if wanted:
            found += await self.read_runs(wanted)
        for run in found:
            for id_ in keys[run.key]:
                runs[id_] = (*runs.get(id_, ()), run)
        return runs

    async def _find_conflict(self, one: Publication, plan: Plan | None) -> BaseException | None:
        """The error for an event whose id stands for another; None: it is the same, sent in another way."""
        if plan is not None:
            return find_conflict(one, plan.publication.envelope)
        stored = await retry_unavailable(self._store.run, scripts.get, self._namespace, one.id)
        return None if stored is None else find_conflict(one, stored[1])

    async def _begin_anew(self, one: Publication, receipt: Receipt) -> Receipt:
        """Route an event that was named by its content, and looks like one that came longer ago than that counts."""

        def may_route(known: KnownEvent, plan: Plan) -> bool:
            return _is_over(known, one)

        recorded = await self.route([one], may_route, reuse=Reuse.ALWAYS, renew=True)
        if not recorded.routed:  # somebody else was first
            return receipt
        (plan,) = recorded.routed
        runs = await self.started(recorded)
        outcomes = tuple(outcome for id_, outcome in recorded.taken.outcomes if id_ == one.id)
        return Receipt(one.id, False, plan.state, tuple(runs), plan.problem, outcomes)

    async def _run_failed_again(self, one: Publication, receipt: Receipt) -> Receipt:
        """Run again what failed for an event that is delivered again, where its source or its activity wants that."""
        router = await self.load_router()
        if not (one.runs_after_failure or router.runs_after_failure):
            return receipt
        subscriptions = router.subscriptions
        again = []
        for run in receipt.runs:
            subscription = subscriptions.get(run.activity)
            if subscription is None:
                continue
            if one.runs_after_failure or subscription.definition.options.reuse is Reuse.FAILED_ONLY:
                execution = await self._find(run.execution)
                if execution is not None and execution.status in RELEASED:
                    again.append(run.activity)
        if not again:
            return receipt
        published = read_publication(one.id, one.envelope, one.published_at)
        gathered = await self._find_gathered(one.id)
        recorded = await self.route(
            [published], _was_routed, why=Why.REPLAY, only=again, reuse=Reuse.FAILED_ONLY, gathered=gathered
        )
        return receipt._replace(runs=_newest(receipt.runs, await self.started(recorded)))

    async def _find_gathered(self, id: str) -> dict[str, GatheredRun]:
        """The runs that have an event among others, by their activities."""
        runs = {one.run: one.activity for one in await self.outcomes(id) if one.run is not None}
        if not runs:
            return {}
        read = flow_scripts.gathered_runs
        found = await retry_unavailable(self._store.run, read, self._namespace, list(runs))
        return {runs[key]: run for key, run in found.items()}

    async def _write_counts(self, rows: list[CountRow]) -> None:
        counted = [(id_, times, last) for id_, _, times, _, last, _ in rows]
        await self._store.run(scripts.count_deliveries, self._namespace, counted)

    async def write_counts(self) -> None:
        """Write the counts of deliveries; what could not be written is kept, and the error is raised."""
        await self._duplicates.write()

    # Delivering what waited.

    async def run_due(self, down_for: float = 0.0) -> None:
        """Deliver events whose time has come."""
        await self.tick()

    async def tick(self) -> int:
        """Deliver events whose time has come; how many."""
        delivered = 0
        while rows := await self._store.run(scripts.due_events, self._namespace, AT_ONCE):
            found = await self._deliver([(id_, bytes(envelope)) for id_, envelope in rows])
            delivered += found
            if not found:  # somebody else does it
                break
        return delivered + await self.carry_on_flows()

    async def _deliver(self, rows: Sequence[tuple[str, bytes]]) -> int:
        """Deliver events together; if that fails, each alone, so that one holds up no other."""
        try:
            publications = [read_publication(id_, envelope, datetime.now(UTC)) for id_, envelope in rows]
            return len((await self.route(publications, _is_due)).routed)
        except EngineUnavailable:
            raise
        except Exception as error:
            if len(rows) > 1:
                return sum([await self._deliver([row]) for row in rows])
            id_ = rows[0][0]
            self._failures.log(log, id_, error, f"event {id_} could not be delivered; it is parked")
            problem = f"it could not be delivered: {phrase(error)}"[:PROBLEM_LENGTH]
            await self._store.run(scripts.park, self._namespace, id_, problem)
            return 1

    async def next_due(self) -> float | None:
        """Seconds until an event is to be delivered; None: none waits."""
        at, now = await self._store.run(scripts.next_due, self._namespace)
        return None if at is None else max(0.0, (at - now) / 1e6)

    async def start_pending(self) -> None:
        """Start runs that somebody else has recorded and not started."""
        await self._where.start_pending()

    async def forget(self) -> None:
        """Forget events that are past their time, in small batches."""
        while await self._store.run(scripts.forget, self._namespace, micros(self._keep)) >= AT_ONCE:
            pass

    # What operators ask for.

    async def replay(self, id: str, activities: Sequence[str] | None, *, completed: bool) -> Receipt | None:
        """See EngineEvents."""
        found = await retry_unavailable(self._store.run, scripts.get, self._namespace, id)
        if found is None:
            return None
        info, envelope = found
        published = read_publication(id, envelope, datetime.now(UTC))
        if info.state in (EventState.PARKED, EventState.WAITING):
            recorded = await self.route([published], _was_not_routed)
        else:
            only = await self._find_ended(info, published.event, activities, completed)
            reuse = Reuse.ALWAYS if completed else Reuse.FAILED_ONLY
            gathered = await self._find_gathered(id)
            recorded = await self.route(
                [published], _was_routed, why=Why.REPLAY, only=only, reuse=reuse, gathered=gathered
            )
        after = await retry_unavailable(self._store.run, scripts.get, self._namespace, id)
        info = info if after is None else after[0]
        runs = await self.started(recorded)
        return Receipt(id, False, info.state, tuple(runs), info.problem, tuple(await self.outcomes(id)))

    async def _find_ended(
        self, info: EventInfo, event: EventEnvelope, activities: Sequence[str] | None, completed: bool
    ) -> list[str]:
        """The activities whose newest run for an event is to be run again."""
        unknown = sorted(set(activities or ()) - set(info.activities))
        if unknown:
            raise InvalidValue(
                f"activity {unknown[0]!r} has no run for event {info.event_id!r}. An activity that wants it is run for "
                f"it by: semel events backfill {unknown[0]}"
            )
        wanted = info.activities if activities is None else activities
        subscriptions = (await self.read_router()).subscriptions
        chosen = []
        idle = (OutcomeState.DROPPED, OutcomeState.PAUSED)
        waits = {one.activity for one in await self.outcomes(info.event_id) if one.state in idle}
        chosen += [activity for activity in wanted if activity in waits and activity in subscriptions]
        for run in await self.runs(info.event_id, event, wanted):
            execution = await self._find(run.execution)
            status = None if execution is None else execution.status
            if run.activity in chosen:
                continue
            if status in RELEASED or (completed and status in (None, Status.COMPLETED)):
                if run.activity not in subscriptions:
                    raise NotFound(
                        f"activity {run.activity!r} is not subscribed to events any more: declare it, and publish it "
                        "with semel apply."
                    )
                chosen.append(run.activity)
        return chosen

    async def backfill(
        self, activity: str, since: datetime | None, until: datetime | None, limit: int, *, write: bool
    ) -> list[str]:
        """See EngineEvents."""
        await self.read_router()
        begin = 0 if since is None else instant(since)
        end = END_OF_TIME if until is None else instant(until)
        after, done = (-1, ""), list[str]()
        while len(done) < limit:
            rows = await retry_unavailable(self._store.run, scripts.kept, self._namespace, begin, after, end, AT_ONCE)
            if not rows:
                break
            after = rows[-1][1], rows[-1][0]
            wanted = await self._find_wanted(activity, rows)
            wanted = wanted[: limit - len(done)]
            if write and wanted:
                lacks_run = partial(_lacks_run, activity)
                recorded = await self.route(wanted, lacks_run, why=Why.BACKFILL, only=[activity])
                done += [plan.publication.id for plan in recorded.routed]
            else:
                done += [one.id for one in wanted]
        return done

    async def _find_wanted(self, activity: str, rows: Sequence[tuple[str, int, str, bytes]]) -> list[Publication]:
        subscription = (await self.load_router()).subscriptions.get(activity)
        if subscription is None:
            raise NotFound(f"activity {activity!r} wants no events. Publish what your app declares with: semel apply")
        now, wanted = datetime.now(UTC), []
        for id_, _, activities, envelope in rows:
            if activity not in activities.split(","):
                one = read_publication(id_, bytes(envelope), now)
                if subscription.match(one.event, FilterData(one.event)).kind is MatchKind.MATCHES:
                    wanted.append(one)
        return wanted

    # Reading.

    async def get(self, id: str) -> tuple[EventInfo, EventEnvelope] | None:
        """See EngineEvents."""
        await self.write_counts()
        found = await retry_unavailable(self._store.run, scripts.get, self._namespace, id)
        return None if found is None else (found[0], read_event(found[1]))

    async def page(self, state: EventState | None, type: str | None, before: str | None, limit: int) -> list[EventInfo]:
        """See EngineEvents."""
        await self.write_counts()
        wanted = None if state is None else state.value
        return await retry_unavailable(self._store.run, scripts.page, self._namespace, wanted, type, before, limit)

    async def count_parked(self) -> int:
        """See EngineEvents."""
        state = EventState.PARKED
        return await retry_unavailable(self._store.run, scripts.count_state, self._namespace, state, MOST_COUNTED)

    async def examine(self) -> list[Finding]:
        """What could be wrong with events, for `semel doctor`."""
        counts = await retry_unavailable(self._store.run, scripts.count, self._namespace, MOST_COUNTED)
        told = ", ".join(
            f"{'over ' if number >= MOST_COUNTED else ''}{number} {state}"
            for state, (number, _) in counts.items()
            if number
        )
        findings = [Finding(True, "events", told or "none")]
        parked, example = counts[EventState.PARKED]
        if parked:
            what = f"{parked}, such as {example}. See why, and run them again with: semel events replay"
            findings.append(Finding(False, "parked events", what))
        paused = [id_ for id_, one in (await self.read_router()).subscriptions.items() if one.paused]
        if paused:
            what = f"for events: {', '.join(paused[:10])}. Go on with: semel events resume {paused[0]}"
            findings.append(Finding(True, "paused activities", what))
        return findings

    async def close(self) -> None:
        """Let pending publications finish and write the counts."""
        try:
            await self._group.drained()
            await self._duplicates.close()
        finally:
            self._duplicates.stop()


def _weight(publication: Publication) -> int:
    return 2 * len(publication.envelope)


def _is_over(known: KnownEvent, one: Publication) -> bool:
    """Did an event that was named by its content come so long ago that this one is another?"""
    return one.counts_for is not None and known.now - known.received_at > micros(one.counts_for)


def _is_due(known: KnownEvent, plan: Plan) -> bool:
    return known.state == EventState.WAITING and known.deliver_at is not None and known.deliver_at <= known.now


def _was_not_routed(known: KnownEvent, plan: Plan) -> bool:
    return known.state in (EventState.PARKED, EventState.WAITING)


def _was_routed(known: KnownEvent, plan: Plan) -> bool:
    return not _was_not_routed(known, plan) and plan.state is EventState.ROUTED


def _lacks_run(activity: str, known: KnownEvent, plan: Plan) -> bool:
    return _was_routed(known, plan) and activity not in known.ran


def _newest(before: Sequence[EventRun], after: Sequence[EventRun]) -> tuple[EventRun, ...]:
    """Runs of an event, each in the place of the one that it follows."""
    new = {run.key: run for run in after}
    return tuple(new.get(run.key, run) for run in before)
