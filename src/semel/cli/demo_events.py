"""`semel demo events`: one payment, delivered five times by three processes, one of which is killed; one run."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from semel import App, NotFound, Run, Status
from semel.cli.command import Exit
from semel.cli.demo_processes import DemoFailed, DemoProcesses
from semel.cli.events import print_page
from semel.cli.output import Output, console
from semel.contract.events import EventRun
from semel.events import EventPage

if TYPE_CHECKING:
    from semel import EventEnvelope

DATABASE: Final = "payments.db"
DELIVERIES: Final = 5
"""One by the process that is killed, and the others by two processes at once."""
PROCESSES: Final = 3
LONGEST: Final = 60.0
CLOUD_EVENT: Final = {
    "specversion": "1.0",
    "id": "evt_abc123",
    "source": "/payments",
    "type": "payment.succeeded",
    "data": {"order": "order-456", "cents": 9900},
}


def open_app(folder: Path) -> App:
    """The app that the demo's processes share, by its database."""
    return App(f"sqlite:///{folder / DATABASE}", namespace="demo", config=None)


def read_event() -> EventEnvelope:
    """The event as every delivery brings it."""
    from semel import EventEnvelope  # Pydantic takes a while: only where events are

    return EventEnvelope.from_cloudevent(dict(CLOUD_EVENT))


@dataclass(frozen=True)
class Deliveries:
    """What is on record after the last delivery, and what the processes saw."""

    page: EventPage
    runs: Sequence[tuple[EventRun, Status | None]]
    ran: Sequence[str]
    """The keys under which the activity's function was called."""
    answered: Mapping[int, Sequence[bool]]
    """By process id, for each delivery that was answered, whether it was a duplicate."""
    killed: int
    """Processes that died after they had committed the event and before they could acknowledge it."""

    @property
    def doubts(self) -> list[str]:
        """Why it is not true that the event ran once; empty when it is true."""
        doubts = []
        delivered = self.page.info.duplicates + 1
        if len(self.ran) != 1:
            doubts.append(f"the function ran {len(self.ran)} times")
        if [status for _, status in self.runs] != [Status.COMPLETED]:
            doubts.append(f"{len(self.runs)} runs are on record, not one that completed")
        elif {run.key for run, _ in self.runs} != set(self.ran) and self.ran:
            doubts.append(f"{self.runs[0][0].key} is on record, and {self.ran[0]} ran")
        if self.killed != 1:
            doubts.append(f"{self.killed} processes were killed after their commit, not one")
        answers = [duplicate for by_process in self.answered.values() for duplicate in by_process]
        if answers != [True] * (DELIVERIES - 1):
            new = len(answers) - sum(answers)
            doubts.append(f"{len(answers)} deliveries were answered, {new} of them as new")
        if delivered != DELIVERIES or delivered != len(answers) + self.killed:
            doubts.append(f"{delivered} of {DELIVERIES} deliveries are on record")
        return doubts

    def sum_up(self) -> str:
        """The last line, counted from what ran and what is on record."""
        duplicates = self.page.info.duplicates
        return (
            f"once: {duplicates + 1} deliveries by {len(self.answered) + self.killed} processes, "
            f"{self.killed} of them killed; "
            f"{duplicates} duplicates, {len(self.ran)} run"
        )


@dataclass
class Delivering:
    """One play of the demo, in a folder of its own."""

    folder: Path
    ran: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    async def play(self) -> Deliveries:
        """From the first delivery to the end of the run."""
        async with open_app(self.folder) as app, DemoProcesses(self.folder) as processes:
            await self._declare(app)
            killed = await self._deliver_and_die(app, processes)
            answered = await self._deliver_again(processes)
            async with app.worker():
                await self._finish(app)
            page = await app.events.get(read_event().event_id)
            runs = [(run, await (await app.get(run.execution)).status()) for run in page.runs]
            return Deliveries(page, runs, self.ran, answered, killed)

    async def _declare(self, app: App) -> None:
        @app.on_event("payment.*", source="/payments")
        @app.task(retry=1)
        async def ship(run: Run) -> None:
            self.ran.append(run.key)

        @app.on_event("refund.*")
        @app.task(retry=1)
        async def restock(run: Run) -> None:
            self.ran.append(run.key)

        await app.apply()

    async def _deliver_and_die(self, app: App, processes: DemoProcesses) -> int:
        """Kill a process that has published the event and has not acknowledged it. How many died like that."""
        process = await processes.start_function("demo_events", "run_receiver", False, talks=True)
        await processes.read(process)
        self._say(f"The payment provider delivers {CLOUD_EVENT['id']} to process {process.pid}.")
        _tell(process, 1)

        async def on_record() -> bool:
            try:
                return bool(await app.events.get(read_event().event_id))
            except NotFound:
                return False

        await processes.until(on_record, process)
        self._say("The event and its run are committed; the provider has no answer yet.", "yellow")
        process.kill()
        code = await process.wait()
        self._say(f"Process {process.pid} is killed with SIGKILL (kill -9) before it answers.", "bold red")
        return int(code == -signal.SIGKILL)

    async def _deliver_again(self, processes: DemoProcesses) -> dict[int, list[bool]]:
        """Deliver the event by the other processes at once. Their answers, by process id."""
        others = [
            await processes.start_function("demo_events", "run_receiver", True, talks=True)
            for _ in range(PROCESSES - 1)
        ]
        for process in others:
            await processes.read(process)
        each = (DELIVERIES - 1) // len(others)
        self._say(
            f"The provider delivers it again, {each} times to each of {len(others)} other processes, all at once."
        )
        for process in others:
            _tell(process, each)
        answered = {}
        for process in others:
            answered[process.pid] = (await processes.read(process))["duplicates"]
            await process.wait()  # it writes its counts of duplicates before it ends
        answers = [duplicate for by_process in answered.values() for duplicate in by_process]
        self._say(f"{len(answers)} deliveries are answered: {sum(answers)} of them were duplicates.", "green")
        return answered

    async def _finish(self, app: App) -> None:
        """Wait until the runs that are on record have ended."""
        for run in (await app.events.get(read_event().event_id)).runs:
            await (await app.get(run.execution)).result(LONGEST)
            self._say(f"A worker starts, and {run.key} runs.", "green")

    def _say(self, text: str, style: str = "") -> None:
        console().print(Text(f"{time.monotonic() - self.began:5.1f} s  ", "dim") + Text(text, style), soft_wrap=True)


def _tell(process: Process, times: int) -> None:
    if process.stdin is not None:
        process.stdin.write(f"{times}\n".encode())


def play_events() -> Exit:
    """Play the demo and say what came of it; FAILED if its last line is not true."""
    logging.getLogger("semel").addHandler(logging.NullHandler())
    _line(f"One payment, delivered {DELIVERIES} times by {PROCESSES} processes, one of which is killed.", "bold")
    with tempfile.TemporaryDirectory(prefix="semel-demo-") as folder:
        try:
            found = asyncio.run(_within(Delivering(Path(folder))))
        except (DemoFailed, TimeoutError) as error:
            _line(f"The demo cannot continue: {str(error) or f'it did not end within {LONGEST:g} s'}.", "bold red")
            return Exit.FAILED
        _line()
        _line(f"$ semel events show {found.page.info.event_id}", "bold")
        print_page(Output(as_json=False, settings=open_app(Path(folder)).settings), found.page, found.runs)
    _line()
    if found.doubts:
        _line(f"NOT once: {'; '.join(found.doubts)}.", "bold red")
        return Exit.FAILED
    _line(found.sum_up(), "bold green")
    return Exit.OK


def _line(text: str = "", style: str = "") -> None:
    console().print(Text(text, style), soft_wrap=True)


async def _within(delivering: Delivering) -> Deliveries:
    async with asyncio.timeout(LONGEST):
        return await delivering.play()


def run_receiver(answers: bool) -> None:
    """Publish the event as often as a line on stdin says, all at once; then answer, or wait until it is killed."""
    asyncio.run(_receive(answers))


async def _receive(answers: bool) -> None:
    async with open_app(Path.cwd()) as app:  # leaving writes the counts of duplicates
        await app.events.subscriptions()  # open the database before the others begin
        _report(ready=True)
        times = await asyncio.to_thread(sys.stdin.readline)
        published = await asyncio.gather(*(app.publish(read_event()) for _ in range(int(times or 0))))
        if not answers:  # it is killed here, or ends with the demo
            await asyncio.to_thread(sys.stdin.read)
        _report(duplicates=[one.duplicate for one in published])


def _report(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()
