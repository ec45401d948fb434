"""`semel workflows` and `semel replay`: look at workflows, act on them, try their histories against other code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import semel as library
from tests.cli.shell import Answer, at_shell, semel
from tests.world import World, ended, eventually

pytestmark = pytest.mark.slow
ORDERS = """
import asyncio
import semel
app = semel.App({url!r}, config=None)

@app.task
async def charge(order: str) -> dict[str, str]:
    return {{"paid": order}}

def ship(order: str) -> str:
    if {broken}:
        raise ValueError("no stamps")
    return "sent " + order

@app.workflow
async def greet(ctx: semel.Context, name: str) -> str:
    return "hello " + name

@app.workflow
async def order(ctx: semel.Context, order_id: str) -> str:
    ctx.search_attributes["region"] = "eu"
    {change}
    paid, _ = await asyncio.gather(
        ctx.execute_task(charge, order_id, task_id="pay-" + order_id),
        ctx.execute_workflow(greet, order_id, workflow_id="greet-" + order_id),
    )
    said = await ctx.wait_signal("approved", timeout="2d")
    sent = await ctx.step(ship, order_id)
    return f"{{paid['paid']}} {{said}} {{sent}}"
"""


class Shop:
    """Workflows of one module, in several states of its code."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self.apps: list[library.App] = []

    def code(self, name: str, *, broken: bool = False, change: str = "", rename: str = "order") -> library.App:
        text = ORDERS.format(url=self.world.url, broken=broken, change=change)
        text = text.replace("async def order(", f"async def {rename}(")
        name = f"{name}_{abs(hash(str(self.folder)))}"
        (self.folder / f"{name}.py").write_text(text)
        self.target = f"{name}:app"
        from semel.cli.command import load_app

        app = load_app(self.target)
        self.apps.append(app)
        return app

    async def say(self, *arguments: str) -> Answer:
        return await at_shell(*arguments, "--url", self.world.url)

    async def close(self) -> None:
        for app in self.apps:
            await app.close()

    async def start(self, app: library.App, id: str) -> library.Handle[Any]:
        """An order that waits for its approval."""
        flow = app.tasks.workflow("order")
        handle = await app.start_workflow(flow, id, workflow_id=f"order-{id}")

        async def waits() -> bool:
            return any(event.name == "approved" for event in await handle.history())

        await eventually(waits)
        return handle


@pytest.fixture
def shop(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.chdir(tmp_path)
    return Shop(world, tmp_path)


async def test_list_show_and_graph(shop: Shop) -> None:
    app = shop.code("looks")
    async with app.worker():
        handle = await shop.start(app, "1")
        await eventually(lambda: _stands(handle, "waiting"))
    told = await shop.say("workflows", "list")
    assert [word in told.out for word in ("order-1", "greet-1", "waiting", "completed")] == [True] * 4
    assert "pay-1" not in told.out, "only workflows"
    data = (await shop.say("workflows", "list", "--name", "order", "--json")).data
    assert [e["key"] for e in data] == ["order-1"]
    assert (await shop.say("workflows", "list", "--status", "failed", "--json")).data == []
    for value, keys in (("eu", ["order-1"]), ("us", [])):
        data = (await shop.say("workflows", "list", "--attribute", f"region={value}", "--json")).data
        assert [e["key"] for e in data] == keys
    assert (await shop.say("workflows", "list", "--attribute", "region")).code == 2
    page = ("workflows", "list", "--limit", "1", "--json")
    first = (await shop.say(*page)).data[0]["id"]
    assert len((await shop.say(*page, "--before", first)).data) == 1

    told = await shop.say("workflows", "show", "order-1")
    assert told.code == 0
    for word in ("region=eu", "asked task", "charge", "pay-1", 'completed: {"paid": "1"}', "resolved workflow"):
        assert word in told.out, word
    assert "It waits for:" in told.out
    assert "signal approved, since" in told.out
    data = (await shop.say("workflows", "show", handle.id[:-2], "--json")).data
    assert [(c["kind"], c["name"]) for c in data["open"]] == [("timer", ""), ("signal", "approved")]
    assert (data["events"][0]["what"], data["attributes"], data["parked"]) == ("began", {"region": "eu"}, False)

    told = await shop.say("workflows", "graph", "order-1")
    assert told.out.startswith("flowchart TD\n")
    assert 'c2["#35;2 task charge (pay-1): completed"]' in told.out
    assert 'c3[["#35;3 workflow greet (greet-1): completed"]]' in told.out
    assert [edge in told.out for edge in ("flow --> c2", "flow --> c3", "c2 --> c5", "c3 --> c5")] == [True] * 4
    told = await shop.say("workflows", "graph", "order-1", "--format", "text")
    assert "└─ #5 signal approved: open  (after #2, #3)" in told.out
    assert len((await shop.say("workflows", "graph", "order-1", "--json")).data["commands"]) == 4
    await shop.close()


async def _stands(handle: library.Handle[Any], status: str) -> bool:
    return await handle.status() == status


async def test_signal_cancel_and_terminate(shop: Shop) -> None:
    app = shop.code("acts")
    async with app.worker():
        first, second, third = [await shop.start(app, id) for id in ("1", "2", "3")]
        for _ in range(2):
            told = await shop.say("workflows", "signal", "order-1", "approved", '{"by": "ada"}', "--dedup-key", "a")
            if told.code == 4:  # it has ended by now
                break
        assert await first.result(timeout="60s") == "1 {'by': 'ada'} sent 1"
        assert (await shop.say("workflows", "cancel", "order-2")).code == 0
        assert await ended(second) == "cancelled"
        data = (await shop.say("workflows", "terminate", "order-3", "--why", "the shop is closed", "--json")).data
        assert (data["status"], data["cancelled"]) == ("cancelled", True)
        error = (await third.describe()).error
        assert error is not None
        assert error.message == "the shop is closed"
    for code, text, arguments in (
        (4, "WorkflowEnded", ("signal", "order-1", "approved")),
        (2, "is not JSON", ("signal", "order-1", "approved", "yes")),
        (4, "", ("cancel", "order-1")),
        (4, "", ("terminate", "order-1")),
        (4, "", ("cancel", "order-2")),
        (4, "", ("terminate", "order-2")),
        (4, "asked for nothing of the name '²'", ("reset", "order-1", "--to", "²")),
        (3, "no workflow or entity is called 'nothing'", ("show", "nothing")),
        (3, "See: semel workflows list", ("signal", "nothing", "x")),
        (4, "There are: charge, greet, approved, ship", ("reset", "order-1", "--to", "nothing")),
        (4, "has the rows 1 to", ("reset", "order-1", "--to", "row:99")),
    ):
        told = await shop.say("workflows", *arguments)
        assert (told.code, text in told.err) == (code, True), (arguments, told)
    task = (await app.list(kind="task"))[0]
    told = await shop.say("workflows", "show", task.id)
    assert (told.code, "is a task, not a workflow" in told.err) == (3, True)
    await shop.close()


async def test_reset_with_mended_code(shop: Shop) -> None:
    app = shop.code("broken", broken=True)
    async with app.worker():
        handle = await shop.start(app, "1")
        await handle.signal("approved", True)
        assert await ended(handle) == "failed"
    told = await shop.say("workflows", "show", "order-1")
    assert "failed: ValueError: no stamps" in told.out
    assert "semel workflows reset order-1 --to ship" in told.out
    mended = shop.code("mended")
    told = await shop.say("workflows", "reset", "order-1", "--to", "ship", "--json")
    assert (told.code, told.data["id"]) == (0, handle.id)
    async with mended.worker():
        new = await mended.get(told.data["as"])
        assert await new.result(timeout="60s") == "1 True sent 1"
    told = await shop.say("explain", "order-1")
    assert (told.code, "was admitted 2 times" in told.out) == (0, True)
    await shop.close()


async def test_the_other_commands_know_workflows_too(shop: Shop) -> None:
    app = shop.code("other", broken=True)
    async with app.worker():
        handle = await shop.start(app, "1")
        told = await shop.say("show", handle.id)
        assert "workflow    order" in told.out
        assert "semel workflows show order-1" in told.out
        assert (await shop.say("explain", "pay-1")).out.startswith("Key 'pay-1' was admitted once.")
        assert (await shop.say("explain", "order-1", "--json")).data["kind"] == "workflow"
        assert (await shop.say("explain", "order-1", "--kind", "task")).code == 3
        data = (await shop.say("list", "--kind", "workflow", "--json")).data
        assert {e["kind"] for e in data} == {"workflow"}
        await handle.signal("approved", True)
        assert await ended(handle) == "failed"
        assert (await shop.say("redrive", handle.id)).code == 0
        again = await app.find("order-1", kind="workflow")
        assert again is not None
        assert (await shop.say("cancel", again.id)).code == 0
        assert await ended(again) == "cancelled"
    await shop.close()


async def test_replay_tells_what_would_be_parked(shop: Shop, tmp_path: Path) -> None:
    app = shop.code("before")
    async with app.worker():
        handle = await shop.start(app, "1")
    before = shop.target
    told = await at_shell("replay", before)
    assert (told.code, "2 histories replayed: " in told.out) == (0, True)
    changed = shop.code("after", change="await ctx.step(ship, order_id)")
    told = await at_shell("replay", shop.target, "--since", "2d", "--name", "order")
    assert told.code == 7
    for word in ("order-1 (order, ", "task 'charge'", "step 'ship'", "after_", "1 of 1 history would be parked"):
        assert word in told.out, word
    data = (await at_shell("replay", shop.target, "--json")).data
    assert (data["replayed"], [one["key"] for one in data["parked"]]) == (2, ["order-1"])
    assert (await at_shell("replay", shop.target, "--status", "completed")).code == 0
    assert "no history" in (await at_shell("replay", shop.target, "--name", "nothing")).out

    async with changed.worker():
        await handle.signal("approved", True)
        await eventually(lambda: _parked(handle))
    told = await shop.say("workflows", "list", "--parked")
    assert [word in told.out for word in ("order-1", "parked", "NonDeterminism")] == [True] * 3
    assert "NonDeterminism: its journal says task 'charge'" in told.out, "the why, and not the name twice"
    data = (await shop.say("workflows", "list", "--parked", "--json")).data
    assert [e["key"] for e in data] == ["order-1"]
    assert (await shop.say("workflows", "list", "--parked", "--status", "failed")).code == 2
    told = await shop.say("workflows", "show", "order-1")
    assert "parked      NonDeterminism [SEMEL-W01]: " in told.out
    assert ("semel workflows cancel" in told.out, "semel workflows terminate order-1" in told.out) == (False, True)
    async with app.worker():
        assert await handle.result(timeout="60s") == "1 True sent 1"
    assert "No workflow or entity is parked" in (await shop.say("workflows", "list", "--parked")).out
    await shop.close()


async def test_a_function_that_is_gone_is_named_by_the_gate_the_list_and_doctor(shop: Shop) -> None:
    app = shop.code("before_rename")
    async with app.worker():
        await shop.start(app, "1")
    renamed = shop.code("after_rename", rename="process")
    told = await at_shell("replay", shop.target)
    assert told.code == 7
    assert "order-1 (order, " in told.out
    assert "would never run" in told.out
    assert "This code has no function for: order." in told.out
    told = await at_shell("replay", shop.target, "--ignore-missing")
    assert (told.code, "order" in told.out) == (0, False)
    async with renamed.worker():
        told = await shop.say("workflows", "list", "--parked")
        assert [word in told.out for word in ("order-1", "parked", "NoWorker: no running worker")] == [True] * 3
        told = await shop.say("doctor")
        assert (told.code, "workflow 'order'" in told.out) == (1, True)
        assert "No worker that runs has a workflow 'order'" in (await shop.say("explain", "order-1")).out
    await shop.close()


async def _parked(handle: library.Handle[Any]) -> bool:
    return (await handle.describe()).error is not None


async def test_replay_says_what_helps(shop: Shop) -> None:
    app = shop.code("before_files")
    async with app.worker():
        await shop.start(app, "1")
    shop.code("with_files", change="open('/etc/hostname')")
    told = await at_shell("replay", shop.target)
    assert (told.code, "belongs in a task" in told.out, "ctx.patched" in told.out) == (7, True, False)
    await shop.close()


async def test_histories_as_files(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = shop.code("first")
    async with app.worker():
        await shop.start(app, "1")
    first = shop.target
    told = await shop.say("workflows", "export", "order-1")
    assert json.loads(told.out)["key"] == "order-1"
    file = tmp_path / "order.json"
    assert (await shop.say("workflows", "export", "order-1", "--output", str(file))).code == 0
    assert file.read_text() == told.out
    assert (await shop.say("workflows", "export", "order-1", "--output", str(tmp_path / "no" / "x"))).code == 2
    shop.code("second", change="await ctx.sleep(1)")
    for target, code in ((first, 0), (shop.target, 7)):
        assert (await at_shell("replay", target, "--file", str(file), "--file", str(file))).code == code
        assert (await at_shell("workflows", "import", str(file), "--replay", target)).code == code
    told = await shop.say("workflows", "export", "order-1", "--output", str(file))
    assert "--url" not in told.out, "replay has no such option"
    monkeypatch.setenv("SEMEL_URL", "sqlite:///another.db")
    told = await at_shell("workflows", "import", str(file))
    assert (told.code, "asked task" in told.out, "--url" in told.out) == (0, True, False)
    assert (await at_shell("workflows", "import", str(file), "--json")).data["events"][0]["what"] == "began"
    file.write_text(file.read_text().replace('"version": 1,\n "workflow"', '"version": 7,\n "workflow"'))
    told = await at_shell("replay", first, "--file", str(file))
    assert (told.code, "has the format 7, and this Semel reads 1" in told.err) == (2, True)
    assert (await at_shell("workflows", "import", str(tmp_path / "none.json"))).code == 2
    await shop.close()


def test_replay_makes_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"nothing_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text("import semel\napp = semel.App('sqlite:///none.db', config=None)\n")
    assert semel("replay", f"{name}:app").code == 5
    assert not (tmp_path / "none.db").exists()
