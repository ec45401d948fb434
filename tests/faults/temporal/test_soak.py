"""Minutes of mixed load on Temporal with workers that are killed at random and a server that is killed once."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.testing.temporal_server import TemporalServer, temporal_server
from tests.faults.proofs import Tell, seconds
from tests.faults.temporal.place import Place, WorkerProcess, prepare, retry_unavailable, worker
from tests.world import eventually

WORKERS = 2
SHARED = 3
"""Clients that ask for the same keys."""


class Soak:
    """One run: who asks, who dies, and what was acknowledged."""

    def __init__(self, place: Place, server: TemporalServer, length: float, seed: int, tell: Tell) -> None:
        self.tell = tell
        self.place, self.server = place, server
        self.dice = random.Random(seed)
        self.began = time.monotonic()
        self.end = self.began + length
        self.middle = self.began + length / 2
        self.kitchen = place.kitchen()
        self.handles: dict[str, tuple[semel.Handle[Any], Any]] = {}
        """What was accepted, by key, with the result it must have."""
        self.sent = 0
        self.kills = 0
        self.duplicates = 0

    async def play(self) -> None:
        """Until the time is over; then everything to its end."""
        async with self.kitchen.app:
            await asyncio.gather(
                *(self._mortal() for _ in range(WORKERS)), *(self._client(n) for n in range(SHARED)), self._meals(),
                self._messages(), self._crash(),
            )  # fmt: skip
            with worker(self.place, "--lease", "2s", "--log-level", "warning"):
                for handle, expected in self.handles.values():
                    got = await retry_unavailable(lambda handle=handle: handle.result(timeout="90s"), within=120)  # type: ignore[misc]
                    assert got == expected
                till = self.kitchen.app.entity(self.kitchen.Till, "main")
                total = await retry_unavailable(lambda: till.ask("add", 0, dedup_key="end", timeout="90s"), within=120)
                assert total == self.sent
            await self._check()

    def _on(self) -> bool:
        return time.monotonic() < self.end

    async def _mortal(self) -> None:
        """Workers that die in the middle of whatever they do."""
        while self._on():
            process = WorkerProcess(self.place, "--lease", "2s")
            try:
                await eventually(lambda one=process: "ready:" in one.said() or one.child.poll() is not None, within=60)
                await asyncio.sleep(self.dice.uniform(0.1, 4.0))
            finally:
                process.kill()
            self.kills += 1

    async def _client(self, who: int) -> None:
        """Tasks of its own, and the same as everybody."""
        n = 0
        while self._on():
            n += 1
            for key in (f"own-{who}-{n}", f"all-{n}"):
                handle = await retry_unavailable(
                    lambda key=key: self.kitchen.app.enqueue(self.kitchen.cook, key, 0.3, task_id=key)  # type: ignore[misc]
                )
                before = self.handles.setdefault(key, (handle, key))[0]
                assert handle.id == before.id, "one key, two executions"
                self.duplicates += handle.duplicate
            await asyncio.sleep(0.1)

    async def _meals(self) -> None:
        n = 0
        while self._on():
            n += 1
            key = f"m-{n}"
            handle = await retry_unavailable(
                lambda key=key: self.kitchen.app.start_workflow(self.kitchen.meal, key, 0.3, workflow_id=key)  # type: ignore[misc]
            )
            await retry_unavailable(lambda handle=handle: handle.signal("served", "yes", dedup_key="once"))  # type: ignore[misc]
            self.handles[key] = (handle, [f"{key} ordered", key, key, key, "yes", f"{key} paid"])
            await asyncio.sleep(0.3)

    async def _messages(self) -> None:
        till = self.kitchen.app.entity(self.kitchen.Till, "main")
        while self._on():
            key = f"d-{self.sent}"
            for _ in range(2):
                await retry_unavailable(lambda key=key: till.send("add", 1, dedup_key=key))  # type: ignore[misc]
            self.sent += 1
            await asyncio.sleep(0.1)

    async def _crash(self) -> None:
        await asyncio.sleep(self.middle - time.monotonic())
        await asyncio.to_thread(self.server.kill)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(self.server.restart)

    async def _check(self) -> None:
        """I1: what was accepted has ended, as it must. I2: once under a key; effects at most once and once a crash."""
        found = [one async for one in self._executions()]
        completed = Counter((one.kind, one.key) for one in found if one.status is semel.Status.COMPLETED)
        assert [key for key, count in completed.items() if count > 1] == []
        left = [one for one in found if one.status is not semel.Status.COMPLETED]
        assert [one.kind for one in left] == ["entity"], left
        effects = self.place.ledger.effects()
        ids = {one.id for one in found}
        tries = Counter((one.execution, one.attempt) for one in effects if one.execution in ids and one.token)
        cooked = {handle.id for key, (handle, _) in self.handles.items() if not key.startswith("m-")}
        assert [one for one, count in tries.items() if count > 1 and one[0] in cooked] == []  # an attempt, its effect
        assert {one.execution for one in effects} >= cooked
        times = self.place.ledger.times()
        assert max(times.values()) <= 1 + self.kills + 1, times.most_common(5)
        again = sum(count - 1 for count in times.values())
        self.tell(
            f"soak on temporal: {len(found)} executions, {len(times)} effects, {again} of them again, {self.sent} "
            f"messages, {self.duplicates} duplicates, {self.kills} workers and one server killed"
        )
        assert self.kills >= 2

    async def _executions(self) -> Any:
        before = None
        while page := await self.kitchen.app.list(limit=1000, before=before):
            for one in page:
                yield one
            before = page[-1].id


@pytest.mark.proof
@pytest.mark.alone
@pytest.mark.timeout(7200)
def test_a_long_soak_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tell: Tell) -> None:
    seed = int(time.time())
    tell(f"soak on temporal: seed {seed}")
    with temporal_server(tmp_path / "server") as server:
        place = Place(server.url("kitchen"), f"sqlite:///{tmp_path}/records.db", str(tmp_path))
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
        asyncio.run(prepare(place))

        async def play() -> None:
            await Soak(place, server, seconds(0.05), seed, tell).play()

        asyncio.run(play())
