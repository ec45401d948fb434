"""The app that the faults happen to: small tasks of every kind, each effect in the ledger."""

from __future__ import annotations

from typing import Any

import semel
from semel.engines.journal.claims import Claim, claim, load_lanes, random_number
from semel.engines.journal.engine import JournalEngine
from semel.engines.journal.leases import register
from semel.engines.journal.script import Store
from semel.engines.journal.worker import JournalWorker
from tests.faults.ledger import Effect
from tests.faults.site import Site
from tests.world import AlwaysThere, eventually, unbounded

LEASE = 30_000_000
SOON = semel.Retry(max_attempts=3, initial="10ms", jitter=0.0)


class Shop:
    """One process's view of a site."""

    def __init__(self, site: Site, **options: Any) -> None:
        self.site = site
        self.ledger = ledger = site.ledger
        self.app = app = site.app(**options)
        app.configure_queue("narrow", concurrency=2)
        app.configure_queue("metered", rate_limit="1000/sec")

        @app.task(retry=SOON)
        async def charge(order: str) -> str:
            ledger.record_here()
            return order

        @app.task(retry=SOON)
        async def flaky(order: str) -> str:
            if semel.current().attempt == 1:
                raise ValueError("not yet")
            ledger.record_here()
            return order

        @app.task(retry=1)
        async def doomed(order: str) -> str:
            raise ValueError(order)

        @app.task(retry=1)
        async def last_chance(order: str) -> str:
            ledger.record_here()
            return order

        @app.task(queue="narrow", retry=SOON)
        async def squeezed(order: str) -> str:
            ledger.record_here()
            return order

        @app.task(queue="metered", retry=SOON, rate_limit="1000/sec")
        async def paced(order: str) -> str:
            ledger.record_here()
            return order

        @app.task(retry=SOON, concurrency_key="customer:{customer}")
        async def in_turn(customer: str, order: str) -> str:
            ledger.record_here()
            return order

        @app.task(retention="1s", dedup_window="0")
        async def brief(order: str) -> str:
            return order

        @app.task(retention="1s", dedup_window="30d")
        async def remembered(order: str) -> str:
            return order

        self.charge, self.flaky, self.doomed, self.last_chance = charge, flaky, doomed, last_chance
        self.squeezed, self.paced, self.in_turn = squeezed, paced, in_turn
        self.brief, self.remembered = brief, remembered
        self.claims: list[Claim] = []
        """What a preparation holds for the operation after it."""

    @property
    def engine(self) -> JournalEngine:
        """The engine of the running loop."""
        engine = unbounded(self.app.engine)
        assert isinstance(engine, JournalEngine)
        return engine

    @property
    def store(self) -> Store:
        """Where its SQL goes through."""
        return self.engine._store

    @property
    def names(self) -> list[str]:
        """All tasks."""
        return [task.name for task in self.app.tasks]

    async def __aenter__(self) -> Shop:
        await self.app.queues()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.app.close()

    async def worker_id(self, name: str = "test") -> int:
        """A lease, without anybody behind it."""
        return await self.store.run(register, random_number(), "default", name, "all", LEASE)

    async def lanes(self) -> list[int]:
        """Every lane there is."""
        return [row[0] for row in (await self.store.run(load_lanes, "default", None))[0]]

    async def hold(self, most: int = 100, worker: int | None = None) -> tuple[int, list[Claim]]:
        """A worker that has claimed what there is, and does nothing with it."""
        worker = await self.worker_id() if worker is None else worker
        lanes = await self.lanes()
        return worker, await self.store.run(claim, worker, lanes, [0] * len(lanes), self.names, most)

    def effect(self, one: Claim) -> None:
        """The outside effect of a claim that is driven by hand."""
        subject = one.key if one.key is not None else one.execution
        key = f"semel1:default:task:{subject}:effect"
        self.ledger.record(Effect(key, one.execution, one.attempt, one.token))

    async def conclude(self) -> None:
        """Everything to its end."""
        await self.run_all()

    async def run_all(self, *, outlive_all: bool = False) -> None:
        """A real worker until nothing is left to do. Retention is not its business here.

        With `outlive_all`: also until no other worker has a lease. One that died holding nothing leaves only that.
        """
        left = "select count(*) from (select execution from semel_ready union all select execution from semel_later) x"
        leases = "select count(*) from semel_worker"
        async with self.app.worker(lease="30s", concurrency=8) as worker:
            assert isinstance(worker, JournalWorker)
            worker.chores["retention"].next_due = float("inf")
            worker.heart.reachability = AlwaysThere()

            async def nothing_left() -> bool:
                if (await self.site.sql(left))[0][0]:
                    return False
                return not outlive_all or (await self.site.sql(leases))[0][0] == 1

            await eventually(nothing_left)
