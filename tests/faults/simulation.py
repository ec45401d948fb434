"""A whole cluster in one thread: real engines and workers on a loop whose time is made up, driven by one seed.

Processes share a SQLite database in memory. Each statement takes a made-up moment, may fail before or after it was
executed, and its process may be killed (no clean-up at all), frozen for longer than its lease, or stopped. The
clock jumps. Hours pass in milliseconds, and the same seed tells the same story.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import selectors
import types
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar
from unittest import mock

import semel
from semel.contract.decision import Reuse
from semel.engine.start_request import RunOptions, StartRequest
from semel.engines.factory import SQLITE
from semel.engines.journal import admissions, control, flow_rows, heartbeat, unserved, worker
from semel.engines.journal import claims as claims_module
from semel.engines.journal.engine import JournalEngine
from semel.engines.journal.script import ConnectionRole, Listener, Procedure, Topic
from semel.engines.sqlite.store import SqliteStore
from semel.engines.sqlite.writer_thread import Job
from semel.runtime import chores
from semel.settings import Settings, WorkerSettings

YEAR = timedelta(days=365)
W = TypeVar("W", bound="World")
_process: ContextVar[Process | None] = ContextVar("process", default=None)


class _Eternity(selectors.DefaultSelector):
    """Never waits: when nothing is ready, time moves on to what comes next."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for somebody else"
            self.now += max(0.0, timeout)
        return ready


class MadeUpTime(asyncio.SelectorEventLoop):
    """A loop in which waiting costs nothing."""

    def __init__(self) -> None:
        self._eternity = _Eternity()
        super().__init__(self._eternity)

    def time(self) -> float:
        return self._eternity.now


class World:
    """The database, the dice, the clock and what happened."""

    def __init__(self, loop: MadeUpTime, seed: int) -> None:
        self.loop = loop
        self.dice = random.Random(seed)
        self.skew = 0.0
        self.faults = 0.0
        self.store = SqliteStore(":memory:", self.wall)
        self.scribe = self.store._for(ConnectionRole.CONTROL)
        self.processes: list[Process] = []
        self.effects: list[tuple[str, int, int]] = []
        self.accepted: set[str] = set()
        self.app = semel.App("sqlite:///:memory:", config=None)
        self._define()

    def wall(self) -> float:
        return 1_800_000_000.0 + self.loop.time() + self.skew

    def _define(self) -> None:
        @self.app.task(retry=semel.Retry(max_attempts=50, initial="1s"))
        async def effect(seconds: float, failures: int) -> str:
            await asyncio.sleep(seconds)
            here = semel.current()
            self.effects.append((here.id, here.token, here.attempt))
            if here.attempt <= failures:
                raise ValueError("not yet")
            return here.id

    def run(self, make: Callable[[], Any]) -> Any:
        """A script, at once."""
        job = Job(make, ConnectionRole.CONTROL, self.loop, self.loop.create_future())
        self.scribe._transact([job])
        if job.error is not None:
            raise job.error
        return job.result

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Look at the tables."""
        return self.scribe._db.execute(text)


class Process:
    """One process of the cluster, which is also the store that its engine sees."""

    dialect = "sqlite"
    reconnections = 0

    def __init__(self, world: World) -> None:
        self.world = world
        self.migrations = world.store.migrations
        self.tap = None
        self.dead = False
        self.tasks: set[asyncio.Task[Any]] = set()
        self.awake = asyncio.Event()
        self.awake.set()
        self.engine = JournalEngine(self, SQLITE, "default", auto_migrate=True, settings=Settings(), own_store=False)
        self.worker: Any = None
        self._listener: Listener | None = None
        world.processes.append(self)

    async def run(self, script: Procedure[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Some time before, some time after, and now and then a fault."""
        dice = self.world.dice
        await self._moment(dice)
        if dice.random() < self.world.faults:
            raise semel.EngineUnavailable("before")
        before = self.world.scribe._db.total_changes()
        result = self.world.run(lambda: script(*args, **kwargs))
        changed = self.world.scribe._db.total_changes() != before
        for other in self.world.processes if changed else ():
            if other is not self and other._listener is not None and not other.dead:
                self.world.loop.call_later(dice.uniform(0, 0.05), other._listener.poll_everything)
        await self._moment(dice)
        if dice.random() < self.world.faults:
            raise semel.EngineUnavailable("after")
        return result

    async def _moment(self, dice: random.Random) -> None:
        if self.dead:
            raise asyncio.CancelledError
        await asyncio.sleep(dice.uniform(0, 0.01))
        await self.awake.wait()
        if self.dead:
            raise asyncio.CancelledError

    async def listen(self, listener: Listener, topic: Topic) -> None:
        self._listener = listener

    async def relisten(self) -> None: ...

    def is_ready(self, lines: Iterable[ConnectionRole]) -> bool:
        return True

    async def make_ready(self, lines: Iterable[ConnectionRole]) -> None: ...

    async def verify(self, patience: float) -> None: ...

    async def check(self) -> list[tuple[bool, str, str]]:
        return []

    async def close(self) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Something that this process does; it ends with the process."""
        token = _process.set(self)
        try:
            return asyncio.get_running_loop().create_task(work)
        finally:
            _process.reset(token)

    async def serve(self, cached: int = 1000, lease: float = 10.0) -> None:
        """Become a worker."""
        pace = WorkerSettings(5, timedelta(seconds=lease), timedelta(minutes=5), cached_workflows=cached)
        settings = replace(self.world.app.settings, worker=pace)
        self.worker = self.engine.worker(self.world.app.tasks, None, settings)
        await self.worker.start()

    def kill(self) -> None:
        """As SIGKILL does it."""
        self.dead = True
        self.world.processes.remove(self)
        for task in self.tasks:
            task.cancel()

    async def freeze(self, seconds: float) -> None:
        """As SIGSTOP and SIGCONT do it, as far as the database can tell."""
        self.awake.clear()
        await asyncio.sleep(seconds)
        self.awake.set()

    async def request(self, start: StartRequest) -> None:
        """Until it is answered, as a client with a key does."""
        for _ in range(20):
            try:
                self.world.accepted.add((await self.engine.start(start)).id)
                return
            except semel.EngineUnavailable:
                await asyncio.sleep(1)


def _remember(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    process = _process.get()
    if process is not None:
        process.tasks.add(task)
        task.add_done_callback(process.tasks.discard)
    return task


async def _chaos(world: World, events: int) -> None:
    dice = world.dice
    client = Process(world)
    await client.engine.open()
    world.faults = dice.choice([0.0, 0.01, 0.05])
    numbers = iter(range(1, 1_000_000))
    for _ in range(events):
        await asyncio.sleep(dice.choice([0.01, 0.1, 1.0, 5.0]))
        workers = [p for p in world.processes if p.worker is not None]
        match dice.choices(range(8), [12, 3, 2, 2, 1, 2, 1, 1])[0]:
            case 0:
                client.spawn(client.request(_start(world, next(numbers))))
            case 1 if len(workers) < 4:
                process = Process(world)
                process.spawn(quietly(process.serve()))
            case 2 if workers:
                dice.choice(workers).kill()
            case 3 if workers:
                frozen = dice.choice(workers)
                world.loop.create_task(frozen.freeze(dice.choice([1.0, 15.0, 120.0])))
            case 4:
                world.skew += dice.choice([3600.0, 86400.0, -5.0, -9.0])
            case 5 if world.accepted:
                client.spawn(quietly(client.engine.cancel(dice.choice(sorted(world.accepted)))))
            case 6 if world.accepted:
                old, new = dice.choice(sorted(world.accepted)), f"{next(numbers):032x}"
                client.spawn(quietly(client.run(control.redrive, "default", old, new)))
            case 7 if workers:
                process = dice.choice(workers)
                process.spawn(quietly(process.worker.stop()))
            case _:
                pass
    world.faults = 0.0
    await asyncio.sleep(60)
    for process in list(world.processes):
        process.kill()


async def quietly(work: Coroutine[Any, Any, Any]) -> None:
    with contextlib.suppress(semel.SemelError):
        await work


def _start(world: World, number: int) -> StartRequest:
    dice = world.dice
    key = dice.choice([None, *(f"k-{n}" for n in range(12))])
    payload = b'{"failures":%d,"seconds":%.1f}' % ((0, 1.0) if key else (dice.choice([0, 0, 2]), dice.uniform(0, 20)))
    options = RunOptions(
        "task", "effect", "default", dice.choice([0, 0, 5]), Reuse.FAILED_ONLY, 50, YEAR, YEAR,
        delay=dice.choice([None, None, timedelta(seconds=30)]),
    )  # fmt: skip
    return StartRequest(f"{number:032x}", key, payload, b"0" * 16, options)


async def _finish(world: World) -> None:
    """A clean worker does what is left."""
    world.skew += 86400.0
    process = Process(world)
    await process.serve()
    left = "select count(*) from (select execution from semel_ready union all select execution from semel_later)"
    for _ in range(20_000):
        if world.rows(left) == [(0,)] and world.rows("select count(*) from semel_worker") == [(1,)]:
            break  # all is done, and it has outlived whoever died
        await asyncio.sleep(1)
    await process.worker.stop()
    await process.engine.close()


def _wrong(world: World) -> list[str]:
    wrong = []
    rows = {row[0]: row[1:] for row in world.rows("select id, key, status, attempt, current from semel_execution")}
    wrong += [f"I1: {id_} is {status}" for id_, (_, status, *_) in rows.items() if status in ("pending", "running")]
    wrong += [f"I1: {id_} was accepted and is gone" for id_ in world.accepted if id_ not in rows]
    completed = [key for key, status, *_ in rows.values() if key is not None and status == "completed"]
    wrong += [f"I2: {key} completed {completed.count(key)} times" for key in set(completed) if completed.count(key) > 1]
    claims = [(id_, token) for id_, token, _ in world.effects]
    wrong += [f"I2: claim {claim} had its effect twice" for claim in set(claims) if claims.count(claim) > 1]
    for id_, (_, status, attempt, _) in rows.items():
        times = sum(effect[0] == id_ for effect in world.effects)
        if times > attempt:
            wrong.append(f"I2: {id_} had {times} effects in {attempt} attempts")
        if status == "completed" and not times:
            wrong.append(f"I1: {id_} completed without its effect")
    for table in ("semel_ready", "semel_later", "semel_worker"):
        wrong += [f"I6: {table} holds {row}" for row in world.rows(f"select * from {table}")]
    return wrong


def simulate(seed: int, events: int) -> tuple[list[str], int]:
    """One story: what was wrong at its end, and how many effects happened in it."""
    with story(seed, World) as world:
        world.loop.run_until_complete(_chaos(world, events))
        world.loop.run_until_complete(_finish(world))
        return _wrong(world), len(world.effects)


@contextlib.contextmanager
def story(seed: int, make: Callable[[MadeUpTime, int], W]) -> Iterator[W]:
    """A world with a loop of its own, which ends with it."""
    random.seed(seed)
    loop = MadeUpTime()
    loop.set_task_factory(_remember)
    asyncio.set_event_loop(loop)
    world = make(loop, seed)
    try:
        with _made_up_time(world):
            yield world
    finally:
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        world.scribe._jobs.put(None)
        world.scribe.join(10)
        asyncio.set_event_loop(None)
        loop.close()


@contextlib.contextmanager
def _made_up_time(world: World) -> Iterator[None]:
    clock = types.SimpleNamespace(monotonic=world.loop.time, time=world.wall, time_ns=lambda: int(world.wall() * 1e9))
    with contextlib.ExitStack() as stack:
        for module in (heartbeat, claims_module, worker, admissions, flow_rows, unserved, chores):
            stack.enter_context(mock.patch.object(module, "time", clock))
        yield
