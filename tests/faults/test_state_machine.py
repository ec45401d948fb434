"""Any sequence of things that can happen leaves the tables as a small model says (SQLite, injected clock)."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from semel.contract.decision import Admit, Reuse
from semel.contract.lifecycle import Status
from semel.engine.ids import new_id
from semel.engine.start_request import RunOptions, StartRequest
from semel.engines.factory import SQLITE
from semel.engines.journal import control, leases
from semel.engines.journal.claims import Claim, claim, load_lanes, release
from semel.engines.journal.engine import JournalEngine
from semel.engines.journal.retention import clean
from semel.engines.journal.script import ConnectionRole, Script, SqlQuery, procedure
from semel.engines.journal.settle import Ending, put_off, settle
from semel.engines.sqlite.store import SqliteStore
from semel.engines.sqlite.writer_thread import statements
from semel.settings import Settings
from tests.faults.model import SECOND, Model, Modelled, keeping
from tests.faults.proofs import Tell, seconds

LEASE = 30 * SECOND
NAMES = ["charge", "mail"]
JUMPS = [1, 40, 3600, 86400, 8 * 86400, -2, -20]


@procedure(ConnectionRole.CONTROL)
def look(query: str) -> Script[list[Any]]:
    """Read a table as it is."""
    rows: list[Any] = yield SqlQuery(query)
    return rows


class Life(RuleBasedStateMachine):
    """Executions, claims (also stale ones) and workers (also dead ones)."""

    claims: Bundle[tuple[int, Claim]] = Bundle("claims")

    @initialize()
    def begin(self) -> None:
        """An empty database in memory."""
        self.loop = asyncio.new_event_loop()
        self.model = Model(1_800_000_000 * SECOND)
        self.store = SqliteStore(":memory:", lambda: self.model.now / SECOND)
        self.engine = JournalEngine(self.store, SQLITE, "default", auto_migrate=True, settings=Settings())
        self.wait(self.engine.open())
        self.names: dict[int, list[str]] = {}
        for name, text in READ.items():
            statements()[name] = [(text, 0)]

    def teardown(self) -> None:
        """Close the database."""
        if hasattr(self, "loop"):
            self.wait(self.engine.close())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    def wait(self, work: Any) -> Any:
        """Await it."""
        return self.loop.run_until_complete(work)

    def run(self, script: Any, *args: Any) -> Any:
        """Run a script of the engine."""
        return self.wait(self.store.run(script, *args))

    @rule(
        key=st.sampled_from([None, "k-1", "k-2", "k-3"]), name=st.sampled_from(NAMES),
        input=st.sampled_from([b"1", b"2"]), reuse=st.sampled_from(list(Reuse)),
        delay=st.sampled_from([None, None, 10, 3600]), most=st.sampled_from([1, 2, 3]),
        keep=st.sampled_from([(0, 0), (10, 10), (60, 7200), (7200, 60), (604800, 604800)]),
    )  # fmt: skip
    def enqueue(
        self, key: str | None, name: str, input: bytes, reuse: Reuse, delay: int | None, most: int,
        keep: tuple[int, int],
    ) -> None:  # fmt: skip
        """Fresh, duplicate, with other input, of another function, after an end: the contract decides."""
        new = Modelled(new_id(), key, name, input * 16, most, keeping(*keep))
        span = None if delay is None else timedelta(seconds=delay)
        options = RunOptions("task", name, "default", 0, reuse, most, new.keep.retention, new.keep.window, delay=span)
        asked = StartRequest(new.id, key, input, new.print, options)
        expected = self.model.enqueue(new, reuse, None if delay is None else delay * SECOND)
        got = self.wait(self.engine.start(asked))
        assert type(got.decision) is type(expected), (got.decision, expected)
        if isinstance(expected, Admit):
            assert got.id == new.id
            assert got.decision.supersedes == expected.supersedes
        else:
            assert got.decision == expected

    @rule(names=st.sampled_from([NAMES, ["charge"]]))
    def worker_starts(self, names: list[str]) -> None:
        """A new lease."""
        worker = self.run(leases.register, len(self.names) + 1, "default", "w", "all", LEASE)
        assert worker not in self.names, "a number was given twice"
        self.names[worker] = names
        self.model.workers[worker] = self.model.now + LEASE

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def worker_beats(self, data: st.DataObject) -> None:
        """A living one renews its lease, a buried one learns that it has none."""
        worker = data.draw(st.sampled_from(sorted(self.names)))
        state, _ = self.run(leases.pulse, worker, LEASE, [], NAMES, [], [])
        assert (state is not None) == (worker in self.model.workers)
        if state is not None:
            self.model.workers[worker] = self.model.now + LEASE

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def worker_leaves(self, data: st.DataObject) -> None:
        """What it holds goes back."""
        worker = data.draw(st.sampled_from(sorted(self.names)))
        self.run(leases.retire, worker, "w")
        self.model.lose([worker], of_their_own_will=True)

    @precondition(lambda self: self.names)
    @rule(target=claims, data=st.data(), most=st.sampled_from([1, 2, 10]))
    def work_is_claimed(self, data: st.DataObject, most: int) -> Any:
        """First in, first out, of what this worker can run; a buried worker gets nothing."""
        worker = data.draw(st.sampled_from(sorted(self.names)))
        names = self.names[worker]
        lanes = [row[0] for row in self.run(load_lanes, "default", None)[0]]
        got = self.run(claim, worker, lanes, [0] * len(lanes), names, most) if lanes else []
        expected = self.model.claimable(names)[:most] if worker in self.model.workers else []
        assert [one.execution for one in got] == [one.id for one in expected]
        for one in expected:
            one.owner = worker
            one.attempt += 1
        for one in got:
            modelled = self.model.all[one.execution]
            assert (one.attempt, bool(one.cancel)) == (modelled.attempt, modelled.cancel)
            modelled.place, modelled.token = one.seq, one.token
            self.model.places = max(self.model.places, one.seq)
        return multiple(*[(worker, one) for one in got])

    def held(self, worker: int, one: Claim) -> Modelled | None:
        """The execution, if this claim still holds it."""
        modelled = self.model.all.get(one.execution)
        mine = modelled is not None and modelled.status.live and modelled.due is None
        return modelled if mine and modelled and (modelled.owner, modelled.token) == (worker, one.token) else None

    @rule(held=consumes(claims), status=st.sampled_from([Status.COMPLETED, Status.FAILED, Status.TIMED_OUT]))
    def work_ends(self, held: tuple[int, Claim], status: Status) -> None:
        """Only the holder of the claim may say how."""
        worker, one = held
        mine = self.held(worker, one)
        refused = self.run(settle, worker, [Ending(one, status, b"1" if status is Status.COMPLETED else None, b"{}")])
        assert refused == (set() if mine else {one.token})
        if mine:
            self.model.end(mine, status)

    @rule(held=consumes(claims), delay=st.sampled_from([0, 5, 600]))
    def work_is_put_off(self, held: tuple[int, Claim], delay: int) -> None:
        """A failed attempt with another one to come; if someone asked to cancel it, none comes."""
        worker, one = held
        mine = self.held(worker, one)
        refused = self.run(put_off, worker, [Ending(one, Status.FAILED, error=b"{}", retry_in=float(delay))])
        assert refused == (set() if mine else {one.token})
        if mine and mine.cancel:
            self.model.end(mine, Status.CANCELLED)
        elif mine:
            self.model.put_off(mine, delay * SECOND)

    @rule(held=consumes(claims))
    def work_is_given_back(self, held: tuple[int, Claim]) -> None:
        """In its place, the attempt not counted."""
        worker, one = held
        self.run(release, worker, [one.fence])
        mine = self.held(worker, one)
        if mine:
            mine.owner = None
            mine.attempt -= 1

    @precondition(lambda self: self.model.all)
    @rule(data=st.data())
    def someone_cancels(self, data: st.DataObject) -> None:
        """Waiting, running or ended."""
        one = self.model.all[data.draw(st.sampled_from(sorted(self.model.all)))]
        assert self.run(control.cancel, "default", one.id) == self.model.cancel(one)

    @rule(held=claims)
    def someone_cancels_what_runs(self, held: tuple[int, Claim]) -> None:
        """Or ran, when its claim is stale."""
        one = self.model.all.get(held[1].execution)
        if one is not None:
            assert self.run(control.cancel, "default", one.id) == self.model.cancel(one)

    @precondition(lambda self: self.model.all)
    @rule(data=st.data())
    def someone_redrives(self, data: st.DataObject) -> None:
        """A failed one runs again as a new one."""
        old = self.model.all[data.draw(st.sampled_from(sorted(self.model.all)))]
        allowed = self.model.may_be_redriven(old)
        id_ = new_id()
        assert self.run(control.redrive, "default", old.id, id_) == (id_ if allowed else None)
        if allowed:
            old.current = False
            new = Modelled(id_, old.key, old.name, old.print, old.most, old.keep, generation=old.generation)
            self.model.all[id_] = new
            self.model.line_up(new)

    @rule()
    def the_dead_are_buried(self) -> None:
        """Their tasks wait again, or end."""
        self.run(leases.recover)
        self.model.lose(self.model.expired(LEASE))

    @rule()
    def the_due_become_ready(self) -> None:
        """By the clock of the database."""
        self.run(leases.promote, 500)
        self.model.promote()

    @rule()
    def the_cleaner_comes(self) -> None:
        """And looks at everything that is due."""
        while self.run(clean)[0]:
            self.model.clean()
        self.model.clean()

    @rule(jump=st.sampled_from(JUMPS))
    def the_clock_jumps(self, jump: int) -> None:
        """Forward by a lot, or back by a little."""
        self.model.now += jump * SECOND

    @invariant()
    def the_tables_are_as_the_model_says(self) -> None:
        """All of them, row by row."""
        if not hasattr(self, "model"):
            return
        model = self.model.all.values()
        assert self.run(look, "see_executions") == sorted(
            (e.id, e.key, e.status.value, int(e.current), e.generation, e.finished, int(e.stripped)) for e in model
        )
        assert self.run(look, "see_ready") == sorted(
            (e.id, e.name, e.attempt, e.crashes, e.owner, int(e.cancel)) for e in model if e.ready
        )
        assert self.run(look, "see_later") == sorted(
            (e.id, e.due, e.attempt, e.crashes) for e in model if e.status.live and e.due is not None
        )
        assert [row[0] for row in self.run(look, "see_workers")] == sorted(self.model.workers)
        assert [row[0] for row in self.run(look, "see_dead")] == sorted(
            e.id for e in model if e.status.terminal and e.status is not Status.COMPLETED
        )

    @invariant()
    def a_key_has_one_live_or_completed_execution(self) -> None:
        """I2, from the tables alone: the newest; older ones under the key have ended."""
        if hasattr(self, "model"):
            assert self.run(look, "see_double_keys") == []


READ = {
    "see_executions": "select id, key, status, current, generation, finished_at, stripped"
    " from semel_execution order by id",
    "see_ready": "select execution, name, attempt, crashes, owner, cancel from semel_ready order by execution",
    "see_later": "select execution, due_at, attempt, crashes from semel_later order by execution",
    "see_workers": "select id from semel_worker order by id",
    "see_dead": "select execution from semel_dead order by execution",
    "see_double_keys": "select key from semel_execution where key is not null"
    " and (current or status in ('pending', 'running', 'waiting')) group by key having count(*) > 1",
}
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_any_sequence_of_events_leaves_the_tables_as_the_model_says() -> None:
    quick = settings(
        max_examples=120, stateful_step_count=40, deadline=None, derandomize=True, suppress_health_check=QUIET,
        database=None,
    )  # fmt: skip
    run_state_machine_as_test(Life, settings=quick)


@pytest.mark.proof(long=True)
@pytest.mark.timeout(7200)
def test_many_long_sequences_of_events_leave_the_tables_as_the_model_says(tell: Tell) -> None:
    end, rounds = time.monotonic() + seconds(0.05), 0
    while rounds == 0 or time.monotonic() < end:
        rounds += 1
        long = settings(
            max_examples=100, stateful_step_count=80, deadline=None, suppress_health_check=QUIET, print_blob=True,
            database=None, phases=[Phase.generate, Phase.shrink],
        )  # fmt: skip
        run_state_machine_as_test(Life, settings=long)
    tell(f"state machine: {rounds * 100} sequences of up to 80 events")
