"""A function and the record that it was run are one transaction: it happens once, or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from semel.errors import InvalidValue
from tests.engines.temporal.archive import opened
from tests.world import World


async def till(world: World) -> None:
    await world.sql("create table till (who text not null)")


class Pay:
    """Writes a row, and counts how often it was called."""

    def __init__(self, who: str = "ada", error: BaseException | None = None) -> None:
        self.who, self.error, self.calls = who, error, 0

    def __call__(self, tx: Any) -> bytes | None:
        self.calls += 1
        tx.execute("insert into till values ($1)", self.who)
        if self.error is not None:
            raise self.error
        return str(tx.execute("select count(*) from till")[0][0]).encode()


async def test_a_second_call_gives_what_the_first_one_gave(world: World) -> None:
    await till(world)
    async with opened(world) as records, opened(world) as other:
        pay = Pay()
        assert await records.transact("r1", "pay", pay) == b"1"
        assert await records.transact("r1", "pay", pay) == b"1"
        assert await other.transact("r1", "pay", pay) == b"1"
        assert (pay.calls, await world.count("till")) == (1, 1)
        assert await records.transact("r1", "pay again", pay) == b"2"
        assert await records.transact("r2", "pay", pay) == b"3"


async def test_none_is_a_result_like_any_other(world: World) -> None:
    calls: list[int] = []

    def nothing(tx: Any) -> None:
        calls.append(1)

    async with opened(world) as records:
        assert await records.transact("r1", "nothing", nothing) is None
        assert await records.transact("r1", "nothing", nothing) is None
        assert calls == [1]


@pytest.mark.parametrize("error", [ValueError("no"), OSError("disk"), TimeoutError("late"), LookupError("none")])
async def test_what_it_raises_is_raised_and_nothing_is_written(world: World, error: Exception) -> None:
    await till(world)
    async with opened(world) as records:
        pay = Pay(error=error)
        with pytest.raises(type(error), match=str(error)):
            await records.transact("r1", "pay", pay)
        assert (await world.count("till"), await world.count("semel_record_transaction")) == (0, 0)
        assert pay.calls == 1
        pay.error = None
        assert await records.transact("r1", "pay", pay) == b"1"


async def test_an_error_of_the_database_is_the_functions_own(world: World) -> None:
    await till(world)

    def broken(tx: Any) -> None:
        tx.execute("insert into till values ('ada')")
        tx.execute("insert into till values (null)")

    async with opened(world) as records:
        with pytest.raises(Exception, match=r"(?i)not.null"):
            await records.transact("r1", "pay", broken)
        assert await world.count("till") == 0


async def test_an_exit_does_not_take_the_writer_along(world: World) -> None:
    def leave(tx: Any) -> None:
        raise SystemExit(3)

    async with opened(world) as records:
        with pytest.raises(RuntimeError, match="SystemExit: 3"):
            await records.transact("r1", "leave", leave)
        assert await records.transact("r1", "leave", lambda tx: b"1") == b"1"


async def test_the_transaction_is_semels(world: World) -> None:
    async with opened(world) as records:
        with pytest.raises(InvalidValue, match="COMMIT"):
            await records.transact("r1", "commit", lambda tx: tx.execute("commit"))


async def test_who_comes_meanwhile_waits_and_gets_the_same(world: World) -> None:
    await till(world)
    entered, may_go_on = threading.Event(), threading.Event()

    class Slow(Pay):
        def __call__(self, tx: Any) -> bytes | None:
            entered.set()
            may_go_on.wait(60)
            return super().__call__(tx)

    slow, quick = Slow("slow"), Pay("quick")
    async with opened(world) as one, opened(world) as two:
        await asyncio.gather(one.transact("r0", "warm", lambda tx: None), two.transact("r0", "warm2", lambda tx: None))
        first = asyncio.create_task(one.transact("r1", "pay", slow))
        await asyncio.to_thread(entered.wait, 20)
        second = asyncio.create_task(two.transact("r1", "pay", quick))
        third = asyncio.create_task(one.transact("r1", "pay", quick))
        await asyncio.sleep(0.1)
        assert not second.done()
        may_go_on.set()
        assert await asyncio.gather(first, second, third) == [b"1", b"1", b"1"]
        assert (slow.calls, quick.calls) == (1, 0)
    assert await world.sql("select who from till") == [("slow",)]


async def test_who_waited_runs_it_if_the_first_one_raised(world: World) -> None:
    await till(world)
    async with opened(world) as one, opened(world) as two:
        answers = await asyncio.gather(
            one.transact("r1", "pay", Pay("bad", ValueError("no"))), two.transact("r1", "pay", Pay("good")),
            return_exceptions=True,
        )  # fmt: skip
        assert b"1" in answers
        assert await world.sql("select who from till") == [("good",)]


async def test_of_many_at_once_one_runs(world: World) -> None:
    await till(world)
    pays = [Pay(f"p{n}") for n in range(20)]
    async with opened(world) as one, opened(world) as two, opened(world) as three:
        answers = await asyncio.gather(
            *((one, two, three)[n % 3].transact("r1", "pay", pay) for n, pay in enumerate(pays))
        )
    assert set(answers) == {b"1"}
    assert sum(pay.calls for pay in pays) == 1


async def test_they_are_remembered_until_their_execution_is_over(world: World) -> None:
    async def lives(executions: Sequence[str]) -> set[str]:
        return {"open"} & set(executions)

    async with opened(world) as records:
        for execution in ("open", "over"):
            for step in ("a", "b"):
                await records.transact(execution, step, lambda tx: b"1")
        await records.clean(lives)
        assert await world.count("semel_record_transaction") == 4
        await world.advance("2d")
        await records.clean()
        assert await world.count("semel_record_transaction") == 4  # nobody to ask: all stay
        await world.advance("10d")
        assert await records.clean(lives) == 4
        assert await records.clean(lives) == 0
        assert await world.sql("select distinct execution from semel_record_transaction") == [("open",)]
        assert await records.transact("open", "a", lambda tx: b"2") == b"1"
