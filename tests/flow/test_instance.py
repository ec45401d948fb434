"""A workflow in memory: fed the same it asks for the same, and says where it does not."""

import asyncio
import gc
import random
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import Raw

import semel
from semel.contract.records import ErrorInfo
from semel.define.workflow import Workflow
from semel.errors import Forbidden, NonDeterminism
from semel.flow import entries
from semel.flow.entries import Asked, Began, Dropped, Entry, Fired, Resolved, Signalled, Stopped, Turned
from semel.flow.instance import Instance
from semel.flow.snapshot import Snapshot
from semel.flow.turn import Arrival, Identity, completed
from semel.settings import Settings

WHO = Identity("id", "key", "flow", "default", "default", 0, b"{}")


def instance(fn: Any, start: Snapshot | None = None, **options: Any) -> Instance:
    options = {"name": "flow", "queue": "default", "priority": 0, "timeout": None, "version": 1} | options
    workflow: Workflow[..., Any] = Workflow(fn, retention=None, dedup_window=None, **options)
    return Instance(workflow, WHO, Settings(), start or Snapshot(b"{}"))


def arrivals(at: int, *what: Any) -> list[Arrival]:
    return [Arrival(at, one, row) for row, one in enumerate(what, 1)]


def done(command: int, value: bytes) -> Resolved:
    return Resolved(command, "completed", Raw(value))


async def two_steps(ctx: semel.Context) -> list[int]:
    first = await ctx.step(lambda: 1, name="first")
    second = await ctx.step(lambda: 2, name="second")
    return [first, second]


def test_a_turn_tells_what_was_asked_for() -> None:
    one = instance(two_steps)
    turn = one.turn(1_000_000)
    assert [type(entry) for entry in turn.entries] == [Began, Asked]
    assert [command.name for command in turn.commands] == ["first"]
    assert (turn.ended, turn.due, len(one.in_place)) == (None, None, 1)
    turn = one.turn(2_000_000, arrivals(2_000_000, done(1, b"1")))
    assert [type(entry) for entry in turn.entries] == [Turned, Resolved, Asked]
    turn = one.turn(3_000_000, arrivals(3_000_000, done(2, b"2")))
    assert turn.ended is not None
    assert turn.ended.output == b"[1,2]"


async def rests(ctx: semel.Context) -> None:
    await asyncio.sleep(1)


async def listens(ctx: semel.Context) -> str:
    return await ctx.wait_signal("go", timeout=10)


@pytest.mark.parametrize("fn", [two_steps, rests, listens])
@pytest.mark.parametrize("ends", [False, True])
def test_what_is_closed_leaves_memory_at_once(fn: Any, ends: bool) -> None:
    """Or a worker with many workflows would hold far more of them than it means to, until Python looks for circles."""
    one = instance(fn)
    one.turn(1)
    if ends:
        one.turn(2, arrivals(2, done(1, b"1"), Signalled("go", Raw(b'"now"'), None)))
        turn = one.turn(2_000_000, arrivals(2_000_000, done(2, b"2")))
        assert turn.ended is not None
        del turn
    left = weakref.ref(one), weakref.ref(one.loop)
    gc.disable()
    try:
        one.close()
        one.close()
        del one
        assert [ref() for ref in left] == [None, None]
    finally:
        gc.enable()


def test_what_nobody_waits_for_is_taken_in_and_leaves_no_trace() -> None:
    one = instance(two_steps)
    one.turn(1)
    turn = one.turn(2, arrivals(2, done(17, b"1")))
    assert (turn.entries, turn.consumed) == ([], [1])


def journal_of(fn: Any, *batches: list[Arrival]) -> list[Entry]:
    one = instance(fn)
    written = list(one.turn(1_000_000).entries)
    for n, batch in enumerate(batches, 2):
        written += one.turn(n * 1_000_000, batch).entries
    one.close()
    return entries.load(entries.dump(written))


async def busy(ctx: semel.Context) -> Any:
    async def branch(n: int) -> Any:
        async with asyncio.timeout(10 * (n + 1)):
            return await ctx.wait_signal(f"s{n % 2}")

    found = await asyncio.gather(*(branch(n) for n in range(6)), return_exceptions=True)
    ctx.publish("found", len(found))
    return [one if isinstance(one, int) else type(one).__name__ for one in found] + [ctx.random.random(), ctx.uuid4()]


@pytest.mark.parametrize("seed", range(20))
def test_replay_gives_the_same_at_whatever_point_it_is_cut(seed: int) -> None:
    dice = random.Random(seed)
    one = instance(busy)
    rows = [list(one.turn(1).entries)]
    now, turn = 1, None
    while turn is None or turn.ended is None:
        now += dice.randrange(1, 20) * 1_000_000
        signals = [Signalled(f"s{dice.randrange(2)}", Raw(b"%d" % dice.randrange(9))) for _ in range(dice.randrange(3))]
        turn = one.turn(now, arrivals(now, *signals))
        rows.append(list(turn.entries))
    for cut in range(1, len(rows)):
        again = instance(busy)
        again.replay(entries.load(entries.dump([entry for row in rows[:cut] for entry in row])))
        happened = [entry for row in rows[cut:] for entry in row]
        again.replay(happened)
        assert again._main is not None
        assert again._main.done()
        ended = completed(again.workflow, again._main.result(), again.settings.max_payload)
        assert (ended.status, ended.output, ended.error) == (turn.ended.status, turn.ended.output, turn.ended.error)


async def other_name(ctx: semel.Context) -> None:
    await ctx.step(lambda: 1, name="other")


async def other_input(ctx: semel.Context) -> None:
    await ctx.step(lambda n: n, 5, name="first")


async def other_kind(ctx: semel.Context) -> None:
    await ctx.wait_signal("first")


async def nothing(ctx: semel.Context) -> None: ...


async def gives_up(ctx: semel.Context) -> None:
    task = asyncio.create_task(ctx.step(lambda: 1, name="first"))
    await asyncio.sleep(0)
    task.cancel()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (other_name, "step 'other' (command 1)"),
        (other_input, "step 'first' (command 1, input"),
        (other_kind, "signal 'first' (command 1)"),
        (nothing, "nothing more"),
        (gives_up, "giving up command 1"),
    ],
)
def test_other_code_is_found_out(code: Any, found: str) -> None:
    with pytest.raises(NonDeterminism) as caught:
        instance(code).replay(journal_of(two_steps))
    assert caught.value.found.startswith(found)
    assert caught.value.expected in ("step 'first' (command 1)", "nothing more")
    assert ("test_instance.py:" in caught.value.where) is (found != "nothing more")


def test_an_answer_to_nothing_is_found_out() -> None:
    with pytest.raises(NonDeterminism, match="the answer to command 9"):
        instance(two_steps).replay([*journal_of(two_steps), done(9, b"1")])
    with pytest.raises(NonDeterminism, match="timer 9 going off"):
        instance(two_steps).replay([*journal_of(two_steps), Fired(9)])


def test_a_dropped_command_is_written_down_and_replayed() -> None:
    async def impatient(ctx: semel.Context) -> str:
        try:
            async with asyncio.timeout(1):
                await ctx.step(lambda: 1, name="slow")
        except TimeoutError:
            return "late"
        return ""

    one = instance(impatient)
    first = one.turn(0)
    assert first.due == 1_000_000
    second = one.turn(2_000_000)
    assert [type(entry) for entry in second.entries] == [Turned, Fired, Dropped]
    assert [command.name for command in second.dropped] == ["slow"]
    assert second.ended is not None
    instance(impatient).replay([*first.entries, *second.entries])


def test_timers_and_arrivals_come_in_the_order_of_their_times() -> None:
    async def race(ctx: semel.Context) -> str:
        try:
            return str(await ctx.wait_signal("x", timeout="10s"))
        except TimeoutError:
            return "late"

    for at, wins in ((9_999_999, b'"1"'), (10_000_000, b'"late"')):
        one = instance(race)
        one.turn(0)
        turn = one.turn(60_000_000, arrivals(at, Signalled("x", Raw(b"1"))))
        assert turn.ended is not None
        assert turn.ended.output == wins


def test_the_record_of_a_transaction_stands_alone_and_is_gone_on_from() -> None:
    async def code(ctx: semel.Context) -> list[int]:
        first = await ctx.transaction(lambda tx: 1, name="first")
        return [first, await ctx.step(lambda: 2, name="second")]

    one = instance(code)
    began = one.turn(1).entries
    alone = [Turned(2), Resolved(1, "completed", Raw(b"1"), alone=True)]
    one.absorb(alone)
    assert one.carries
    went_on = one.turn(3).entries
    assert [type(entry) for entry in went_on] == [Asked]
    for rows in ([*began, *alone], [*began, *alone, *went_on]):
        again = instance(code)
        again.replay(rows)
        again.turn(3)
        assert [command.name for command in again.in_place] == ["second"]


def test_errors_of_commands_are_raised_where_they_are_awaited() -> None:
    async def code(ctx: semel.Context) -> str:
        try:
            await ctx.step(lambda: 1)
        except semel.ExecutionFailed as error:
            return error.error_message
        return ""

    one = instance(code)
    one.turn(1)
    turn = one.turn(2, arrivals(2, Resolved(1, "failed", error=ErrorInfo("ValueError", "no"))))
    assert turn.ended is not None
    assert turn.ended.output == b'"no"'


def test_forbidden_things_end_the_turn_and_not_the_workflow() -> None:
    async def code(ctx: semel.Context) -> None:
        open("/etc/hostname")  # noqa: ASYNC230, PTH123, SIM115

    one = instance(code)
    with pytest.raises(Forbidden):
        one.turn(1)
    one.close()


def test_cancelling_counts_once() -> None:
    async def code(ctx: semel.Context) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(60)

    one = instance(code)
    one.turn(0)
    turn = one.turn(1, arrivals(1, Stopped(), Stopped()))
    assert [type(entry) for entry in turn.entries].count(Stopped) == 1
    assert turn.ended is None
    ended = one.turn(61_000_000).ended
    assert ended is not None
    assert ended.status == "cancelled"


def test_continuing_as_new_carries_on_what_must_not_be_lost() -> None:
    async def code(ctx: semel.Context, n: int = 0) -> None:
        await ctx.wait_signal("go")
        await ctx.step(lambda: 1, name="step")
        ctx.continue_as_new(n + 1)

    one = instance(code)
    one.turn(0)
    one.turn(1, arrivals(1, *(Signalled("go", Raw(b"1"), key) for key in ("a", "a", "b"))))
    again = one.turn(2, arrivals(2, done(2, b"1"))).again
    assert again is not None
    assert (again.input, again.run, again.numbers, again.counts) == (b'{"n":1}', 2, 2, {"step": 1})
    assert [signal.key for signal in again.signals] == ["b"]
    two = instance(code, again)
    turn = two.turn(3, arrivals(3, Signalled("go", Raw(b"1"), "b"), done(2, b"1")))
    assert [command.number for command in turn.commands if command.name == "step"] == [4]
    assert not [entry for entry in turn.entries if isinstance(entry, Signalled | Resolved)]


def _kinds(found: Sequence[Entry]) -> list[str]:
    return [entry.kind for entry in found if isinstance(entry, Asked)]


def test_patched_is_true_for_new_runs_and_false_for_old_ones() -> None:
    async def old(ctx: semel.Context) -> bool:
        await ctx.step(lambda: 1, name="first")
        return False

    async def new(ctx: semel.Context) -> bool:
        if ctx.patched("change"):
            await ctx.step(lambda: 1, name="more")
        await ctx.step(lambda: 1, name="first")
        return ctx.patched("change")

    fresh = journal_of(new)
    assert _kinds(fresh) == ["patch", "step"]
    for journal, says in ((journal_of(old), b"false"), (fresh, b"true")):
        one = instance(new)
        one.replay(journal)
        command = next(iter(one.pending))
        turn = one.turn(5, arrivals(5, done(command, b"1")))
        if turn.ended is None:
            turn = one.turn(6, arrivals(6, done(next(iter(one.pending)), b"1")))
        assert turn.ended is not None
        assert turn.ended.output == says
