"""An app, its worker and SQLAlchemy on one SQLite file, a second process beside it, and kills: nothing is lost."""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import semel
from tests.faults import proofs

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
_numbers = itertools.count()


class Fleet:
    """Two processes of the program on one file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop.db"
        self.acks = folder / "acks"
        self._errors = folder / "errors"
        self._errors.touch()
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """One more."""
        arguments = [str(self.path), str(self.acks), f"p{next(_numbers)}"]
        with self._errors.open("ab") as errors:
            command = [sys.executable, "-m", "tests.faults.newcomer", *arguments]
            self._processes.append(subprocess.Popen(command, cwd=ROOT, stderr=errors))

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL, of one that must have been alive."""
        assert process.poll() is None, self._errors.read_text(encoding="utf-8")[-3000:]
        process.kill()
        process.wait()
        self._processes.remove(process)

    def replace_one(self, dice: random.Random) -> None:
        """Kill one of them and start another."""
        self.kill(dice.choice(self._processes))
        self.start()

    def wait_for(self, more: int) -> None:
        """Until so many more acknowledgements are there, of whichever process."""
        wanted, end = len(self.acknowledged()) + more, time.monotonic() + PATIENCE
        while len(self.acknowledged()) < wanted:
            assert time.monotonic() < end, self._errors.read_text(encoding="utf-8")[-3000:]
            for process in self._processes:
                assert process.poll() is None, self._errors.read_text(encoding="utf-8")[-3000:]
            time.sleep(0.05)

    def acknowledged(self) -> list[tuple[str, str]]:
        """(what, key) of everything that was acknowledged."""
        lines = self.acks.read_text(encoding="ascii").splitlines() if self.acks.exists() else []
        return [(what, key) for what, _, key in (line.partition(" ") for line in lines)]

    def end(self) -> None:
        """Kill them all."""
        for process in list(self._processes):
            self.kill(process)


@contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    made = Fleet(folder)
    try:
        made.start()
        made.start()
        yield made
    finally:
        for process in made._processes:
            process.kill()
            process.wait()


async def finish(path: Path, keys: list[str]) -> list[str]:
    """Run what is left; the keys whose task has not completed."""
    app = semel.App(f"sqlite:///{path}", config=None)

    @app.task
    async def ship(order: str) -> str:
        return order

    missing = []
    async with app, app.worker(lease="5s"):
        for key in keys:
            handle = await app.find(key)
            if handle is None or await handle.result(timeout=PATIENCE) != key:
                missing.append(key)
    return missing


def sell(folder: Path, go_on: Callable[[int], bool]) -> str:
    """Let both sell, kill and replace one of them again and again, then count."""
    dice = random.Random(11)
    with fleet(folder) as shop:
        for round_ in itertools.count():
            shop.wait_for(dice.randint(20, 60))
            if not go_on(round_):
                break
            shop.replace_one(dice)
        shop.end()
        acknowledged = shop.acknowledged()
    orders = [key for what, key in acknowledged if what == "order"]
    tasks = [key for what, key in acknowledged if what == "task"]
    with closing(sqlite3.connect(folder / "shop.db")) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        found = {row[0] for row in db.execute("select id from orders")}
    assert [key for key in orders if key not in found] == []
    assert asyncio.run(finish(folder / "shop.db", tasks)) == []
    return f"{len(orders)} orders and {len(tasks)} tasks acknowledged, none lost; {round_} kills"


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_what_was_acknowledged_is_there_after_kills(tmp_path: Path) -> None:
    sell(tmp_path, lambda round_: round_ < 2)


@pytest.mark.proof(long=True)
@pytest.mark.timeout(3600)
def test_what_was_acknowledged_is_there_after_minutes_of_kills(tmp_path: Path, tell: proofs.Tell) -> None:
    end = time.monotonic() + proofs.seconds(0.1)
    tell(sell(tmp_path, lambda _: time.monotonic() < end))
