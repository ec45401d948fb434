"""Break relaying, cleaning and redriving at every statement; another relay goes on. Nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from semel.testing.faults import Fault, Mode
from semel.transactional.outbox.events import TakenRow
from semel.transactional.outbox.relay import Relay
from tests.conftest import new_world
from tests.outbox.conftest import new_place
from tests.outbox.crashes import break_at, check_everything, clean_up, redrive_everything, relay_everything, write_rows
from tests.outbox.places import Place
from tests.outbox.shop import OutboxShop
from tests.world import World

pytestmark = pytest.mark.proof
Say = Callable[[str], None]
MOST = 200


async def empty(world: World, place: Place) -> None:
    """As at first: a new database for each point would take most of the time."""
    await place.sql("delete from outbox_events")
    await place.sql("delete from outbox_destinations")
    await place.sql("delete from orders")
    for table in ("ready", "later", "slip", "duplicate", "execution"):
        await world.sql(f"delete from semel_{table}")


@pytest.mark.parametrize("what", ["relay", "two relays", "clean", "redrive"])
@pytest.mark.parametrize("mode", [Mode.BEFORE, Mode.ERROR])
async def test_a_statement_that_fails_or_whose_reply_is_lost(
    world: World, place: Place, mode: Mode, what: str, tell: Say
) -> None:
    for at in range(1, MOST):
        await empty(world, place)
        shop = OutboxShop(world, place)
        await write_rows(shop)
        if what in ("clean", "redrive"):
            await shop.relay_all()
        other = OutboxShop(world, place)
        async with shop.relay(batch=2, retention=0.0 if what == "clean" else 3600.0) as relay:
            fault = Fault(at, mode)
            if what == "two relays":
                relay_beside(relay, other)
            await break_at(shop, relay, fault)
            work = {"clean": clean_up, "redrive": redrive_everything}.get(what, relay_everything)
            await work(relay)
            relay._database.tap = None
        await shop.app.close()
        await other.app.close()
        if what != "clean" or await place.statuses():
            await check_everything(OutboxShop(world, place))
        if fault.fired is None:
            tell(f"outbox, {what}, {mode.value}: {at - 1} points")
            return
    raise AssertionError("it never came to its end")


def relay_beside(relay: Relay, other: OutboxShop) -> None:
    """Have another relay take all that it can, between what the first one has taken and its marks."""
    carry_out, begun = relay._dispatcher.carry_out, False

    async def carry_out_late(row: TakenRow) -> str | None:
        nonlocal begun
        if not begun:
            begun = True
            await other.relay_all()
        return await carry_out(row)

    relay._dispatcher.carry_out = carry_out_late  # type: ignore[method-assign]


def run(kind: str, place: Place, world: World, what: str, at: int) -> int:
    command = [sys.executable, "-m", "tests.outbox.doomed_relay", kind, place.url, world.url, what, str(at)]
    return subprocess.run(command, timeout=120, check=False).returncode


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_a_process_that_is_killed(kind: str, tmp_path: Path, request: pytest.FixtureRequest, tell: Say) -> None:
    place, world = new_place(kind, tmp_path, request), new_world("sqlite", tmp_path, request)

    async def prepare() -> None:
        await empty(world, place)
        await write_rows(OutboxShop(world, place))
        await world.close()

    async def check() -> None:
        await check_everything(OutboxShop(world, place))
        await world.close()

    for at in range(1, MOST):
        asyncio.run(prepare())
        code = run(kind, place, world, "relay", at)
        asyncio.run(check())
        if code != -signal.SIGKILL:
            assert code == 0
            tell(f"outbox on {kind}, killed: {at - 1} points")
            break
    else:
        raise AssertionError("it never came to its end")


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_a_writer_that_is_killed(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Before its commit neither the row nor the start is there, after it both."""
    place, world = new_place(kind, tmp_path, request), new_world("sqlite", tmp_path, request)
    for at in (1, 2, 3):
        assert run(kind, place, world, "write", at) == -signal.SIGKILL
        rows = asyncio.run(place.sql("select id from orders"))
        assert len(asyncio.run(place.statuses())) == len(rows) == (1 if at == 3 else 0), at
