"""`semel demo`: see it happen once."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from semel import App, ConfigError, EngineError, EngineUnavailable, Explanation, Handle, Status
from semel.cli.demo.claim import Claim, claim
from semel.cli.demo.ledger import LEDGER, Damaged, read_ledger
from semel.cli.demo.screen import Screen
from semel.cli.demo.shop import CENTS, DATABASE, KEY, ORDER, PORT_FILE, pay
from semel.cli.demo.shop import app as shop
from semel.cli.demo.story import Broken, Story
from semel.cli.demo.troupe import LOG
from semel.cli.exits import Exit, guarded
from semel.cli.verb import Debug

LOCK = "lock"
FILES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", LEDGER, PORT_FILE, f"{PORT_FILE}.new", LOG)


def demo(
    folder: Annotated[Path, typer.Option("--dir", help="Where the demo keeps its state.")] = Path(".semel-demo"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget the last one and start over.")] = False,
    debug: Debug = False,
) -> None:
    """See a payment happen once: 50 requests, a worker killed in the middle of the charge, one charge.

    Takes about 15 seconds and needs nothing. The last line is computed from the payment provider's ledger; if it is
    not true, the demo says so and exits with 1. Run it again: the payment is done, and nothing is charged.
    """

    def work() -> Exit:
        screen = Screen()
        with _alone(folder):
            if fresh:
                _forget(folder)
            try:
                return asyncio.run(_show(folder.resolve(), screen))
            except (Broken, EngineError, Damaged) as broken:
                screen.line(f"The demo could not go on: {broken}. Try: semel demo --fresh", "bold red")
                return Exit.FAILED

    guarded(work, debug)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("w")
    except OSError as error:
        raise ConfigError(f"the demo cannot keep its state in {folder}: {error}. Give another --dir.") from error
    with file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise EngineUnavailable(f"another demo runs in {folder}. Wait for it, or give another --dir.") from None
        yield


def _forget(folder: Path) -> None:
    for name in FILES:
        (folder / name).unlink(missing_ok=True)


async def _show(folder: Path, screen: Screen) -> Exit:
    async with _open(folder) as app:
        told = await app.explain(KEY)
        if _holds(told):
            return await _again(app, folder, screen)
    if told.executions or read_ledger(folder):
        screen.line("The last demo was interrupted, or is long ago; starting over.", "dim")
    _forget(folder)
    async with _open(folder) as app:
        screen.line(f"A payment of {CENTS / 100:.2f} for {ORDER}, which must happen once.", "bold")
        result = await Story(folder, app, screen).play()
        screen.line()
        screen.line((await app.explain(KEY)).text)
    screen.line()
    screen.line(f"The provider's ledger ({folder / LEDGER}): {result.calls} calls, {result.charges} charge(s).")
    return _verdict(screen, result)


def _holds(told: Explanation) -> bool:
    """Is there a payment that is done, and still known?"""
    for execution in told.executions[:1]:
        ends = execution.window_ends_at
        done = execution.status is Status.COMPLETED and not execution.expired
        return done and ends is not None and told.asked_at < ends
    return False


def _open(folder: Path) -> App:
    app = App(f"sqlite:///{folder / DATABASE}", namespace=shop.settings.namespace, config=None)
    app.tasks.add(pay)
    return app


async def _again(app: App, folder: Path, screen: Screen) -> Exit:
    """Ask once more for a payment that is done: its result comes back, and the ledger stays as it was."""
    before = read_ledger(folder)
    handle: Handle[object] = await app.enqueue(pay.call(ORDER, CENTS), task_id=KEY)
    execution = await handle.describe()
    screen.line(f"The payment is already done, as execution {handle.id}:", "green")
    screen.line(f"  {await handle.result(timeout=0)}")
    told = await app.explain(KEY)
    screen.line()
    screen.line(told.text)
    screen.line()
    ledger = read_ledger(folder)
    new = len(ledger) - len(before)
    screen.line(
        f"Asked once more: {'a duplicate' if handle.duplicate else 'NOT a duplicate'}, {new} new calls of the provider."
    )
    code = _verdict(screen, claim(ledger, told, kills=execution.attempt - 1))
    screen.line("  next: semel demo --fresh", "dim")
    return code if handle.duplicate and new == 0 else Exit.FAILED


def _verdict(screen: Screen, result: Claim) -> Exit:
    if result.doubts:
        screen.line(f"NOT once: {'; '.join(result.doubts)}.", "bold red")
        return Exit.FAILED
    screen.line(str(result), "bold green")
    return Exit.OK
