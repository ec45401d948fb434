"""A signal reaches its workflow once: sent before, while or after it waits, in the order of sending."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

import semel
from semel.contract.decision import Reason
from tests.world import World, ended, eventually, waits


@pytest.mark.parametrize("cached", [0, 1000])
@pytest.mark.parametrize("when", ["before it began", "before it waits", "while it waits"])
async def test_it_may_come_at_any_time(world: World, when: str, cached: int) -> None:
    app, begun, goes_on = world.app(), asyncio.Event(), asyncio.Event()

    async def step() -> None:
        begun.set()
        await goes_on.wait()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        await ctx.step(step)
        return await ctx.wait_signal("go")

    handle = await app.start_workflow(flow, workflow_id="k")
    if when == "before it began":
        await handle.signal("go", "on")
        goes_on.set()
    async with world.worker(app, cached_workflows=cached):
        await eventually(begun.is_set)
        if when == "before it waits":
            await handle.signal("go", "on")
        goes_on.set()
        if when == "while it waits":
            await waits(handle)
            await handle.signal("go", "on")
        assert await handle.result(timeout="60s") == "on"


async def test_they_come_in_order_for_each_name(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> list[list[int]]:
        b = [await ctx.wait_signal("b") for _ in range(5)]
        return [[await ctx.wait_signal("a") for _ in range(5)], b]

    async with world.worker(app, cached_workflows=0):
        handle = await app.start_workflow(flow, workflow_id="k")
        for n in range(5):
            await handle.signal("a", n)
            await handle.signal("b", n)
        assert await handle.result(timeout="60s") == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]


async def test_each_goes_to_one_waiter(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> list[int]:
        return list(await asyncio.gather(*(ctx.wait_signal("x") for _ in range(3))))

    async with world.worker(app, cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        for n in range(3):
            await handle.signal("x", n)
        assert await handle.result(timeout="60s") == [0, 1, 2]


@pytest.mark.parametrize("cached", [0, 1000])
async def test_a_key_counts_once(world: World, cached: int) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> list[str]:
        found = []
        while (one := await ctx.wait_signal("x")) != "end":
            found.append(one)
        return found

    async with world.worker(app, cached_workflows=cached):
        handle = await app.start_workflow(flow, workflow_id="k")
        for n in range(3):
            for _ in range(2):
                await handle.signal("x", f"keyed {n}", dedup_key=f"k{n}")
            await handle.signal("x", "plain")
            await waits(handle)
        await world.advance("2d")
        await handle.signal("x", "again", dedup_key="k1")
        await handle.signal("x", "end")
        assert await handle.result(timeout="60s") == [
            "keyed 0", "plain", "keyed 1", "plain", "keyed 2", "plain",
        ]  # fmt: skip


@pytest.mark.parametrize("cached", [0, 1000])
async def test_a_key_is_remembered_from_when_it_came_however_long_it_was_quiet_before(
    world: World, cached: int
) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> int:
        found = 0
        while await ctx.wait_signal("x") != "end":
            found += 1
        return found

    async with world.worker(app, cached_workflows=cached):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        await world.advance("30d")
        await handle.signal("x", dedup_key="k")
        await waits(handle)
        await world.advance("2d")
        await handle.signal("x", dedup_key="k")
        await waits(handle)
        await world.advance("2d")
        await handle.signal("x", dedup_key="k")  # it may be let in again after three days
        await handle.signal("x", "end")
        assert await handle.result(timeout="60s") == 2


async def test_a_time_limit(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> list[str]:
        heard = []
        for _ in range(2):
            try:
                heard.append(await ctx.wait_signal("x", timeout="2d"))
            except TimeoutError:
                heard.append("nothing came")
        return heard

    async with world.worker(app, cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        await world.advance("49h")
        await eventually(lambda: has_fired(handle))
        await waits(handle)
        await handle.signal("x", "came")
        assert await handle.result(timeout="60s") == ["nothing came", "came"]


async def has_fired(handle: semel.Handle[object]) -> bool:
    return any(event.what == "fired" for event in await handle.history())


async def test_a_payload_may_have_a_type(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            await ctx.wait_signal("x", type=tuple[int, str])
        except semel.NotDecodable:
            return repr(await ctx.wait_signal("x", type=tuple[int, str]))
        return ""

    async with world.worker(app, cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        await handle.signal("x", "not a pair")
        await handle.signal("x", (1, "one"))
        assert await handle.result(timeout="60s") == "(1, 'one')"


class Approval(pydantic.BaseModel):
    by: str
    cents: int = 0


@dataclass
class Receipt:
    cents: int


async def test_a_payload_may_be_read_as_a_model(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        first = await ctx.wait_signal("x", type=Approval)
        second = await ctx.wait_signal("x", type=list[Approval])
        third = await ctx.wait_signal("x", type=Receipt)
        with contextlib.suppress(semel.NotDecodable):
            await ctx.wait_signal("x", type=Approval)
            return "accepted"
        return repr([first, second, third])

    async with world.worker(app, cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        for payload in ({"by": "ada"}, [{"by": "bob", "cents": 2}], {"cents": 3}, {"by": 5}):
            await handle.signal("x", payload)
        expected = [Approval(by="ada"), [Approval(by="bob", cents=2)], Receipt(3)]
        assert await handle.result(timeout="60s") == repr(expected)


@pytest.mark.parametrize("kind", [int, Approval], ids=str)
async def test_no_payload_is_none_and_has_to_fit_too(world: World, kind: Any) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> list[str]:
        heard = []
        for one in (kind, kind | None, Any):
            try:
                heard.append(repr(await ctx.wait_signal("x", type=one)))
            except semel.NotDecodable:
                heard.append("does not fit")
        return heard

    async with world.worker(app, cached_workflows=0):
        handle = await app.start_workflow(flow, workflow_id="k")
        for _ in range(3):
            await handle.signal("x")
        assert await handle.result(timeout="60s") == ["does not fit", "None", "None"]


@pytest.mark.parametrize("kind", [5, [int]], ids=str)
async def test_what_is_no_type_is_refused(world: World, kind: Any) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            await ctx.wait_signal("x", type=kind)
        except semel.InvalidValue as error:
            return str(error)
        return ""

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        assert "not a type" in await handle.result(timeout="60s")


@pytest.mark.parametrize("payload", [{"at": [Receipt(1)]}, {1: 2}], ids=str)
async def test_a_payload_that_is_no_plain_json_is_refused_with_the_way_to_send_it(world: World, payload: Any) -> None:
    app = world.app()

    @app.workflow
    async def child(ctx: semel.Context) -> None:
        await ctx.wait_signal("x")

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        started = await ctx.start_workflow(child, workflow_id="child")
        try:
            await started.signal("x", payload)
        except semel.NotEncodable as error:
            await started.signal("x")
            return str(error)
        return ""

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        from_inside = await handle.result(timeout="60s")
    with pytest.raises(semel.NotEncodable) as from_outside:
        await handle.signal("x", payload)
    for said in (from_inside, str(from_outside.value)):
        assert "dataclasses.asdict" in said
        assert "annotate" not in said


async def test_one_for_a_workflow_that_has_ended_is_refused(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> None: ...

    handle = await app.start_workflow(flow, workflow_id="k")
    async with world.worker(app):
        await ended(handle)
    with pytest.raises(semel.WorkflowEnded, match="completed"):
        await handle.signal("x")
    handle.id = "0" * 32
    with pytest.raises(semel.NotFound):
        await handle.signal("x")


async def test_a_task_takes_no_signals(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> None: ...

    handle = await app.enqueue(work)
    with pytest.raises(semel.InvalidValue, match="task"):
        await handle.signal("x")


async def test_those_of_one_process_arrive_in_their_order(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> list[int]:
        return [await ctx.wait_signal("n") for _ in range(50)]

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        await asyncio.gather(*(handle.signal("n", n) for n in range(50)))
        assert await handle.result(timeout="60s") == list(range(50))


async def test_many_from_many_sides_all_arrive(world: World) -> None:
    one, two = world.app(), world.app()
    for app in (one, two):

        @app.workflow
        async def flow(ctx: semel.Context) -> list[int]:
            return sorted([await ctx.wait_signal("x") for _ in range(100)])

    async with world.worker(one), world.worker(two):
        handle = await one.start_workflow(flow, workflow_id="k")
        other = await two.get(handle.id)
        await asyncio.gather(*((handle, other)[n % 2].signal("x", n) for n in range(100)))
        assert await handle.result(timeout="60s") == list(range(100))


@pytest.mark.parametrize("cached", [0, 100])
async def test_a_key_of_another_signal_or_with_another_payload_is_refused_and_counted(
    world: World, cached: int
) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context, runs: int = 2) -> list[str]:
        first = await ctx.wait_signal("yes")
        if runs > 1:
            ctx.continue_as_new(runs - 1)
        return [first, await ctx.wait_signal("yes")]

    async with world.worker(app, cached_workflows=cached):
        handle = await app.start_workflow(flow, workflow_id="k")
        await handle.signal("yes", "a", dedup_key="1")
        for name, payload, key in (("no", "a", "1"), ("yes", "x", "1"), ("yes", "a", "1"), ("yes", "b", "2")):
            await handle.signal(name, payload, dedup_key=key)
        await handle.signal("yes", "y", dedup_key="1")  # also after it continued as new
        await handle.signal("yes", "c", dedup_key="3")
        assert await handle.result(timeout="60s") == ["b", "c"]
    explained = await app.explain("k", kind="workflow")
    found = {one.reason: one.count for one in explained.suppressed}
    assert found == {Reason.MESSAGE_DIFFERS: 3}
    assert [(one.held, one.offered) for one in explained.undelivered.refused] == [("yes", "yes")]
    assert "key '1' was used again for 'yes' with different arguments" in str(explained)
