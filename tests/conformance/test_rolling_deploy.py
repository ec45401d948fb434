"""A rolling deploy with real processes: a new default parameter, a renamed function and a removed one.

Old and new workers run side by side, and so do old and new clients that ask for the same things under the same keys.
Nothing fails, nothing runs twice, and what the new code has no function for is named and goes on after a rollback.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import semel
from tests.docs.pages import ROOT
from tests.world import World, eventually

pytestmark = pytest.mark.proof

CODE = """
import os

import semel

app = semel.App(os.environ["SHOP_URL"], config=None, auto_migrate=True)


def note(what: str) -> None:
    file = os.open(os.environ["SHOP_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{{what}}\\n".encode())
    os.close(file)


@app.task(retry=1)
async def charge(order: str{more}) -> str:
    note(f"charge {{order}}")
    return f"{{order}} {currency}"


@app.workflow
async def parcel(ctx: semel.Context, order: str) -> list[str]:
    first = await ctx.execute_task(charge, f"first-{{order}}"{given})
    await ctx.wait_signal("sent")
    return [first, await ctx.execute_task(charge, f"second-{{order}}", task_id=f"second-{{order}}")]


@app.workflow
async def {order}(ctx: semel.Context, order: str) -> str:
    await ctx.wait_signal("paid")
    return f"paid {{order}}"


@app.entity
class Account:
    points: int = 0

    @semel.handler
    async def add(self, ctx: semel.EntityContext, points: int{noted}) -> int:
        self.points += points
        return self.points
"""
REMOVED = """

@app.task
async def stamp(order: str) -> str:
    note(f"stamp {order}")
    return order
"""
OLD = CODE.format(more="", currency="EUR", given="", order="order", noted="") + REMOVED
NEW = CODE.format(
    more=', currency: str = "EUR"', currency="{currency}", given=', currency="EUR"', order="process_order",
    noted=', why: str = ""',
)  # fmt: skip
MANY = 20
PATIENCE = "90s"


class Rollout:
    """Two states of the code of one shop, on one database."""

    def __init__(self, world: World, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.ledger = folder / "ledger"
        monkeypatch.setenv("SHOP_URL", world.url)
        monkeypatch.setenv("SHOP_LEDGER", str(self.ledger))
        monkeypatch.setenv("SEMEL_URL", world.url)
        if records := getattr(world, "records", None):
            monkeypatch.setenv("SEMEL_RECORDS", records)
        for name, code in (("old", OLD), ("new", NEW)):
            (folder / name).mkdir()
            (folder / name / "shop.py").write_text(code)

    def code(self, which: str) -> ModuleType:
        """The code as a client imports it."""
        spec = importlib.util.spec_from_file_location(f"shop_{which}", self.folder / which / "shop.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    @contextlib.contextmanager
    def worker(self, which: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker process; at the end of the block it drains."""
        command = [sys.executable, "-m", "semel", "worker", "shop:app", "--lease", "5s"]
        with (self.folder / f"{which}.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=self.folder / which, env=_environment(), stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)

    async def say(self, which: str, *arguments: str) -> tuple[int, str]:
        """A command at the shell: its exit code, and what it wrote."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "semel", *arguments, cwd=self.folder / which,
            env={**_environment(), "COLUMNS": "400", "NO_COLOR": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode()

    def logged(self, which: str) -> str:
        return (self.folder / f"{which}.log").read_text()

    def charged(self) -> Counter[str]:
        """How often each order was charged."""
        return Counter(self.ledger.read_text().splitlines())


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


async def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 60) == 0


async def workers(app: semel.App, count: int) -> None:
    async def there() -> bool:
        return len(await app.workers()) == count

    await eventually(there, 60)


async def waits(handle: semel.Handle[Any], name: str) -> None:
    """Wait until a workflow has asked for a signal."""

    async def asked() -> bool:
        return any(event.kind == "signal" and event.name == name for event in await handle.history())

    await eventually(asked, 60)


async def test_old_and_new_code_run_side_by_side(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rollout = Rollout(world, tmp_path, monkeypatch)
    old, new = rollout.code("old"), rollout.code("new")
    async with old.app, new.app:
        with rollout.worker("old") as first, rollout.worker("old") as second:
            await workers(old.app, 2)
            parcels = [await old.app.start_workflow(old.parcel, f"p-{n}", workflow_id=f"p-{n}") for n in range(5)]
            order = await old.app.start_workflow(old.order, "o", workflow_id="order-1")
            await asyncio.gather(*(waits(one, "sent") for one in parcels), waits(order, "paid"))
            stamp = await old.app.enqueue(old.stamp, "s-1", task_id="stamp-1", delay="1h")
            assert await old.app.entity(old.Account, "ann").ask("add", 1, dedup_key="one") == 1
            await world.listed()

            code, said = await rollout.say("new", "replay", "shop:app")
            assert code == 7, said
            assert "This code has no function for: order, stamp." in said

            with rollout.worker("new"):
                await workers(old.app, 3)
                await deploy_under_way(old, new, [first, second])
                await workers(new.app, 1)
                await after_the_deploy(rollout, new, parcels)

        with rollout.worker("old"):  # rolled back
            await order.signal("paid")
            assert await order.result(PATIENCE) == "paid o"
            await stamp.cancel()
            assert await old.app.unserved() == []
    assert set(rollout.charged().values()) == {1}, "nothing ran twice"
    assert "left for a worker whose code fits" in rollout.logged("old")


async def deploy_under_way(old: ModuleType, new: ModuleType, leaving: list[subprocess.Popen[bytes]]) -> None:
    """Both clients ask for the same; the new one also for what only new code can run; old workers leave one by one."""
    same, fresh = [], []
    for n in range(MANY):
        if n == MANY // 2:
            await stop(leaving[0])
        one = await old.app.enqueue(old.charge, f"c-{n}", task_id=f"c-{n}")
        again = await new.app.enqueue(new.charge, f"c-{n}", currency="EUR", task_id=f"c-{n}")
        assert (again.id, again.duplicate) == (one.id, True)
        fresh.append(await new.app.enqueue(new.charge, f"u-{n}", "USD", task_id=f"u-{n}"))
        assert (await old.app.enqueue(old.charge, f"c-{n}", task_id=f"c-{n}")).id == one.id
        same.append(one)
    assert [await one.result(PATIENCE) for one in same] == [f"c-{n} EUR" for n in range(MANY)]
    assert await old.app.entity(old.Account, "ann").ask("add", 1, dedup_key="two") == 2
    await stop(leaving[1])
    assert [await one.result(PATIENCE) for one in fresh] == [f"u-{n} USD" for n in range(MANY)]
    assert {(await one.describe()).attempt for one in fresh} == {1}
    assert await new.app.entity(new.Account, "ann").ask("add", 1, "a gift", dedup_key="three") == 3


async def after_the_deploy(rollout: Rollout, new: ModuleType, parcels: list[semel.Handle[Any]]) -> None:
    """Workflows that began with the old code end with the new; what has no function any more is named."""
    for n, parcel in enumerate(parcels):
        assert (await new.app.start_workflow(new.parcel, f"p-{n}", workflow_id=f"p-{n}")).id == parcel.id
        await parcel.signal("sent")
    for n, parcel in enumerate(parcels):
        assert await parcel.result(PATIENCE) == [f"first-p-{n} EUR", f"second-p-{n} EUR"]
    code, said = await rollout.say("new", "doctor")
    assert code == 1, said
    told = re.sub(r" since [-0-9 :]+ UTC", "", " ".join(said.split()))  # which not every engine knows
    assert "workflow 'order' on queue 'default' (1 waiting, such as order-1)" in told
    assert "task 'stamp' on queue 'default' (1 waiting, such as stamp-1)" in told
    assert "order-1" in (await rollout.say("new", "workflows", "list", "--parked"))[1]
    assert "No worker that runs has a task 'stamp'" in (await rollout.say("new", "explain", "stamp-1"))[1]
    with rollout.worker("new"):  # a worker looks around soon after its start
        await eventually(lambda: "no worker that runs has a workflow 'order'" in rollout.logged("new"), 60)
