"""Real processes by the real clock: SIGKILL, SIGSTOP and SIGCONT, SIGTERM once and twice."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import semel
from semel.contract.lifecycle import Status
from tests.faults.shop import Shop
from tests.faults.site import Site
from tests.world import SOON, eventually

pytestmark = pytest.mark.slow

WORKER = """
import asyncio, json, signal, sys
import semel
from tests.faults.shop import Shop
from tests.faults.site import Site
from tests.faults.test_real_processes import patient

async def main():
    shop = Shop(Site(**json.loads(sys.argv[1])))
    patient(shop, float(sys.argv[2]))
    async with shop.app.worker(lease="1s", grace="100s") as worker:
        over = asyncio.Event()
        def ask():
            if over.is_set():
                asyncio.ensure_future(worker.stop())
            over.set()
            print("asked", flush=True)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ask)
        print("ready", flush=True)
        await over.wait()
    await shop.app.close()

asyncio.run(main())
"""


def patient(shop: Shop, seconds: float) -> semel.Task[[str], str]:
    """A task that takes its time after its effect: so many seconds, or until it is told that it is enough."""

    @shop.app.task(name="patient", retry=5)
    async def task(order: str) -> str:
        shop.ledger.record_here()
        with suppress(AssertionError):
            await eventually(enough(shop.site).exists, within=seconds)
        return order

    return task


def enough(site: Site) -> Path:
    """Once there is such a file, the task ends."""
    return Path(site.folder) / "enough"


@contextmanager
def worker_process(site: Site, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that is surely gone at the end of the block."""
    arguments = [sys.executable, "-c", WORKER, json.dumps(site.plain()), str(seconds)]
    child = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait(SOON)
        assert child.stdout is not None
        child.stdout.close()


async def effects(site: Site, count: int) -> None:
    await eventually(lambda: len(site.ledger.effects()) >= count)


async def test_a_killed_worker_s_task_runs_again_after_its_lease(site: Site) -> None:
    assert await seconds_until_it_ran_again(site) < SOON


@pytest.mark.proof
@pytest.mark.alone
async def test_on_a_machine_that_is_not_busy_it_does_so_within_its_lease_and_two_seconds(site: Site) -> None:
    assert await seconds_until_it_ran_again(site) < 1.0 + 2.0


async def seconds_until_it_ran_again(site: Site) -> float:
    async with Shop(site) as shop:
        handle = await shop.app.enqueue(patient(shop, 0.0), "o-1", task_id="k-1")
        with worker_process(site, 60.0) as child:
            await effects(site, 1)
            async with shop.app.worker(lease="1s"):
                child.send_signal(signal.SIGKILL)
                killed = time.monotonic()
                assert await handle.result(timeout="60s") == "o-1"
                spent = time.monotonic() - killed
        assert len(site.ledger.effects()) == 2
    return spent


async def freeze(child: subprocess.Popen[bytes], site: Site) -> None:
    """Stop a process, but not while it holds the lock of a SQLite file: then everybody would wait for it."""

    async def is_frozen() -> bool:
        child.send_signal(signal.SIGSTOP)
        try:
            await site.script("update semel_queue set name = name where false", patience=1)
        except Exception:
            child.send_signal(signal.SIGCONT)
            return False
        return True

    await eventually(is_frozen)


async def test_a_stopped_worker_that_wakes_up_cannot_complete_what_was_taken_over(site: Site) -> None:
    async with Shop(site) as shop:
        handle = await shop.app.enqueue(patient(shop, 0.0), "o-1", task_id="k-1")
        with worker_process(site, 60.0) as child:
            await effects(site, 1)
            await freeze(child, site)
            async with shop.app.worker(lease="1s"):
                assert await handle.result(timeout="60s") == "o-1"
            enough(site).touch()  # so that it tries to complete it as soon as it wakes up
            before = await site.sql("select token, attempt, finished_at from semel_execution")
            child.send_signal(signal.SIGCONT)
            fresh = "select count(*) from semel_worker"

            async def enlisted_again() -> bool:
                return (await site.sql(fresh))[0][0] == 1

            await eventually(enlisted_again)
            child.send_signal(signal.SIGTERM)
            await asyncio.to_thread(child.wait, SOON)
        assert await site.sql("select token, attempt, finished_at from semel_execution") == before
        assert before[0][1] == 2
        assert await site.sql("select * from semel_watch where what = 'changed'") == []


@pytest.mark.parametrize("terms", [1, 2])
async def test_sigterm_lets_tasks_finish_and_a_second_one_gives_them_back(site: Site, terms: int) -> None:
    async with Shop(site) as shop:
        handle = await shop.app.enqueue(patient(shop, 0.0), "o-1", task_id="k-1")
        with worker_process(site, 100.0) as child:
            await effects(site, 1)
            child.send_signal(signal.SIGTERM)
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == b"asked\n"
            draining = "select count(*) from semel_ready where owner is not null"
            assert (await site.sql(draining))[0][0] == 1
            if terms == 1:
                enough(site).touch()
            else:
                child.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(child.wait, SOON) == 0
        assert await site.sql("select * from semel_worker") == []
        if terms == 1:
            assert await handle.status() is Status.COMPLETED
        else:
            assert await handle.status() is Status.PENDING
            assert (await handle.describe()).attempt == 0
            assert await site.sql("select owner, attempt from semel_ready") == [(None, 0)]
