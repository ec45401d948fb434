"""The part of a worker that runs flows: loads them, lets them take their turns, and keeps those that rest in memory."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections import OrderedDict
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from semel.contract.records import ErrorInfo
from semel.define.context import Running
from semel.engine.failure_log import RepeatedFailures
from semel.engine.outcomes import describe
from semel.engines.journal.claims import Claim
from semel.engines.journal.flow_rows import Clock, Held, Loaded, Ready, carry_out, commit_of
from semel.engines.journal.group_commit import Coalescer
from semel.engines.journal.inbox import arrivals_of
from semel.engines.journal.lanes import Lanes
from semel.engines.journal.leases import lost_with
from semel.engines.journal.read import dump_error
from semel.engines.journal.script import Row
from semel.engines.journal.steps import Performer
from semel.engines.journal.turns import (
    Commit,
    Moved,
    Verdict,
    WentBack,
    commit,
    load,
    load_seen,
    park,
    record,
    still_held,
    transact,
)
from semel.errors import (
    EngineError,
    EngineUnavailable,
    Forbidden,
    InputError,
    LeaseLost,
    NonDeterminism,
    phrase_with_type,
)
from semel.flow import entries, snapshot
from semel.flow.commands import Command, Kind
from semel.flow.entity import Actor
from semel.flow.entity_messages import Seen, SeenRow
from semel.flow.entries import Resolved, Turned
from semel.flow.instance import Instance
from semel.flow.snapshot import Snapshot
from semel.flow.turn import Arrival, Identity, Turn
from semel.runtime.long_journal import LONG, warn_of_long_journal
from semel.runtime.retries import pause, retry_unavailable

if TYPE_CHECKING:
    from semel.engines.journal.worker import JournalWorker

log = logging.getLogger("semel.workflow")
HELD, STALE = Verdict.HELD, Verdict.STALE
"""Looked up once: an attribute of an enum is slow in Python 3.11."""
MOST_AT_ONCE = 200
WRITING_TURNS = "cannot write turns, trying again"
PARTS, LEAST = 4, 25
"""Half of a worker's flows go on while the other half is written, in two of four parts; small ones do not pay."""
PARKS_OF_THE_UNKNOWN = 2
PARKED_FIRST, PARKED_MOST = 5.0, 300.0
"""Seconds after which a parked flow is tried again: doubling, up to the second."""


class Flows:
    """The flows of one worker."""

    def __init__(self, worker: JournalWorker, lanes: Lanes) -> None:
        self._worker = worker
        self._lanes = lanes
        self._held: dict[str, Held] = {}
        self._cache: OrderedDict[str, Instance] = OrderedDict()
        part = min(MOST_AT_ONCE, max(LEAST, worker.settings.concurrency // PARTS))
        self._commits: Coalescer[Commit, Verdict] = Coalescer(self._write, part, _weight, at_once=PARTS // 2)
        self._loads: Coalescer[Row, Loaded] = Coalescer(self._load_many, MOST_AT_ONCE)
        self._known: Coalescer[str, list[Row]] = Coalescer(self._load_seen, MOST_AT_ONCE)
        self._performer = Performer(worker)
        self._failures = RepeatedFailures()

    def news(self, ids: Iterable[str]) -> None:
        """Something came for these flows; no ids means: for some flow."""
        known = list(ids)
        for id_ in known or list(self._held):
            held = self._held.get(id_)
            if held is not None:
                held.news = True
                held.ring()

    async def hold(self, claim: Claim, running: Running) -> None:
        """Take turns with a flow until it rests or ends. Cancelled: the worker stops, and gives it back."""
        held = Held(claim, running)
        self._held[claim.execution] = held
        rests = False
        try:
            rests = await self._take_turns(held)
        except _Gone:
            raise LeaseLost(f"its claim (token {claim.token}) is gone, or another worker's") from None
        except EngineUnavailable:
            raise  # what was written of it is not known: it is given back, and read anew by who takes it next
        except Exception as error:
            await self._park(held, error, PARKS_OF_THE_UNKNOWN, unexpected=True)
        finally:
            if self._held.get(claim.execution) is held:  # it may have been claimed again already
                del self._held[claim.execution]
            for number in list(held.steps):
                held.drop(number)
            if held.instance is not None:
                if rests:
                    self._keep(claim.execution, held.instance)
                else:
                    held.instance.close()

    async def _take_turns(self, held: Held) -> bool:
        """True: it rests, and what is in memory of it can go on."""
        loaded = await self._load(held)
        while loaded is not None:
            held.instance = loaded.instance
            try:
                verdict = await self._until_rest(held, loaded.instance, loaded.arrivals, loaded.clock)
            except Moved:
                verdict = STALE
            except (NonDeterminism, Forbidden, RuntimeError, InputError) as error:
                await self._save_answer(held, loaded)
                await self._park(held, error, loaded.parks)
                return False
            if verdict is Verdict.ASLEEP:
                return True
            if verdict is Verdict.ENDED:
                return False
            known = held.instance.position
            held.instance.close()
            held.instance = None
            # Stale, or begun anew: what is in the database is what counts.
            claim = held.claim
            if not await retry_unavailable(self._worker.store.run, still_held, self._worker.id, claim.fence):
                raise _Gone
            loaded = await self._load(held)
            if loaded is not None and loaded.instance.position < known:
                _say_went_back(held, known, loaded.instance.position)
        return False

    async def _save_answer(self, held: Held, loaded: Ready) -> None:
        """A step has run, and the code cannot go on from there: what it gave is kept, or it would run again."""
        claim, instance = held.claim, loaded.instance
        for arrival in held.given:
            answer = arrival.what
            if arrival.row is None and isinstance(answer, Resolved):
                now = Turned(max(loaded.clock(), instance.loop.now))
                body = entries.dump([now, msgspec.structs.replace(answer, alone=True)])
                await self._commits.ask(Commit(*claim.fence, instance.position + 1, body))
                return

    async def _until_rest(self, held: Held, instance: Instance, arrivals: list[Arrival], clock: Clock) -> Verdict:
        claim = held.claim
        while True:
            held.given = [] if instance.carries else arrivals
            turn = instance.turn(clock(), arrivals)
            held.given = []
            in_place = instance.in_place
            made = commit_of(claim, instance, turn, rests=not in_place)
            if (outward := turn.outward) or turn.dropped:
                await carry_out(self._lanes, made, outward, turn.dropped)
            verdict = HELD
            if made.body is not None or not made.plain:
                verdict = await self._commits.ask(made)
                if verdict is not STALE and (made.body is not None or made.restart is not None):
                    instance.position, instance.written_by = made.n, claim.token
                for conflict in turn.conflicts:
                    log.warning("%s has refused a message: %s", claim.key, conflict)
                if (turn.ended is not None or turn.messages or self._worker.events.observed) and verdict is not STALE:
                    self._report(held, instance, turn)
                if made.forgives:
                    held.claim = claim = msgspec.structs.replace(claim, attempt=1)
            if instance.entries >= LONG:
                warn_of_long_journal(log, instance, turn)
            if verdict is not HELD or turn.again is not None or turn.ended is not None:
                if verdict is Verdict.ASLEEP and turn.due is not None:
                    self._worker.heart.due(turn.due)
                return STALE if verdict is HELD else verdict
            arrivals = await self._more(held, instance, in_place, turn.due, clock)

    def _report(self, held: Held, instance: Instance, turn: Turn) -> None:
        """Tell who listens what a turn came to, now that it is written."""
        events, claim = self._worker.events, held.claim
        if events.wants_turn(claim.kind, turn):
            seconds = (instance.loop.now - instance.began) / 1_000_000
            events.report_turn(claim.kind, instance.who, claim.attempt, turn, seconds)
            turn.messages = []  # exceptions, with all that their frames hold

    async def _more(
        self, held: Held, instance: Instance, in_place: list[Command], due: int | None, clock: Clock
    ) -> list[Arrival]:
        """Run its steps; what they give, and what comes from outside meanwhile."""
        if held.steps:
            for number in held.steps.keys() - {command.number for command in in_place}:
                held.drop(number)
        for command in in_place:
            if command.kind is Kind.TRANSACTION:
                await self._transact(held, instance, command, clock)
                arrived, held.arrived = held.arrived, []
                return arrived
            if command.number in held.steps:
                continue
            # More than one would give more than one answer at once, and only one is saved if the code cannot go on.
            answer = self._performer.at_once(command, held.claim, instance) if len(in_place) == 1 else None
            if answer is None:
                held.steps[command.number] = asyncio.create_task(self._perform(held, instance, command, clock))
            else:
                held.arrived.append(Arrival(clock(), answer))
        if in_place and not held.arrived:
            await held.wait(None if due is None else max(0.0, (due - clock()) / 1e6))
        timer_is_due = due is not None and due <= clock()
        if held.news or not in_place or timer_is_due:  # what came before the timer may not have been announced yet
            held.news = False
            again = await self._loads.ask((held.claim.execution, instance.position))
            if again.journal or again.gone:
                raise _Gone
            if again.last < instance.position:
                raise Moved
            clock.set(again.now)
            held.arrived = list(heapq.merge(again.arrivals, held.arrived, key=attrgetter("at")))
        arrived, held.arrived = held.arrived, []
        return arrived

    async def _perform(self, held: Held, instance: Instance, command: Command, clock: Clock) -> None:
        answer = await self._performer.perform(command, held, instance)
        held.arrived.append(Arrival(clock(), answer))
        held.ring()

    async def _transact(self, held: Held, instance: Instance, command: Command, clock: Clock) -> None:
        """The step and its record in one transaction; what follows from it comes with the next turn."""
        claim = held.claim
        now = max(clock(), instance.loop.now)
        place = Commit(*claim.fence, instance.position + 1)
        do, tell = self._performer.transaction(command, claim, instance, now)
        body = await self._worker.store.run(transact, self._worker.id, place, do, tell)
        if body is None:
            raise _Gone
        instance.position, instance.written_by = instance.position + 1, claim.token
        instance.absorb(entries.load(body))

    async def _load(self, held: Held) -> Ready | None:
        """The flow as it stands: from memory if it is there and nobody else has had it, else from its journal."""
        claim = held.claim
        held.news = False
        held.arrived.clear()
        held.steps = {number: task for number, task in held.steps.items() if not task.done()}
        cached = self._cache.pop(claim.execution, None)
        found = await self._loads.ask((claim.execution, 0 if cached is None else cached.position))
        if cached is not None and (
            found.journal or found.last != cached.position or found.written_by != cached.written_by
        ):
            cached.close()
            cached = None
            found = await self._loads.ask((claim.execution, 0))
        if found.gone:
            return None
        instance = cached
        if isinstance(instance, Actor):
            _warn(instance, claim, found.parks)
        if instance is None:
            try:
                instance = await self._new(claim, found)
                instance.replay([entry for _, body in found.journal for entry in entries.load(body)])
            except (NonDeterminism, Forbidden, InputError, RuntimeError) as error:
                if instance is not None:
                    instance.close()
                await self._park(held, error, found.parks)
                return None
            instance.position = max((n for n, _ in found.journal), default=found.base)
            instance.written_by = found.written_by
        return Ready(instance, found.arrivals, Clock(found.now), found.parks)

    async def _new(self, claim: Claim, found: Loaded) -> Instance:
        start = Snapshot(claim.input) if found.snapshot is None else snapshot.load(found.snapshot)
        who = Identity(
            claim.execution,
            claim.key or claim.execution,
            claim.name,
            self._worker.namespace,
            self._worker.intake.queue_of(claim.lane),
            claim.generation,
            claim.input,
            claim.parent,
            claim.root,
        )
        if claim.kind == "entity":
            actor = await self._actor(claim.execution, who, start)
            _warn(actor, claim, found.parks)
            return actor
        workflow = self._worker.registry.workflow(claim.name, found.version)
        return Instance(workflow, who, self._worker.app_settings, start)

    async def _actor(self, execution: str, who: Identity, start: Snapshot) -> Actor:
        entity = self._worker.registry.entity(who.name)
        seen = Seen(entity.fresh_window(), [SeenRow(*row) for row in await self._known.ask(execution)])
        actor = Actor(entity, who, self._worker.app_settings, start, seen)
        actor.watched = self._worker.events.wants_ends
        return actor

    def _keep(self, execution: str, instance: Instance) -> None:
        if execution in self._cache:
            self._cache.pop(execution).close()
        self._cache[execution] = instance
        while len(self._cache) > self._worker.settings.cached_workflows:
            self._cache.popitem(last=False)[1].close()

    async def _park(self, held: Held, error: BaseException, parks: int, *, unexpected: bool = False) -> None:
        """Put it off. The traceback of an `unexpected` error is logged once, not at each try."""
        claim = held.claim
        wait = min(PARKED_MOST, PARKED_FIRST * 2.0 ** min(parks, 10))
        is_news = unexpected and not self._failures.is_repeated(claim.execution, error)
        why = phrase_with_type(error) if unexpected else error
        log.error("%s %r is parked: %s", claim.kind, claim.key, why, exc_info=error if is_news else None)
        info = ErrorInfo(type(error).__name__, str(error)) if isinstance(error, NonDeterminism) else describe(error)
        await retry_unavailable(
            self._worker.store.run,
            park,
            self._worker.id,
            claim.fence,
            dump_error(info),
            int(wait * 1_000_000),
        )
        self._worker.events.parked(held.running, info, wait)
        self._worker.heart.due_in(wait)

    async def _load_many(self, rows: list[Row]) -> list[Loaded | BaseException]:
        flows, journal, inbox = await retry_unavailable(self._worker.store.run, load, rows)
        found = {row[0]: Loaded(*row[1:]) for row in flows}
        for execution, n, body in journal:
            if execution in found:
                found[execution].journal.append((n, body))
        for execution, *row in inbox:
            if execution in found:
                found[execution].arrivals.append(arrivals_of(row))
        return [found.get(row[0]) or Loaded.of_none() for row in rows]

    async def _load_seen(self, executions: list[str]) -> list[list[Row] | BaseException]:
        found: dict[str, list[Row]] = {execution: [] for execution in executions}
        for execution, *row in await retry_unavailable(self._worker.store.run, load_seen, executions):
            found[execution].append(tuple(row))
        return [found[execution] for execution in executions]

    async def _write(self, commits: list[Commit]) -> list[Verdict | BaseException]:
        """Write turns. A database that is away is waited for, since the lease protects the claims."""
        worker = self._worker.id
        verdicts: dict[int, Verdict] = {}
        plain: list[Commit] = []
        rest: list[Commit] = []
        for c in commits:
            (plain if c.plain else rest).append(c)
        more = rest
        failures = 0
        while plain or rest:
            try:
                if plain:
                    remembered = await self._worker.store.run(record, worker, plain)
                    verdicts.update(remembered)
                    plain = []
                if rest:
                    written = await self._worker.store.run(commit, self._worker.namespace, worker, rest)
                    verdicts.update(written)
                    rest = []
            except EngineUnavailable as error:
                failures += 1
                if worker != self._worker.id or self._worker.hopeless(failures):
                    raise
                self._worker.outage.lost(WRITING_TURNS, error)
                await asyncio.sleep(pause(failures))
            except EngineError as error:
                if len(commits) == 1 and isinstance(error, WentBack):
                    return [STALE]
                if len(commits) == 1:
                    raise
                return [await self._write_alone(c) for c in commits]  # one that is refused must not hold up the others
        if failures:
            self._worker.outage.regained(WRITING_TURNS)
        self._tell(more, verdicts)
        return [verdicts.get(c.token, STALE) for c in commits]

    async def _write_alone(self, c: Commit) -> Verdict | BaseException:
        try:
            return (await self._write([c]))[0]
        except EngineError as error:
            return error

    def _tell(self, commits: list[Commit], verdicts: dict[int, Verdict]) -> None:
        """Whoever waits in this process for what these turns did."""
        hub = self._worker.hub
        hub.done([c.execution for c in commits if c.seen or verdicts.get(c.token) is Verdict.ENDED])
        for c in commits:
            for execution in c.stops:
                hub.cancel(execution)
        if heard := {id_ for c in commits for id_ in c.heard_by()}:
            hub.news(heard)
        wanted = [child.wanted for c in commits for child in c.child_starts]
        if delays := [one.start.options.delay for one in wanted if one.start.options.delay is not None]:
            self._worker.heart.due_in(min(delays).total_seconds())
        lanes = {one.lane for one in wanted}
        if any(c.ended or c.sends or c.stops for c in commits):
            hub.work(())
        elif lanes:
            hub.work(lanes)

    async def close(self) -> None:
        """Let go of all that is kept in memory."""
        await self._commits.drained()
        await self._loads.drained()
        await self._known.drained()
        self.abandon()

    def abandon(self) -> None:
        """Drop what is kept in memory, without waiting for what is being written."""
        for instance in self._cache.values():
            with contextlib.suppress(Exception):
                instance.close()
        self._cache.clear()


class _Gone(Exception):
    """Another worker has it."""


def _say_went_back(held: Held, known: int, now: int) -> None:
    """Steps that were begun belong to a past that never was: the code may ask for others under their numbers."""
    for number in list(held.steps):
        held.drop(number)
    log.error(
        "%s %r: the database went back in time, from commit %d to commit %d (a restore, or a failover that lost the "
        "last transactions): it goes on from there",
        held.claim.kind,
        held.claim.key,
        known,
        now,
    )


def _warn(actor: Actor, claim: Claim, parks: int) -> None:
    """Workers were lost with an entity, or it was parked: it takes care, and gives up what cost too many workers."""
    lost = claim.attempt - 1
    actor.isolate_messages(lost > 0 or parks > 0, None if lost < claim.max_attempts else lost_with(lost))


def _weight(c: Commit) -> int:
    return len(c.body or b"") + (
        sum(len(child.wanted.start.payload) for child in c.child_starts) if c.child_starts else 0
    )
