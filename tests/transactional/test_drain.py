"""A test drains what its open transaction has started: the tasks run in it, without a worker and without a commit."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import semel
from semel import Status
from semel.testing import Drained, drain, drain_sync
from tests.transactional.conftest import Callers
from tests.transactional.kinds import KINDS, Caller, InThread
from tests.world import World

pytestmark = pytest.mark.slow


async def drained(caller: Caller, **options: Any) -> list[Drained]:
    """As the face of the connection does it."""
    if isinstance(caller, InThread):
        return list(await caller.do(lambda: drain_sync(caller.app, caller.given, **options)))
    return list(await drain(caller.app, caller.given, **options))


class Shop:
    """Tasks that start each other, sync and async."""

    def __init__(self, world: World, *, sync_face: bool) -> None:
        self.app = app = world.app()
        self.ran: list[str] = []
        self.fails = 0

        @app.task
        async def ship(order: int) -> str:
            self.ran.append(f"ship {semel.current().key}")
            await app.enqueue(mail, order, task_id=f"mail-{order}")
            return f"shipped {order}"

        @app.task
        def pack(order: int) -> str:
            self.ran.append(f"pack {order}")
            if sync_face:
                app.sync.enqueue(mail, order, task_id=f"mail-{order}")
            return "packed"

        @app.task(retry=semel.Retry(max_attempts=3, initial="1h"))
        async def mail(order: int) -> str:
            self.ran.append(f"mail {order} attempt {semel.current().attempt}")
            if self.fails:
                self.fails -= 1
                raise ConnectionError("no network")
            return "mailed"

        @app.task
        async def again() -> None:
            await app.enqueue(again)

        @app.workflow
        async def flow(ctx: semel.Context) -> None: ...

        self.ship, self.pack, self.mail, self.again, self.flow = ship, pack, mail, again, flow


async def test_tasks_run_in_the_open_transaction_and_a_rollback_undoes_them(world: World, caller: Callers) -> None:
    shop = Shop(world, sync_face=False)
    async with caller(shop.app) as connection:
        await connection.begin()
        await connection.insert(1)
        await connection.start(shop.ship, 1, task_id="ship-1")
        await connection.start(shop.pack, 1)
        done = await drained(connection)
        assert [(one.name, one.status, one.result) for one in done] == [
            ("ship", Status.COMPLETED, "shipped 1"),
            ("pack", Status.COMPLETED, "packed"),
            ("mail", Status.COMPLETED, "mailed"),
        ]
        assert shop.ran == ["ship ship-1", "pack 1", "mail 1 attempt 1"]
        again = await connection.start(shop.ship, 1, task_id="ship-1")
        assert (again.duplicate, again.id) == (True, done[0].id), "it has completed, in this transaction"
        assert await drained(connection) == []
        await connection.rollback()
    assert await world.traces() == 0
    assert await world.count("semel_worker") == 0
    with pytest.raises(semel.OutsideTask):
        semel.current()


async def test_what_is_committed_after_a_drain_has_ended(world: World, caller: Callers) -> None:
    shop = Shop(world, sync_face=False)
    async with caller(shop.app) as connection:
        await connection.begin()
        await connection.start(shop.ship, 1, task_id="ship-1")
        await drained(connection)
        await connection.commit()
        handle = await shop.app.find("ship-1")
        assert handle is not None
        assert await handle.result("60s") == "shipped 1"
    assert await world.work() == 0
    assert await world.count("semel_worker") == 0


async def test_attempts_follow_at_once_and_the_last_error_is_raised(world: World, caller: Callers) -> None:
    shop = Shop(world, sync_face=False)
    async with caller(shop.app) as connection:
        await connection.begin()
        await connection.start(shop.mail, 1)
        shop.fails = 2
        (one,) = await drained(connection)
        assert (one.status, one.result) == (Status.COMPLETED, "mailed")
        await connection.start(shop.mail, 2)
        shop.fails = 3
        with pytest.raises(ConnectionError, match="no network"):
            await drained(connection)
        await connection.start(shop.mail, 3)
        shop.fails = 3
        (failed,) = await drained(connection, raises=False)
        assert (failed.status, failed.error and failed.error.message) == (Status.FAILED, "no network")
        await connection.rollback()


async def test_what_is_delayed_and_workflows_stay(world: World, caller: Callers) -> None:
    shop = Shop(world, sync_face=False)
    async with caller(shop.app) as connection:
        await connection.begin()
        await connection.start(shop.mail, 1, delay="1h")
        await connection.call("start_workflow", shop.flow, workflow_id="f-1")
        assert await drained(connection) == []
        await connection.rollback()


async def test_tasks_without_end_are_an_error(world: World, caller: Callers) -> None:
    shop = Shop(world, sync_face=False)
    async with caller(shop.app) as connection:
        await connection.begin()
        await connection.start(shop.again)
        with pytest.raises(semel.InvalidValue, match="does one start itself again"):
            await drained(connection, most=5)
        await connection.rollback()


async def test_a_plain_task_that_takes_too_long_has_timed_out(world: World, caller: Callers) -> None:
    """Nobody can interrupt it: what counts is how long it took. The transaction goes on."""
    app = world.app()

    @app.task(timeout="100ms", retry=1)
    def slow() -> str:
        time.sleep(1)
        return "late"

    @app.task
    def quick() -> str:
        return "quick"

    async with caller(app) as connection:
        await connection.begin()
        await connection.start(slow)
        await connection.start(quick)
        late, done = await drained(connection, raises=False)
        assert (late.status, late.error and late.error.type) == (Status.TIMED_OUT, "TimeoutError")
        assert (done.status, done.result) == (Status.COMPLETED, "quick")
        await connection.start(slow)
        with pytest.raises(TimeoutError):
            await drained(connection)
        await connection.rollback()
    assert await world.traces() == 0


def test_rows_of_an_outbox_are_not_drained(tmp_path: Path) -> None:
    """The connection is to another database than the engine's: what to do instead is said."""
    app = semel.App(f"sqlite:///{tmp_path}/engine.db", config=None)

    @app.task
    def ship() -> None: ...

    app.sync.migrate()
    (tmp_path / "shop.db").touch()
    app.sync.outbox.init(f"sqlite:///{tmp_path}/shop.db")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        app.sync.enqueue(ship, connection=connection)
        with pytest.raises(semel.InvalidValue, match=r"another database.*engine\.db.*app\.relay"):
            drain_sync(app, connection)
        connection.rollback()
    app.sync.close()


WITHOUT_AWAIT = [(engine, one) for engine, kinds in KINDS.items() for one in kinds if issubclass(one, InThread)]


@pytest.mark.parametrize("kind", WITHOUT_AWAIT, ids=lambda kind: f"{kind[0]}-{kind[1].__name__}")
async def test_a_plain_task_uses_the_connection_of_the_test(world: World, caller: Callers) -> None:
    """It runs in the thread of the test, and what it starts through the sync face joins the transaction."""
    shop = Shop(world, sync_face=True)
    async with caller(shop.app) as connection:
        await connection.begin()
        await connection.start(shop.pack, 1)
        assert [one.name for one in await drained(connection)] == ["pack", "mail"]
        await connection.rollback()
    assert await world.traces() == 0


def test_a_cluster_has_no_transactions_to_drain() -> None:
    app = semel.App("temporal://127.0.0.1:1/default", config=None)

    async def try_it() -> None:
        with pytest.raises(semel.InvalidValue, match="takes part in no transaction"):
            await drain(app, object())

    asyncio.run(try_it())
