"""Every call ends within its bound, also where a server is frozen: nothing answers and nothing refuses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.testing.temporal_server import temporal_server
from tests.faults.server import await_stop, fragile_postgres

BOUND = 3.0
MOST = BOUND + 6.0
"""Seconds that a call may take: its bound, and what a busy machine adds."""
EVENT = semel.EventEnvelope(event_id="evt_1", source="/shop", type="invoice.paid")
BESIDE = ("schedules", "pause", "trigger", "publish", "events")
"""Verbs that ask the records database beside a cluster."""


class Shop:
    """An app whose calls wait for so many seconds at most."""

    def __init__(self, url: str, folder: Path, *, bound: float = BOUND) -> None:
        config = folder / f"bound-{bound:g}.toml"
        config.write_text(f'call_timeout = "{bound:g}s"\n', encoding="utf-8")
        self.app = app = semel.App(url, config=config, auto_migrate=True)

        @app.task(name="charge")
        async def charge(cents: int) -> int:
            return cents

        @app.workflow(name="order")
        async def order(ctx: semel.Context) -> None:
            await ctx.wait_signal("go")

        @app.entity(name="account")
        class Account:
            @semel.handler
            async def add(self, ctx: semel.EntityContext, cents: int) -> int:
                return cents

        self.charge, self.order, self.account = charge, order, app.entity(Account, "a-1")
        self.add = Account.add

    def calls(self, execution: str) -> dict[str, Callable[[], Awaitable[Any]]]:
        """Every verb, by its name."""
        app, charge = self.app, self.charge
        known: semel.Handle[Any] = semel.Handle(app, execution, "order", "o-0", duplicate=False)
        return {
            "enqueue": lambda: app.enqueue(charge, 1),
            "enqueue with a key": lambda: app.enqueue(charge, 1, task_id="k"),
            "enqueue_many": lambda: app.enqueue_many([charge.call(1), charge.call(2)]),
            "start_workflow": lambda: app.start_workflow(self.order, workflow_id="o-1"),
            "send": lambda: self.account.send(self.add, 1),
            "find": lambda: app.find("k"),
            "get": lambda: app.get(execution),
            "list": lambda: app.list(),
            "explain": lambda: app.explain("k"),
            "redrive": lambda: app.redrive(execution),
            "queues": lambda: app.queues(),
            "workers": lambda: app.workers(),
            "describe": known.describe,
            "result": known.result,
            "cancel": known.cancel,
            "signal": lambda: known.signal("go"),
            "terminate": known.terminate,
            "published": lambda: known.published("x"),
            "history": known.history,
            "schedules": lambda: app.schedules.list(),
            "pause": lambda: app.schedules.pause("nightly"),
            "trigger": lambda: app.schedules.trigger("nightly"),
            "publish": lambda: app.publish(EVENT),
            "events": lambda: app.events.list(),
        }


async def time_call(call: Callable[[], Awaitable[Any]]) -> float:
    """Seconds until a call said that there was no answer."""
    began = time.monotonic()
    with pytest.raises(semel.EngineUnavailable):
        await call()
    return time.monotonic() - began


async def see_every_call_end(shop: Shop, execution: str, but: Collection[str] = ()) -> None:
    """Each verb, all at once; ten callers of one; and a timeout of the caller's own."""
    calls = {verb: call for verb, call in shop.calls(execution).items() if verb not in but}
    took = await asyncio.gather(*(time_call(call) for call in calls.values()))
    assert {verb: seconds for verb, seconds in zip(calls, took, strict=True) if seconds > MOST} == {}
    assert max(await asyncio.gather(*(time_call(calls["find"]) for _ in range(10)))) < MOST
    began = time.monotonic()
    known: semel.Handle[Any] = semel.Handle(shop.app, execution, "order", "o-0", duplicate=False)
    with pytest.raises(semel.ResultPending):
        await known.result(timeout="1s")
    assert time.monotonic() - began < 1 + MOST - BOUND


@pytest.mark.slow
@pytest.mark.parametrize("connected", [True, False], ids=["connected before", "not yet connected"])
async def test_calls_to_a_frozen_postgres_end(tmp_path: Path, connected: bool) -> None:
    with fragile_postgres() as server:
        patient, shop = Shop(server.url("postgres"), tmp_path, bound=60), Shop(server.url("postgres"), tmp_path)
        async with patient.app, shop.app:
            known = await patient.app.start_workflow(patient.order, workflow_id="o-0")
            if connected:
                for verb, call in shop.calls(known.id).items():
                    if verb != "result":  # it would wait for the end
                        with contextlib.suppress(semel.SemelError):
                            await call()
            server.freeze()
            try:
                await see_every_call_end(shop, known.id)
            finally:
                server.thaw()
            assert await patient.app.find("o-0", kind="workflow") is not None


@pytest.mark.slow
async def test_calls_to_a_locked_sqlite_file_end(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    patient, shop = Shop(f"sqlite:///{file}", tmp_path, bound=60), Shop(f"sqlite:///{file}", tmp_path)
    async with patient.app, shop.app:
        known = await patient.app.start_workflow(patient.order, workflow_id="o-0")
        calls = shop.calls(known.id)
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("begin immediate")
            writes = ("enqueue", "enqueue with a key", "enqueue_many", "start_workflow", "send", "cancel", "signal")
            calls_that_write = [calls[verb] for verb in (*writes, "publish")]
            assert max(await asyncio.gather(*map(time_call, calls_that_write))) < MOST
            assert await patient.app.find("k") is None  # reading goes on
            other.execute("rollback")
        assert not (await patient.app.enqueue(patient.charge, 1, task_id="k")).duplicate


@pytest.mark.slow
@pytest.mark.parametrize("connected", [True, False], ids=["connected before", "not yet connected"])
async def test_calls_to_a_frozen_temporal_server_end(tmp_path: Path, connected: bool) -> None:
    with temporal_server(tmp_path, namespaces=["shop"]) as server:
        patient, shop = Shop(server.url("shop"), tmp_path, bound=60), Shop(server.url("shop"), tmp_path)
        async with patient.app, shop.app:
            known = await patient.app.start_workflow(patient.order, workflow_id="o-0")
            if connected:
                with contextlib.suppress(semel.EngineUnavailable):
                    await shop.app.find("o-0")
            os.kill(server.pid, signal.SIGSTOP)
            await_stop(server.pid)
            try:
                await see_every_call_end(shop, known.id, but=("result", *BESIDE))
            finally:
                os.kill(server.pid, signal.SIGCONT)
            assert await patient.app.find("o-0", kind="workflow") is not None
