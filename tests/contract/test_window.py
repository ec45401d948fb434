"""A key is seen for at least its window, a duplicate never refreshes it, and memory stays bounded."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.contract import DedupWindow
from semel.errors import InvalidKey, InvalidValue, NotDecodable

START = datetime(2026, 11, 15, 12, tzinfo=UTC)
US = timedelta(microseconds=1)


def at(microseconds: int) -> datetime:
    return START + microseconds * US


def test_a_key_is_seen_until_its_age_is_over_the_window() -> None:
    window = DedupWindow("3d")
    assert window.push("a", START, {"points": 5})
    end = START + timedelta(days=3)
    for now in (START, end - US, end):
        assert window.seen("a", now)
        assert window.result_of("a", now) == {"points": 5}
        assert not window.push("a", now)
    # The duplicates have not refreshed it; and it is not seen although nothing has evicted it yet.
    assert len(window) == 1
    assert not window.seen("a", end + US)
    assert window.result_of("a", end + US) is None
    assert window.push("a", end + US)


def test_a_push_evicts_from_the_oldest_to_the_first_live_one() -> None:
    window = DedupWindow(timedelta(microseconds=10))
    for key, when in (("a", 0), ("b", 1), ("c", 5)):
        window.push(key, at(when))
    window.push("d", at(12))
    assert (len(window), window.evicted, window.overflowed) == (2, 2, 0)
    # A duplicate evicts as well.
    window.push("d", at(16))
    assert (len(window), window.evicted) == (1, 3)


def test_over_its_cap_the_oldest_goes_and_is_counted() -> None:
    window = DedupWindow("3d", max_keys=2)
    for key in "abc":
        assert window.push(key, START)
    assert (len(window), window.overflowed, window.evicted) == (2, 1, 0)
    assert [window.seen(key, START) for key in "abc"] == [False, True, True]


def test_what_helps_to_choose_the_window() -> None:
    window = DedupWindow("3d")
    assert (window.hits, window.last_hit_age, window.max_hit_age) == (0, None, None)
    window.push("a", START)
    window.push("b", START + timedelta(hours=1))
    window.push("a", START + timedelta(hours=5))
    window.push("b", START + timedelta(hours=5))
    assert (window.hits, window.last_hit_age, window.max_hit_age) == (2, timedelta(hours=4), timedelta(hours=5))
    window.seen("a", START + timedelta(hours=9))
    assert window.hits == 2
    assert "2 keys, 2 hits, 0 overflowed" in repr(window)


def test_a_result_can_come_later_and_a_key_be_let_in_again() -> None:
    window = DedupWindow("3d")
    window.push("a", START)
    window.push("b", START)
    assert window.set_result("a", 7)
    assert (window.result_of("a", START), list(window._entries)) == (7, ["a", "b"])
    assert window.forget("a")
    assert window.push("a", START)
    assert window.result_of("a", START) is None
    assert not window.forget("z")
    assert not window.set_result("z", 1)


def test_a_clock_that_goes_backwards_stands_still() -> None:
    window = DedupWindow(timedelta(microseconds=10))
    window.push("a", at(100))
    window.push("b", at(50))
    assert window.seen("a", at(50))
    # b counts from 100: remembered longer than asked for, never shorter, and the order holds.
    assert window.seen("b", at(110))
    window.push("c", at(111))
    assert len(window) == 1


def test_any_time_zone_will_do_and_none_will_not() -> None:
    window = DedupWindow("1h")
    window.push("a", START.astimezone(timezone(timedelta(hours=5))))
    assert not window.push("a", START)
    for ask in (window.push, window.seen, window.result_of):
        with pytest.raises(InvalidValue, match="has no time zone"):
            ask("a", datetime(2026, 11, 15))  # noqa: DTZ001


def test_keys_are_keys_as_everywhere() -> None:
    window = DedupWindow()
    window.push("caf\u00e9", START)
    assert window.seen("cafe\u0301", START)
    for key in ("", " a", "a\n", 5):
        with pytest.raises(InvalidKey, match="dedup_key="):
            window.push(key, START)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"window": "0"}, {"window": "soon"}, {"max_keys": 0}, {"max_keys": True}])
def test_options_out_of_bounds(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(options))):
        DedupWindow(**options)


def test_json_can_be_read_with_other_settings() -> None:
    window = DedupWindow("3d", max_keys=10)
    for index, key in enumerate("abc"):
        window.push(key, START + timedelta(days=index), index)
    data = json.loads(json.dumps(window.to_json()))
    shorter = DedupWindow.from_json(data, window="1d", max_keys=2)
    assert (shorter.window, shorter.max_keys, len(shorter), shorter.overflowed) == (timedelta(days=1), 2, 2, 1)
    assert [shorter.seen(key, START + timedelta(days=3)) for key in "abc"] == [False, False, True]
    longer = DedupWindow.from_json(data, window="9d")
    assert longer.result_of("b", START + timedelta(days=10)) == 1


@pytest.mark.parametrize("data", [{}, [], None, {"v": 2}, {"v": 1, "window": "3d"}, {"v": 1, "window": 5}])
def test_other_json_is_refused(data: Any) -> None:
    with pytest.raises(NotDecodable):
        DedupWindow.from_json(data)
    broken = {**DedupWindow().to_json(), "entries": [["a"]]}
    with pytest.raises(NotDecodable):
        DedupWindow.from_json(broken)


class Naive:
    """The same in the plainest way: a list of everything that is held, searched from end to end."""

    def __init__(self, window: int, max_keys: int) -> None:
        self.window, self.max_keys = window, max_keys
        self.held: list[tuple[str, int, Any]] = []
        self.latest: int | None = None
        self.hits = self.evicted = self.overflowed = 0
        self.ages: list[int] = []

    def clamp(self, now: int) -> int:
        return now if self.latest is None else max(now, self.latest)

    def find(self, key: str, now: int) -> tuple[str, int, Any] | None:
        return next((e for e in self.held if e[0] == key and self.clamp(now) - e[1] <= self.window), None)

    def push(self, key: str, now: int, result: Any) -> bool:
        now = self.latest = self.clamp(now)
        live = [e for e in self.held if now - e[1] <= self.window]
        self.evicted += len(self.held) - len(live)
        self.held = live
        if found := self.find(key, now):
            self.hits += 1
            self.ages.append(now - found[1])
            return False
        self.held.append((key, now, result))
        self.overflowed += max(0, len(self.held) - self.max_keys)
        self.held = self.held[-self.max_keys :]
        return True


keys = st.sampled_from("abcdefgh")
steps = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "push", "seen", "set", "forget", "json"]),
        keys,
        st.integers(-4, 12),
        st.one_of(st.none(), st.integers(0, 9)),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 15), st.integers(1, 6), steps)
def test_it_is_what_a_plain_list_would_be(
    span: int, max_keys: int, steps: list[tuple[str, str, int, int | None]]
) -> None:
    real, model = DedupWindow(span * US, max_keys), Naive(span, max_keys)
    now = 100
    for action, key, passed, result in steps:
        now += passed
        match action:
            case "push":
                assert real.push(key, at(now), result) is model.push(key, now, result)
            case "set":
                held = any(e[0] == key for e in model.held)
                assert real.set_result(key, result) is held
                model.held = [(k, t, result if k == key else r) for k, t, r in model.held]
            case "forget":
                assert real.forget(key) is any(e[0] == key for e in model.held)
                model.held = [e for e in model.held if e[0] != key]
            case "json":
                data = real.to_json()
                real = DedupWindow.from_json(json.loads(json.dumps(data)))
                assert real.to_json() == data
        found = model.find(key, now)
        assert real.seen(key, at(now)) is (found is not None)
        assert real.result_of(key, at(now)) == (found[2] if found else None)
        assert list(real._entries) == [e[0] for e in model.held]
    assert (real.hits, real.evicted, real.overflowed) == (model.hits, model.evicted, model.overflowed)
    assert real.last_hit_age == (model.ages[-1] * US if model.ages else None)
    assert real.max_hit_age == (max(model.ages) * US if model.ages else None)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(keys, st.integers(0, 8)), max_size=80), st.integers(1, 10))
def test_within_its_window_no_key_is_let_in_twice(pushes: list[tuple[str, int]], span: int) -> None:
    window = DedupWindow(span * US, max_keys=8)
    now, let_in = 0, dict[str, int]()
    for key, passed in pushes:
        now += passed
        if window.push(key, at(now)):
            assert key not in let_in or now - let_in[key] > span
            let_in[key] = now
    assert window.overflowed == 0


def calls_of(window: DedupWindow, key: str, now: datetime) -> int:
    """How many functions, of Python or C, one push calls."""
    count = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        window.push(key, now)
    finally:
        sys.setprofile(None)
    return count


def test_a_push_costs_as_much_as_has_expired_and_not_as_much_as_is_held() -> None:
    window = DedupWindow(100_000 * US, max_keys=1_000_000)
    for index in range(100_000):
        window.push(f"k{index}", at(index))
    idle = calls_of(window, "x", at(100_000))
    assert window.evicted == 0
    few = calls_of(window, "y", at(100_010))
    assert window.evicted == 10
    many = calls_of(window, "z", at(101_010))
    assert window.evicted == 1010
    assert idle < 30
    assert few <= idle + 10 * 4
    assert many <= idle + 1000 * 4


def test_copying_what_is_left_is_rare() -> None:
    """The table shrinks only after at least three times as many keys as are left have gone."""
    window = DedupWindow(1000 * US)
    held, copied = window._entries, 0
    for index in range(20_000):
        window.push(f"k{index}", at(index if index % 5000 else index + 900))
        if window._entries is not held:
            held = window._entries
            copied += len(held)
    assert 0 < copied <= window.evicted / 3


@pytest.mark.slow
def test_memory_is_bounded_against_a_million_unique_keys() -> None:
    window = DedupWindow("3d", max_keys=10_000)
    most = 0
    for index in range(1_000_000):
        window.push(f"key-{index}", START)
        if index % 1000 == 0:
            most = max(most, sys.getsizeof(window._entries))
    assert (len(window), window.overflowed) == (10_000, 990_000)
    stored = len(json.dumps(window.to_json(), separators=(",", ":")))
    window.push("last", START + timedelta(days=4))
    assert len(window) == 1
    left = sys.getsizeof(window._entries)
    print(f"10,000 keys: table {most:,} bytes, JSON {stored:,}; after they expired: table {left:,} bytes")
    assert most < 2_500_000
    assert left < 1_000


def test_the_contract_can_be_imported_without_an_event_loop_or_a_driver() -> None:
    heavy = "{'asyncio', 'concurrent', 'threading', 'socket', 'ssl', 'logging', 'subprocess', 'sqlite3', 'apsw'}"
    code = f"from semel.contract import DedupWindow; import sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
