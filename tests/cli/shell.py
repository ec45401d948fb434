"""What a person at a shell does: commands in this process where that is enough, real processes where it is not."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer.main
import typer.testing
from typer.testing import CliRunner

from semel.cli import cli
from tests.world import World, eventually

_numbers = itertools.count(1)

# For each call typer's runner builds all commands, which takes longer than most of them do.
typer.testing._get_command = functools.cache(typer.main.get_command)  # type: ignore[attr-defined]

SHOP = """
import asyncio, os, time
import semel
app = semel.App({url!r}, config=None)

@app.task(queue="payments")
async def charge(order: str, cents: int = 100) -> dict[str, object]:
    return {{"order": order, "cents": cents}}

@app.task(retry=1)
def boom(message: str = "no") -> None:
    raise ValueError(message)

@app.task
async def nap(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"

@app.task
async def doze(until: str) -> str:
    open(until + ".begun", "w").close()
    while not os.path.exists(until):
        await asyncio.sleep(0.01)
    return "rested"

@app.task
def hang(seconds: float) -> str:
    time.sleep(seconds)
    return "returned"

@app.task(retry=1)
def die() -> None:
    os._exit(9)
"""


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


def semel(*arguments: str, typed: str | None = None) -> Answer:
    """Run a command in this process."""
    result = CliRunner().invoke(cli, list(arguments), input=typed)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


async def at_shell(*arguments: str) -> Answer:
    """The same from a test that has an event loop of its own."""
    return await asyncio.to_thread(semel, *arguments)


def process(*arguments: str, cwd: Path, **more: Any) -> subprocess.Popen[str]:
    """A real process; stderr is a pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", "semel", *arguments], cwd=cwd, text=True, stderr=subprocess.PIPE,
        stdout=subprocess.PIPE, **more,
    )  # fmt: skip


def shop(world: World, folder: Path) -> str:
    """A module with an App on the world's database; its name, new for each test since modules are cached."""
    name = f"shop_{os.getpid()}_{next(_numbers)}"
    (folder / f"{name}.py").write_text(SHOP.format(url=world.url))
    return name


@contextmanager
def worker(folder: Path, target: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A worker process that is ready."""
    running = process("worker", target, *options, cwd=folder)
    try:
        await_line(running, "ready")
        yield running
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()


def await_line(running: subprocess.Popen[str], text: str) -> str:
    """Read stderr until a line has this text."""
    assert running.stderr is not None
    for line in running.stderr:
        if text in line:
            return line
    raise AssertionError(f"the process ended ({running.wait()}) before it said {text!r}")


def ask_to_stop(running: subprocess.Popen[str]) -> None:
    running.send_signal(signal.SIGTERM)


async def until_status(app: Any, id: str, status: str) -> None:
    """Wait until an execution stands so."""

    async def stands() -> bool:
        return bool(await (await app.get(id)).status() == status)

    await eventually(stands)
