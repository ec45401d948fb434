"""What an entity carries to a new history has to fit into a payload: answers are given up first, then old keys."""

import asyncio
import logging
import random
from pathlib import Path

import pytest
from msgspec import Raw

import semel
from semel.contract.decision import Reason
from semel.engines.temporal import entity_carryover
from semel.engines.temporal.entity_carryover import Row, pack, unpack
from semel.engines.temporal.inside import entity
from tests.conftest import new_world
from tests.temporal_world import TemporalWorld

DICE = random.Random(1)


def rows(count: int, size: int) -> list[Row]:
    """Answers that cannot be made smaller."""
    return [
        Row(n, f"key-{n}", n, Raw(b'["completed","%s",null]' % DICE.randbytes(size).hex().encode()))
        for n in range(count)
    ]


def test_all_of_it_if_it_fits() -> None:
    given = rows(100, 10)
    packed = pack(given, b'["state"]')
    assert (packed.answers, packed.keys) == (0, 0)
    found = unpack(packed.data)
    assert (found.rows, bytes(found.start)) == (given, b'["state"]')


def test_the_oldest_answers_go_first_and_keys_stay() -> None:
    packed = pack(rows(1000, 500), most=200_000)
    assert len(packed.data) <= 200_000
    found = unpack(packed.data).rows
    assert (len(found), packed.keys) == (1000, 0)
    without = [row.n for row in found if row.answer is None]
    assert without == list(range(packed.answers))
    assert 600 < packed.answers < 950


def test_then_the_oldest_keys() -> None:
    packed = pack(rows(20_000, 10), most=50_000)
    assert len(packed.data) <= 50_000
    found = unpack(packed.data).rows
    assert packed.keys == 20_000 - len(found) > 0
    assert [row.n for row in found] == list(range(packed.keys, 20_000))


def test_a_state_without_room_for_any_key() -> None:
    state = b'"%s"' % DICE.randbytes(50_000).hex().encode()
    packed = pack(rows(100, 10), state, most=1000)
    assert (unpack(packed.data).rows, packed.keys) == ([], 100)


def test_the_most_that_there_can_be_is_packed_quickly() -> None:
    packed = pack(rows(10_000, 3000), b"{}")
    assert len(packed.data) <= entity_carryover.MOST
    assert packed.keys == 0


@pytest.mark.slow
async def test_an_entity_with_more_than_fits(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is never stuck, and says what it gave up."""
    monkeypatch.setattr(entity, "LONG", 30)
    monkeypatch.setattr(entity_carryover, "MOST", 3000)
    monkeypatch.setattr(pack, "__defaults__", (None, 0, 3000))
    world = new_world("temporal", tmp_path, request)
    assert isinstance(world, TemporalWorld)
    app = world.app()

    @app.entity
    class Notes:
        count: int = 0

        @semel.handler
        async def note(self, ctx: semel.EntityContext, text: str) -> str:
            self.count += 1
            return text

    notes = app.entity(Notes, "n")
    texts = [DICE.randbytes(200).hex() for _ in range(40)]
    async with world.worker(app):
        with caplog.at_level(logging.WARNING):
            for n, text in enumerate(texts):
                assert await notes.ask("note", text, dedup_key=f"k{n}", timeout="60s") == text
        assert "are forgotten, the oldest ones" in caplog.text
        await asyncio.gather(*(notes.send("note", texts[n], dedup_key=f"k{n}") for n in range(30, 40)))
        assert await notes.ask("note", "more", timeout="60s") == "more"
        assert (await notes.state()).count == 41
        with pytest.raises(semel.ResultExpired):
            await notes.ask("note", texts[2], dedup_key="k2", timeout="60s")
        with pytest.raises(semel.KeyConflict):  # also where the answer had to be given up
            await notes.ask("note", "again", dedup_key="k2", timeout="60s")
    explained = await app.explain(notes.key, kind="entity")
    assert {s.reason: s.count for s in explained.suppressed} == {Reason.SEEN: 11, Reason.MESSAGE_DIFFERS: 1}
