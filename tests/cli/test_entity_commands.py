"""`semel workflows` and `semel replay` know entities: parked ones are seen, tried against other code, and ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import semel as library
from semel.cli.command import load_app
from tests.cli.shell import Answer, at_shell
from tests.world import World, eventually, waits

pytestmark = pytest.mark.slow
METERS = """
import semel
app = semel.App({url!r}, config=None)

@app.entity
class Meter:
    total: int = 0
    {field}

    @semel.handler
    async def add(self, ctx: semel.EntityContext, n: int) -> int:
        if n < 0:
            raise ValueError(f"not {{n}}")
        self.total += n
        return self.total

    @semel.handler
    async def nap(self, ctx: semel.EntityContext) -> None:
        {change}
        await ctx.sleep("1h")
"""


class Meters:
    """Entities of one module, in several states of its code."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.folder = folder

    def code(self, name: str, *, field: str = "", change: str = "") -> tuple[str, library.App]:
        name = f"{name}_{abs(hash(str(self.folder)))}"
        (self.folder / f"{name}.py").write_text(METERS.format(url=self.world.url, field=field, change=change))
        return f"{name}:app", load_app(f"{name}:app")

    async def say(self, *arguments: str) -> Answer:
        return await at_shell(*arguments, "--url", self.world.url)


@pytest.fixture
def meters(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Meters:
    monkeypatch.chdir(tmp_path)
    return Meters(world, tmp_path)


def meter(app: library.App) -> library.Ref[object]:
    return app.entity(app.tasks.entity("Meter").cls, "m")


async def found(app: library.App) -> library.Handle[object]:
    handle = await app.find("Meter/m", kind="entity")
    assert handle is not None
    return handle


async def parked(handle: library.Handle[object]) -> bool:
    return (await handle.describe()).error is not None


async def test_a_parked_entity_is_seen_and_can_be_ended(meters: Meters, tmp_path: Path) -> None:
    newer, new = meters.code("newer", field="unit: str = 'kWh'")
    older, old = meters.code("older")
    async with new, old:
        async with new.worker():
            await meter(new).ask("add", 5, timeout="60s")
        assert "No workflow or entity is parked" in (await meters.say("workflows", "list", "--parked")).out
        assert "No workflow matches" in (await meters.say("workflows", "list")).out
        told = await meters.say("workflows", "list", "--kind", "entity")
        assert [word in told.out for word in ("entity", "Meter/m", "waiting")] == [True] * 3
        assert (await meters.say("doctor")).code == 0

        assert (await at_shell("replay", newer)).code == 0
        told = await at_shell("replay", older)
        assert (told.code, "unknown field `unit`" in told.out) == (7, True)
        assert "ctx.patched" not in told.out, "that would not help"

        async with old.worker():
            await meter(old).send("add", 1)
            await eventually(lambda: _is_parked(old))
        for arguments in (("list", "--parked"), ("list", "--parked", "--kind", "entity")):
            told = await meters.say("workflows", *arguments)
            assert "NotDecodable: entity 'Meter': the stored state does not fit the class" in told.out
        assert (await meters.say("workflows", "list", "--parked", "--kind", "workflow", "--json")).data == []
        told = await meters.say("doctor")
        assert (told.code, "entity Meter/m (Meter)" in told.out) == (1, True)
        told = await meters.say("workflows", "show", "Meter/m")
        assert [word in told.out for word in ("(parked)", '{"total": 5, "unit": "kWh"}', "terminate Meter/m")] == [
            True, True, True,
        ]  # fmt: skip
        data = (await meters.say("workflows", "show", "Meter/m", "--json")).data
        assert (data["parked"], data["state"]) == (True, {"total": 5, "unit": "kWh"})

        file = tmp_path / "meter.json"
        assert (await meters.say("workflows", "export", "Meter/m", "--output", str(file))).code == 0
        assert json.loads(file.read_text())["kind"] == "entity"
        assert "No message is being handled" in (await at_shell("workflows", "import", str(file))).out
        assert [(await at_shell("replay", one, "--file", str(file))).code for one in (newer, older)] == [0, 7]

        assert (await meters.say("workflows", "signal", "Meter/m", "x")).code == 3
        told = await meters.say("workflows", "cancel", "Meter/m")
        assert (told.code, "semel workflows terminate Meter/m" in told.out) == (0, True), "it does not hear of it"
        assert (await meters.say("workflows", "terminate", "Meter/m")).code == 0
        assert (await meters.say("workflows", "terminate", "Meter/m")).code == 4
        assert (await meters.say("doctor")).code == 0


async def _is_parked(app: library.App) -> bool:
    return await parked(await found(app))


async def test_a_message_that_is_under_way_is_shown_and_replayed(meters: Meters) -> None:
    target, app = meters.code("calm")
    async with app:
        async with app.worker():
            await meter(app).send("nap")

            async def naps() -> bool:
                return any(event.kind == "timer" for event in await (await found(app)).history())

            await eventually(naps)
            await waits(await found(app))
        told = await meters.say("workflows", "show", "Meter/m")
        assert ["asked timer" in told.out, "It waits for:" in told.out] == [True, True]
        assert (await at_shell("replay", target)).code == 0
        other, _ = meters.code("hasty", change="await ctx.step(lambda: 1, name='look')")
        told = await at_shell("replay", other)
        assert (told.code, "step 'look'" in told.out, "ctx.patched" in told.out) == (7, True, True)
        assert (await meters.say("workflows", "cancel", "Meter/m")).code == 0


async def test_messages_that_failed_are_listed_and_sent_again(meters: Meters) -> None:
    _, app = meters.code("strict")
    async with app:
        async with app.worker():
            await meter(app).send("add", -1, dedup_key="k")
            await meter(app).send("add", -2)
            await meter(app).ask("add", 5, timeout="60s")
            await meter(app).send("add", 6, dedup_key="k")
            await meter(app).send("nap", dedup_key="k")
            assert await meter(app).ask("add", 0, timeout="60s") == 11
        told = await meters.say("entities", "failed", "Meter/m", "--json")
        (failed,) = json.loads(told.out)
        assert (failed["handler"], failed["dedup_key"], failed["arguments"]) == ("add", None, {"n": -2})
        assert failed["error"]["message"] == "not -2"
        assert json.loads((await meters.say("entities", "failed", "--json")).out) == [failed]
        told = await meters.say("entities", "failed")
        assert (told.code, "Meter/m" in told.out, "not -2" in told.out) == (0, True, True)
        for verb in (("explain", "Meter/m", "--kind", "entity"), ("show", (await found(app)).id)):
            told = await meters.say(*verb)
            assert [text in told.out for text in ("ValueError: not -2", "was used for 'nap'")] == [True, True], told.out
        explained = json.loads((await meters.say("explain", "Meter/m", "--kind", "entity", "--json")).out)
        assert explained["failed_messages"][0]["number"] == failed["number"]
        assert explained["refused"][0]["offered"] == "nap"
        assert "Meter/m (1)" in (await meters.say("doctor")).out

        assert (await meters.say("entities", "failed", "Meter/none")).code == 3
        assert (await meters.say("entities", "redrive", "Meter/m", "99")).code == 4
        told = await meters.say("entities", "redrive", "Meter/m", str(failed["number"]))
        assert (told.code, "Sent 1 again." in told.out) == (0, True)
        async with app.worker():
            assert await meter(app).ask("add", 0, timeout="60s") == 11
        told = await meters.say("entities", "failed", "Meter/m")
        assert "not -2" in told.out, "it has failed again"
