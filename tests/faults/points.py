"""One point: an operation broken at its n-th statement in a process of its own, then finished by another one."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from semel.engines.journal import flows, worker
from semel.errors import EngineUnavailable
from semel.runtime import retries
from semel.testing import Fault, Mode
from tests.faults.backfill_invariants import backfill_faults
from tests.faults.event_invariants import event_faults
from tests.faults.flow_invariants import flaws, recorded
from tests.faults.forks import Forks, Say
from tests.faults.invariants import broken, remains
from tests.faults.schedule_invariants import schedule_faults
from tests.faults.site import Site
from tests.faults.sweeper_operations import OPERATIONS

DAY = 86400.0
MOST_STATEMENTS = 1_000


async def act(say: Say, *, site: dict[str, Any], operation: str, at: int, mode: str) -> None:
    """In the first process: prepare, then act with a fault at one statement."""
    _hurry()
    here, op = Site(**site), OPERATIONS[operation]
    await here.keep_connection()
    await (here.raze() if op.bare else here.reset())
    shop = op.shop(here, auto_migrate=op.bare)
    memo = await op.prepare(shop)
    say({"memo": memo, "skew": here.skew})
    shop.store.tap = fault = Fault(at, Mode(mode))
    try:
        say({"ack": await op.act(shop, memo)})
    except EngineUnavailable:
        say({"refused": fault.fired})
    say({"fired": fault.fired, "count": len(fault.statements)})


async def finish(
    say: Say, *, site: dict[str, Any], operation: str, memo: dict[str, Any], most: int, keys: list[str]
) -> None:
    """In a clean process: the caller repeats itself, a worker does what is left, then everything is looked at."""
    here, op = Site(**site), OPERATIONS[operation]
    await here.keep_connection()
    shop = op.shop(here, auto_migrate=op.bare)
    if op.bare:
        await shop.engine.open()
        await here.watch()
    done = await recorded(here)
    await here.advance(DAY)
    if op.client:
        await op.act(shop, memo)
        await here.advance(DAY)
    for at in range(3):
        await shop.app.enqueue(shop.squeezed, f"after-{at}", task_id=f"after-{at}")
        await shop.app.enqueue(shop.in_turn, "c-1", f"after-{at}", task_id=f"after-turn-{at}")
    await shop.conclude()
    wrong = await broken(here, most=most, keys=keys) + await flaws(here, shop, memo, done)
    wrong += await schedule_faults(here.sql, memo.get("slots", {}))
    wrong += await event_faults(here.sql, memo.get("events", {}))
    wrong += await backfill_faults(here.sql, memo)
    await here.advance(40 * DAY)
    await shop.app.clean()
    await shop.app.clean()
    say(wrong + await remains(here))
    await shop.app.close()


def _hurry() -> None:
    """Do not wait long between tries: the fault happens once."""
    retries.pause = lambda attempt, most=5.0: 0.001  # type: ignore[assignment]
    worker.pause = lambda attempt, most=5.0: 0.001  # type: ignore[assignment]
    flows.pause = lambda attempt, most=5.0: 0.001  # type: ignore[assignment]


@dataclass
class MessageCounts:
    """The points that were hit, and what went wrong at them."""

    points: Counter[str] = field(default_factory=Counter)
    statements: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def report(self, title: str, thinned: Collection[str] = ()) -> str:
        """A table; `thinned` are the operations of which some statements were left out."""
        whole = len(self.points.keys() - set(thinned))
        title += f": {self.points.total()} points, {len(self.wrong)} broken"
        lines = [f"{title}; {whole} of {len(self.points)} operations at every statement"]
        for name, count in sorted(self.points.items()):
            lines.append(f"  {count:5}  {name}{', thinned for time' if name in thinned else ''}")
        return "\n".join(lines)


def is_long(operation: str) -> bool:
    """Whether an operation has very many statements: a life, made of operations with sweeps of their own, or tables."""
    return operation.startswith("life") or OPERATIONS[operation].bare


def in_order(operations: Iterable[str]) -> list[str]:
    """Short ones first, lives last: what one does not need of its share of the time, those that follow have more."""
    return sorted(operations, key=lambda name: (is_long(name), not OPERATIONS[name].bare))


def step_of(operation: str, until: float) -> int:
    """How far to go to the next statement that is broken: one while there is time, then more, other ones each run."""
    if time.monotonic() < until:
        return 1
    return random.randint(9, 25) if is_long(operation) else random.randint(2, 5)


def strike(server: Forks, site: Site, operation: str, at: int, mode: Mode, tally: MessageCounts) -> bool:
    """One point. False when the operation ended before the fault could happen."""
    code, said = server.run("tests.faults.points:act", site=site.plain(), operation=operation, at=at, mode=mode.value)
    told: dict[str, Any] = {}
    for one in said:
        told.update(one)
    where = f"{site.engine} {operation} at statement {at} ({told.get('fired')}), {mode.value}"
    if "failed" in told or (code != 0 and (mode is not Mode.KILL or code != -9)):
        tally.wrong.append(f"{where}: exit {code}: {told.get('failed')}")
        return at < 3
    killed = code == -9
    if not killed and told["fired"] is None:
        return False
    tally.points[operation] += 1
    op = OPERATIONS[operation]
    keys = sorted({*told["memo"].get("keys", []), *_acknowledged(told.get("ack"))})
    most = op.most(killed, told["memo"].get("crashes", 0))
    left = site.plain() | {"skew": told["skew"]}
    code, said = server.run(
        "tests.faults.points:finish", site=left, operation=operation, memo=told["memo"], most=most, keys=keys
    )
    if code != 0:
        tally.wrong.append(f"{where}: the clean process ended with {code}: {said}")
    elif said[-1]:
        tally.wrong.append(f"{where}: {said[-1]}")
    return True


def _acknowledged(ack: Any) -> list[str]:
    return [key for key in ack.get("keys", []) if key] if isinstance(ack, dict) else []


async def rebuild(say: Say, *, site: dict[str, Any]) -> None:
    """Tables as they were, after operations that began without."""
    here = Site(**site)
    await here.raze()
    await here.build()


def sweep(
    server: Forks,
    site: Site,
    operation: str,
    modes: list[Mode],
    tally: MessageCounts,
    step: Callable[[], int] = lambda: 1,
) -> None:
    """Raise n until the operation ends clean, in every mode; `step` says by how much."""
    for mode in modes:
        at = 1
        while at < MOST_STATEMENTS and strike(server, site, operation, at, mode, tally):
            at += step()
        if at >= MOST_STATEMENTS:
            tally.wrong.append(f"{site.engine} {operation}: no end after {MOST_STATEMENTS} statements")
    if OPERATIONS[operation].bare:
        server.run("tests.faults.points:rebuild", site=site.plain())
