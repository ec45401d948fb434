"""A database of an earlier release goes on with the tree of today, and everything in it ends as it should, once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import semel
from tests.stored import shop
from tests.stored.kept import RestoredWorld
from tests.stored.story import BOX, found, has_asked
from tests.world import ended, eventually, waits

EFFECTS = [
    "pick o-1", "call o-1", "note tomorrow", "note without a key, later",
    "sort last", "sort first", "sort without a key", "sort group",
    "bill a1", "bill b1", "bill a2", "bill b2", "weigh parcel", "measure 2",
    "ship sleeps", "ship waits", "apologise o-1", "sign", "wrap", "write a card", "write a label", "print a label",
    "add 20 to busy", "add 30 to busy", "drop one", "drop two",
]  # fmt: skip
"""All that is left to do, each of them once. What was done before the recording is not done again."""


async def result(app: semel.App, key: str, kind: str = "task") -> Any:
    return await (await found(app, key, kind)).result(timeout="60s")


async def signal(app: semel.App, key: str, name: str, payload: Any = None, dedup_key: str | None = None) -> None:
    await (await found(app, key, "workflow")).signal(name, payload, dedup_key=dedup_key)


async def test_everything_goes_on(world: RestoredWorld) -> None:
    app = world.program()
    running = await (await found(app, "pick:o-1")).describe()
    assert (running.status, running.attempt, running.worker) == ("running", 1, "recorder:1")
    async with world.worker(app):
        await world.advance("3h")
        await check_tasks(app)
        await check_workflows(app)
        await check_entities(app)
        await world.advance("26h")
        await check_sleepers(app, world)
        await world.advance("1d")
        await eventually(lambda: "note without a key, later" in shop.RAN)
        await world.advance("2d")
        assert await result(app, "crowd", "workflow") == [
            ["note one", "two"], ["note group 0", "note group 1", "sort group"], True,
        ]  # fmt: skip
        left = [e for status in ("pending", "running", "waiting") for e in await app.list(status=status, limit=1000)]
        assert sorted(e.key or e.name for e in left) == [
            "Account/busy", "Account/rest", "Mailbox/box", "parcel:left",
        ], "what was not told to end lives on"  # fmt: skip
    assert Counter(shop.RAN) == Counter(EFFECTS)


async def check_tasks(app: semel.App) -> None:
    """The claimed one after its worker's death, the retried one, those of another queue with its limits."""
    assert await result(app, "pick:o-1") == "picked o-1"
    assert (await (await found(app, "pick:o-1")).describe()).attempt == 2
    assert await result(app, "call:o-1") == 2
    assert await result(app, "sort:first") == "sort first"
    assert await result(app, "sort:last") == "sort last"
    assert await result(app, "weigh:parcel") == "weigh parcel"
    assert await result(app, "measure:later") == [BOX, BOX]
    sorted_ = [what for what in shop.RAN if what.startswith("sort")]
    assert sorted_[0] == "sort first", "the higher priority is first"
    for customer in "ab":
        await eventually(lambda customer=customer: f"bill {customer}2" in shop.RAN)
        assert shop.RAN.index(f"bill {customer}1") < shop.RAN.index(f"bill {customer}2")


async def check_workflows(app: semel.App) -> None:
    """Those that wait for a signal, in every state that a workflow can be in."""
    waiting = await found(app, "process:waits", "workflow")
    dice = await waiting.published("dice")
    await waiting.signal("approved", False)
    assert await waiting.result(timeout="60s") == {
        "did": ["pack waits", 900, "note of waits", "ship waits"], "approved": False, "dice": dice,
    }  # fmt: skip
    assert await waiting.attributes() == {"order": "waits"}
    await signal(app, "parcel:awaited", "moved", "home")
    assert await result(app, "family", "workflow") == ["ValueError and a conflict", "awaited is home"]
    await signal(app, "rounds", "add", 1, "add:1")  # came before the recording: counts once
    await signal(app, "rounds", "add", 6, "add:6")
    assert await result(app, "rounds", "workflow") == 12
    await signal(app, "warranty:waits", "broken", "in two")
    assert await result(app, "warranty:waits", "workflow") == "in two"
    await signal(app, "draft", "said", "two")
    assert await result(app, "draft", "workflow") == ["one", "two"]
    for key, wanted in (("gift:before", ["write a card"]), ("gift:new", ["wrap", "write a card"])):
        await signal(app, key, "sent", "off")
        assert await result(app, key, "workflow") == [*wanted, "off"]
    for key, wanted in (("label:before", "write a label"), ("label:new", "print a label")):
        await signal(app, key, "print", "a label")
        assert await result(app, key, "workflow") == wanted
    assert await result(app, "inspect", "workflow") == "sign", "parked, with the signal that came before"
    assert await ended(await found(app, "saga:o-1", "workflow")) == "cancelled"
    assert shop.RAN.count("apologise o-1") == 1


async def check_entities(app: semel.App) -> None:
    """A message that was under way, those behind it, and those that nobody had read."""
    busy = app.entity(shop.Account, "busy")
    assert await busy.ask("audit", dedup_key="a1", timeout="60s") == [10, 11]
    assert await busy.ask("add", 20, dedup_key="b2", timeout="60s") == 31
    assert await busy.query("balance") == {"cents": 61, "lines": ["", "", ""]}
    box = app.entity(shop.Mailbox, "box")
    assert await box.ask("drop", "one", dedup_key="m1", timeout="60s") == 1
    await eventually(lambda: "drop two" in shop.RAN)
    await eventually(lambda: state_is(box, ["one", "two"]))


async def state_is(box: Any, letters: list[str]) -> bool:
    return bool((await box.state()).letters == letters)


async def check_sleepers(app: semel.App, world: RestoredWorld) -> None:
    """Timers, delays and a transaction that comes after one."""
    assert await result(app, "note:tomorrow") == "note tomorrow"
    sleeper = await waits(await found(app, "process:sleeps", "workflow"), "approved")
    dice = await sleeper.published("dice")
    await sleeper.signal("approved", True)
    assert await sleeper.result(timeout="60s") == {
        "did": ["pack sleeps", 900, "note of sleeps", "ship sleeps"], "approved": True, "dice": dice,
    }  # fmt: skip
    assert await result(app, "transfer:acme", "workflow") == [30, 42]
    rows = await world.sql("select account, cents from stored_ledger order by cents")
    assert rows == [("acme", 12), ("acme", 30)], "each transaction counts once"
    later = await found(app, "gift:later", "workflow")
    await eventually(lambda: has_asked(later, "sent", 1))
    await later.signal("sent", "at last")
    assert await later.result(timeout="60s") == ["wrap", "write a card", "at last"]


@pytest.mark.slow
async def test_an_idle_time_that_was_written_down_comes(world: RestoredWorld) -> None:
    app = world.program()
    rest = app.entity(shop.Account, "rest")
    async with world.worker(app):
        await world.advance("89d")
        assert await rest.query("balance") == {"cents": 101, "lines": ["salary", ""]}
        await world.advance("2d")
        await eventually(lambda: "lapse rest" in shop.RAN)
        assert await rest.ask("add", 1, timeout="60s") == 1
    assert shop.RAN.count("lapse rest") == 1
