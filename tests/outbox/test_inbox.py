"""`semel.once`: an effect in the caller's own database happens once, whoever asks for it again."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest

import semel
from tests.outbox.places import Place, SqlitePlace


async def test_the_first_time_and_no_other(place: Place) -> None:
    for expected in (True, False):
        async with place.transaction() as connection:
            assert await semel.once(connection, "debit:1") is expected
            assert await semel.once(connection, "debit:1") is False
    assert len(await place.sql("select * from inbox_keys")) == 1


async def test_rolled_back_it_has_not_happened(place: Place) -> None:
    async def fail() -> None:
        async with place.transaction() as connection:
            assert await semel.once(connection, "debit:1")
            raise RuntimeError("undo")

    with pytest.raises(RuntimeError):
        await fail()
    async with place.transaction() as connection:
        assert await semel.once(connection, "debit:1")


def test_without_a_transaction_it_is_refused(sqlite_place: SqlitePlace) -> None:
    """In words that fit: nothing is started here."""
    with closing(sqlite3.connect(sqlite_place.path, isolation_level=None)) as connection:
        with pytest.raises(semel.InvalidValue, match=r"without an open transaction.*BEGIN IMMEDIATE\.$") as raised:
            semel.once_sync(connection, "debit:1")
        assert "start" not in str(raised.value)


async def test_after_its_time_it_is_forgotten(place: Place) -> None:
    async with place.transaction() as connection:
        assert await semel.once(connection, "debit:1", keep="1h")
    await place.sql("update inbox_keys set expires_at = recorded_at")
    for expected in (True, False):
        async with place.transaction() as connection:
            assert await semel.once(connection, "debit:1") is expected


async def test_two_at_once_wait_for_each_other(place: Place) -> None:
    """The second waits for the first, and then decides: five of which four roll back make one."""
    happened: list[int] = []

    async def debit(number: int) -> None:
        async with place.transaction() as connection:
            if await semel.once(connection, "debit:1"):
                await asyncio.sleep(0.01)
                if number < 4:
                    raise RuntimeError("undo")
                happened.append(number)

    await asyncio.gather(*(debit(number) for number in range(5)), return_exceptions=True)
    if not happened:  # the one that would have stayed came while another one's was still there
        await debit(4)
    assert happened == [4]
    assert len(await place.sql("select * from inbox_keys")) == 1


def test_without_await(sqlite_place: SqlitePlace) -> None:
    with closing(sqlite3.connect(sqlite_place.path)) as connection:
        with connection:
            assert semel.once_sync(connection, "debit:1")
        with connection:
            assert not semel.once_sync(connection, "debit:1")
        with pytest.raises(semel.InvalidKey):
            semel.once_sync(connection, "")
    with closing(sqlite3.connect(":memory:")) as empty, pytest.raises(semel.MigrationNeeded, match="outbox init"):
        semel.once_sync(empty, "debit:1")


async def test_the_face_of_its_kind(sqlite_place: Place) -> None:
    async with sqlite_place.transaction() as connection:
        with pytest.raises(semel.InvalidValue, match="awaited"):
            semel.once_sync(connection, "debit:1")
