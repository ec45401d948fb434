"""An entity in memory: messages that come together are handled one by one, and can be gone through again."""

import asyncio
from dataclasses import field
from typing import Any

import pytest
from msgspec import Raw

import semel
from semel.contract.records import ErrorInfo
from semel.flow.entity import FEW, Actor
from semel.flow.entity_messages import Seen, SeenRow
from semel.flow.entries import Began, Resolved, Signalled
from semel.flow.snapshot import Snapshot
from semel.flow.turn import Arrival, Identity, Turn

WHO = Identity("id", "Diary/one", "Diary", "default", "default", 0, b"{}")
SECOND = 1_000_000


def diary(start: Snapshot | None = None, keys: Any = ()) -> Actor:
    app = semel.App("sqlite:///:memory:")

    @app.entity
    class Diary:
        lines: list[str] = field(default_factory=list)

        @semel.handler
        async def note(self, ctx: semel.EntityContext, text: str) -> None:
            self.lines.append(text)

        @semel.handler
        async def draw(self, ctx: semel.EntityContext) -> None:
            number = hash(asyncio.get_running_loop().create_future())  # what the order in sets comes from
            await ctx.step(lambda: 6, name=f"{number}-{ctx.random.randrange(10**9)}-{ctx.uuid4()}")

        @semel.handler
        async def end(self, ctx: semel.EntityContext) -> None:
            ctx.end()

    entity = app.tasks.entity("Diary")
    return Actor(
        entity,
        WHO,
        app.settings,
        start or Snapshot(b"{}"),
        Seen(entity.fresh_window(), [SeenRow(*key) for key in keys]),
    )


def letters(*texts: str, first: int = 1) -> list[Arrival]:
    return [
        Arrival(SECOND, Signalled("note", Raw(b'{"text":"%b"}' % text.encode()), text), row)
        for row, text in enumerate(texts, first)
    ]


def lines(turn: Turn) -> bytes:
    assert turn.snapshot is not None
    return turn.snapshot.input


def test_what_comes_together_is_handled_in_order_and_leaves_one_snapshot() -> None:
    one = diary()
    turn = one.turn(SECOND, letters("a", "b", "c"))
    assert lines(turn) == b'{"lines":["a","b","c"]}'
    assert (turn.entries, turn.consumed, turn.hits) == ([], [1, 2, 3], 0)
    assert [(reply.key, reply.n) for reply in turn.replies] == [("a", 1), ("b", 2), ("c", 3)]


def test_one_by_one_or_together_makes_no_difference() -> None:
    together, one_by_one = diary(), diary()
    texts = [str(n) for n in range(3 * FEW)]
    turn = together.turn(SECOND, letters(*texts))
    last = [one_by_one.turn(SECOND, letters(text, first=row)) for row, text in enumerate(texts, 1)][-1]
    assert lines(turn) == lines(last)
    assert turn.snapshot is not None
    assert last.snapshot is not None
    assert (turn.snapshot.counts, turn.snapshot.numbers) == (last.snapshot.counts, last.snapshot.numbers)


def test_a_duplicate_among_them_counts_once() -> None:
    turn = diary().turn(SECOND, letters("a", "b", "a", "b"))
    assert lines(turn) == b'{"lines":["a","b"]}'
    assert (turn.consumed, turn.hits) == ([1, 2, 3, 4], 2)
    turn = diary(keys=[(1, "a", SECOND)]).turn(SECOND, letters("a"))
    assert (turn.consumed, turn.hits, turn.replies) == ([1], 1, [])


@pytest.mark.parametrize("before", [0, 1, 2])
def test_one_that_waits_can_be_gone_through_again(before: int) -> None:
    """From what is written down: before it, those behind it, and what it asked for. Dice fall the same way."""
    first = letters("a", "b")[:before]
    draw = Arrival(SECOND, Signalled("draw", Raw(b"{}"), "draw"), 9)
    behind = letters("c", "d", first=10)
    one = diary()
    turn = one.turn(SECOND, [*first, draw, *behind])
    assert isinstance(turn.entries[0], Began)
    assert turn.snapshot is not None
    again = diary(turn.snapshot, [(reply.n, reply.key, reply.at) for reply in turn.replies])
    again.replay(turn.entries)
    assert [c.name for c in again.in_place] == [c.name for c in one.in_place]
    (command,) = one.in_place
    for it in (one, again):
        last = it.turn(2 * SECOND, [Arrival(2 * SECOND, Resolved(command.number, "completed", Raw(b"6")))])
        texts = [*["a", "b"][:before], "c", "d"]
        assert lines(last) == b'{"lines":["%b"]}' % '","'.join(texts).encode()
        assert [reply.key for reply in last.replies] == ["draw", "c", "d"]


@pytest.mark.timeout(20)
def test_one_that_is_held_lets_all_in_and_handles_none() -> None:
    one = diary()
    one.turn(SECOND, letters("a"))
    one.hold(1 << 20)
    texts = [str(n) for n in range(FEW + 10)]
    turn = one.turn(SECOND, letters(*texts, first=2))
    assert (lines(turn), turn.replies) == (b'{"lines":["a"]}', [])
    assert turn.snapshot is not None
    assert [signal.key for signal in turn.snapshot.signals] == texts


def test_one_that_ends_leaves_those_behind_it_to_the_next_life() -> None:
    end = Arrival(SECOND, Signalled("end", Raw(b"{}"), "end"), 2)
    turn = diary().turn(SECOND, [*letters("a"), end, *letters("b", first=3)])
    assert turn.ended is None
    assert turn.again is not None
    assert [signal.key for signal in turn.again.signals] == ["b"]
    assert turn.again.input == b"{}"


LOST = ErrorInfo("semel.WorkerLost", "ten times")


@pytest.mark.parametrize("at_once", [True, False])
def test_one_that_cost_workers_handles_one_message_a_turn(at_once: bool) -> None:
    """Whether they wait in its inbox or in its snapshot; and all of them come to the same as without."""
    start = None if at_once else Snapshot(b"{}", signals=tuple(signalled(*"abc")))
    one = diary(start)
    one.isolate_messages(careful=True)
    waiting = letters("a", "b", "c") if at_once else []
    turns = []
    for _ in range(3):
        turns.append(turn := one.turn(SECOND, waiting))
        waiting = [arrival for arrival in waiting if arrival.row not in turn.consumed]
    assert [[reply.key for reply in turn.replies] for turn in turns] == [["a"], ["b"], ["c"]]
    assert [turn.more for turn in turns] == [not at_once, not at_once, False]
    assert all(turn.moved and not turn.entries for turn in turns)
    assert lines(turns[-1]) == b'{"lines":["a","b","c"]}'


def test_one_that_is_careful_can_be_gone_through_again() -> None:
    one = diary(Snapshot(b"{}", signals=(*signalled("a"), Signalled("draw", Raw(b"{}"), "draw"), *signalled("b"))))
    one.isolate_messages(careful=True)
    one.turn(SECOND, [])
    turn = one.turn(2 * SECOND, [])
    assert turn.snapshot is not None
    again = diary(turn.snapshot, [(1, "a", SECOND)])
    again.replay(turn.entries)
    assert [c.name for c in again.in_place] == [c.name for c in one.in_place] != []


def test_a_doomed_message_fails_and_the_next_one_does_not() -> None:
    one = diary()
    one.isolate_messages(careful=True, fail_next_with=LOST)
    turn = one.turn(SECOND, letters("a", "b"))
    assert [(reply.key, reply.error) for reply in turn.replies] == [("a", LOST)]
    turn = one.turn(SECOND, letters("b", first=2))
    assert lines(turn) == b'{"lines":["b"]}'
    assert [(reply.key, reply.error) for reply in turn.replies] == [("b", None)]


def test_a_doomed_message_that_waits_is_left_out_of_what_begins_anew() -> None:
    draw = Arrival(SECOND, Signalled("draw", Raw(b"{}"), "draw"), 9)
    turn = diary().turn(SECOND, [*letters("a"), draw, *letters("b", first=10)])
    again = diary(turn.snapshot, [(reply.n, reply.key, reply.at) for reply in turn.replies])
    again.isolate_messages(careful=True, fail_next_with=LOST)
    again.replay(turn.entries)
    turn = again.turn(2 * SECOND, letters("c", first=11))
    assert (turn.entries, turn.consumed, turn.commands) == ([], [], [])
    assert [(reply.key, reply.n, reply.error) for reply in turn.replies] == [("draw", 2, LOST)]
    assert turn.again is not None
    assert turn.again.input == b'{"lines":["a"]}'
    assert [signal.key for signal in turn.again.signals] == ["b"]


def signalled(*texts: str) -> list[Signalled]:
    return [letter.what for letter in letters(*texts) if isinstance(letter.what, Signalled)]
