"""The story: fifty requests at once, a worker killed in the middle of the charge, one charge."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from semel import App, Execution, Status
from semel.cli.demo.claim import REQUESTS, Claim, claim
from semel.cli.demo.ledger import Entry, read_ledger
from semel.cli.demo.screen import Screen
from semel.cli.demo.shop import CENTS, KEY, ORDER, PORT_FILE
from semel.cli.demo.troupe import LOG, Troupe

CUSTOMERS = 5
LEASE = "3s"
PROVIDER_TAKES = 2.0
LONGEST = 60.0
GLANCE = 0.05

DOING = {
    Status.PENDING: "waits for a worker",
    Status.RUNNING: "runs",
    Status.COMPLETED: "completed",
}


class Broken(Exception):
    """The story cannot go on; the message says what to look at."""


class Story:
    """One run of the demo in its folder."""

    def __init__(self, folder: Path, app: App, screen: Screen) -> None:
        self._folder = folder
        self._app = app
        self._screen = screen
        self._receipts: list[str] = []
        self._asked = 0
        self._kills = 0

    async def play(self) -> Claim:
        """From the first request to the checked claim."""
        try:
            async with asyncio.timeout(LONGEST), Troupe(self._folder) as troupe:
                with self._screen.live():
                    async with self._watching():
                        await self._act(troupe)
        except TimeoutError:
            raise Broken(f"it did not end within {LONGEST:g} s; see {self._folder / LOG}") from None
        told = await self._app.explain(KEY)
        return claim(read_ledger(self._folder), told, kills=self._kills, receipts=self._receipts)

    async def _act(self, troupe: Troupe) -> None:
        screen = self._screen
        provider = await troupe.start("semel.cli.demo.provider", str(PROVIDER_TAKES))
        await self._until((self._folder / PORT_FILE).exists, provider)
        screen.say(f"The payment provider is open. It takes {PROVIDER_TAKES:g} s for a charge.")
        each = str(REQUESTS // CUSTOMERS)
        customers = [await troupe.start("semel.cli.demo.customer", each, talks=True) for _ in range(CUSTOMERS)]
        for customer in customers:
            await self._hear(customer)
        screen.say(f"{CUSTOMERS} processes ask for the payment of {ORDER}, {each} times each, all at once.")
        for customer in customers:
            _tell(customer)
        admitted = sum([(await self._hear(customer))["admitted"] for customer in customers])
        self._asked = REQUESTS
        screen.say(f"{REQUESTS} requests under the key {KEY!r}: {admitted} admitted.")
        await self._crash(troupe)
        worker = await self._work(troupe, "A new worker starts; it waits until the dead one's lease is over.")
        for customer in customers:
            self._receipts += (await self._hear(customer))["receipts"]
            await customer.wait()
        screen.say(
            f"All {len(self._receipts)} callers hold a receipt: {', '.join(sorted(set(self._receipts)))}.", "green"
        )
        await troupe.end(worker)

    async def _crash(self, troupe: Troupe) -> None:
        """Kill a worker after the provider has written down its call and before it was answered."""
        worker = await self._work(troupe, "A worker starts.")
        await self._until(lambda: read_ledger(self._folder), worker)
        self._screen.say("The provider has charged the card and has not answered yet.", "yellow")
        worker.kill()
        code = await worker.wait()
        execution = await self._execution()
        if code == -9 and execution is not None and execution.status is Status.RUNNING:
            self._kills += 1
        self._screen.say(f"Worker {worker.pid} is killed with SIGKILL in the middle of the charge.", "bold red")
        self._screen.stands("worker", f"{worker.pid} killed (SIGKILL)", "bold red")

    async def _work(self, troupe: Troupe, told: str) -> Process:
        worker = await troupe.start(
            "semel", "worker", "semel.cli.demo.shop:app", "--lease", LEASE, "--log-level", "warning", "--tied"
        )
        self._screen.say(f"{told} (process {worker.pid})")
        self._screen.stands("worker", f"{worker.pid}, lease {LEASE}", "green")
        return worker

    async def _until(self, condition: Callable[[], Any], needed: Process) -> None:
        while not condition():
            if needed.returncode is not None:
                raise self._ended_early(needed)
            await asyncio.sleep(GLANCE)

    async def _hear(self, customer: Process) -> dict[str, Any]:
        line = b"" if customer.stdout is None else await customer.stdout.readline()
        if not line:
            raise self._ended_early(customer)
        heard: dict[str, Any] = json.loads(line)
        return heard

    def _ended_early(self, process: Process) -> Broken:
        log = self._folder / LOG
        last = (log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        return Broken(f"process {process.pid} ended early ({last}); see {log}")

    async def _execution(self) -> Execution | None:
        return next(iter((await self._app.explain(KEY)).executions), None)

    @asynccontextmanager
    async def _watching(self) -> AsyncIterator[None]:
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.wait([watch])

    async def _watch(self) -> None:
        """Keep the screen up to date with the database and the ledger."""
        tries, calls = 0, 0
        while True:
            ledger = read_ledger(self._folder)
            execution = await self._execution()
            charges = sum(entry.charged for entry in ledger)
            self._screen.stands("provider", f"calls {len(ledger)}, charges {charges}, {CENTS / 100:.2f} each")
            self._screen.stands("requests", f"{self._asked} under {KEY!r}")
            if execution is not None:
                doing = DOING.get(execution.status, execution.status.value)
                self._screen.stands("execution", f"{execution.id} {doing}, attempt {execution.attempt}")
                if execution.attempt > max(tries, 1) and execution.status is Status.RUNNING:
                    self._screen.say(
                        f"The lease is over: the new worker takes the payment, attempt {execution.attempt}."
                    )
                    tries = execution.attempt
            if len(ledger) > max(calls, 1):
                self._tell_of_call(ledger[-1], len(ledger))
            calls = len(ledger)
            await asyncio.sleep(GLANCE)

    def _tell_of_call(self, entry: Entry, calls: int) -> None:
        if entry.charged:
            self._screen.say(f"The provider is called again and charges AGAIN ({calls} calls).", "bold red")
        else:
            told = f"{entry.charge} stands, nothing is charged ({calls} calls)."
            self._screen.say(f"The provider is called again under the same effect key: {told}", "green")


def _tell(customer: Process) -> None:
    if customer.stdin is not None:
        customer.stdin.write(b"go\n")
