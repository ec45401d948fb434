"""Slots depend on the timing alone: whole seconds of UTC, found forwards, backwards and by counting alike."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from itertools import islice, pairwise
from time import process_time
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.contract.occurrences import Outcome, explain_wall, preview
from semel.contract.timing import Timing, jitter_share
from semel.errors import InvalidValue

PARIS = "Europe/Paris"
JITTER = 469452590176861416


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def first(timing: Timing, after: str, count: int) -> list[str]:
    return [slot.isoformat() for slot in islice(timing.slots(at(after)), count)]


def on_day(timing: Timing, day: str) -> list[str]:
    """The slots of a day in Paris."""
    begin = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(PARIS))
    after, until = (begin - timedelta(seconds=1)).astimezone(UTC), (begin + timedelta(days=1)).astimezone(UTC)
    return [slot.isoformat() for slot in timing.oldest(100, after, until - timedelta(seconds=1))]


SPRING, AUTUMN = "2026-03-29", "2026-10-25"


def test_the_examples_of_paris() -> None:
    daily, thrice, always = (Timing(cron=c, timezone=PARIS) for c in ("30 2 * * *", "*/20 2 * * *", "*/30 * * * *"))
    assert on_day(daily, SPRING) == ["2026-03-29T01:00:00+00:00"]
    assert on_day(daily, AUTUMN) == ["2026-10-25T00:30:00+00:00"]
    assert on_day(thrice, SPRING) == ["2026-03-29T01:00:00+00:00"]
    assert on_day(thrice, AUTUMN) == [f"2026-10-25T00:{minute}:00+00:00" for minute in ("00", "20", "40")]
    for day, hours in ((SPRING, 23), (AUTUMN, 25)):
        found = [datetime.fromisoformat(slot) for slot in on_day(always, day)]
        assert len(found) == 2 * hours
        assert {b - a for a, b in pairwise(found)} == {timedelta(minutes=30)}


def test_who_wants_otherwise() -> None:
    def of(cron: str, **options: Any) -> tuple[list[str], list[str]]:
        timing = Timing(cron=cron, timezone=PARIS, **options)
        return tuple([slot[11:16] for slot in on_day(timing, day)] for day in (SPRING, AUTUMN))  # type: ignore[return-value]

    assert of("30 2 * * *", nonexistent="skip") == ([], ["00:30"])
    assert of("30 2 * * *", repeated="last") == (["01:00"], ["01:30"])
    assert of("30 2 * * *", repeated="both") == (["01:00"], ["00:30", "01:30"])
    # A time that is shifted onto another slot is one with it.
    assert of("0 2,3 * * *") == (["01:00"], ["00:00", "02:00"])
    # What matches every hour goes by elapsed time, whatever the policy.
    assert of("0 * * * *", nonexistent="skip", repeated="last") == of("0 * * * *")


def test_two_times_of_one_zone_compare_by_instants() -> None:
    """Fault 34: by the wall clock, as Python compares them, the second pass of an hour would come first."""
    zone = ZoneInfo(PARIS)
    second_pass = datetime(2026, 10, 25, 2, 10, tzinfo=zone, fold=1)
    first_pass = datetime(2026, 10, 25, 2, 50, tzinfo=zone)
    assert second_pass < first_pass  # by the wall clock; as instants it is the other way round
    timing = Timing(cron="*/30 * * * *", timezone=PARIS)
    assert timing.next_slot(first_pass) == at("2026-10-25T01:00")
    assert timing.next_slot(second_pass) == at("2026-10-25T01:30")
    assert Timing(every="10m", start_at=first_pass, end_at=second_pass).count(at("2026-10-24"), at("2026-10-26")) == 2


def test_expressions_that_meet_are_one_slot() -> None:
    timing = Timing(cron=("0 9 * * *", "0 9 * * MON", "0 10 * * MON"))
    assert first(timing, "2026-11-15T10:00", 3) == [
        "2026-11-16T09:00:00+00:00",
        "2026-11-16T10:00:00+00:00",
        "2026-11-17T09:00:00+00:00",
    ]


def test_intervals_are_anchored() -> None:
    assert first(Timing(every="7m"), "2026-11-17T09:00:00.5", 2) == [
        "2026-11-17T09:02:00+00:00",
        "2026-11-17T09:09:00+00:00",
    ]
    timing = Timing(every="1h30m", start_at=at("2026-11-17T09:10"), end_at=at("2026-11-17T12:10"))
    assert first(timing, "2026-01-01", 9) == ["2026-11-17T09:10:00+00:00", "2026-11-17T10:40:00+00:00"]
    assert timing.next_slot(at("2026-11-17T10:40")) is None
    assert timing.previous_slot(at("2026-11-17T09:10")) is None
    assert timing.newest_slot(at("2026-11-17T09:10")) == at("2026-11-17T09:10")


def test_single_times_round_up_and_merge() -> None:
    timing = Timing(at=(at("2026-11-17T09:00:00.25"), at("2026-11-17T09:00:01"), at("2026-11-01T00:00")))
    assert first(timing, "2026-01-01", 9) == ["2026-11-01T00:00:00+00:00", "2026-11-17T09:00:01+00:00"]
    assert Timing(at=at("2026-11-01T00:00")).one_shot


def test_exclusions_go_by_the_wall_clock() -> None:
    timing = Timing(cron="0 9,22 * * *", timezone="America/New_York", exclude=(date(2026, 12, 25), "* 22 * * SAT,SUN"))
    assert first(timing, "2026-12-24T20:00", 5) == [
        "2026-12-25T03:00:00+00:00",  # still the 24th there
        "2026-12-26T14:00:00+00:00",
        "2026-12-27T14:00:00+00:00",
        "2026-12-28T14:00:00+00:00",
        "2026-12-29T03:00:00+00:00",
    ]
    span = timing.excluded_span(at("2026-12-24T20:00"), at("2026-12-29T03:00"))
    assert span is not None
    assert (span.first, span.last, span.count) == (at("2026-12-25T14:00"), at("2026-12-28T03:00"), 4)
    every = Timing(every="1h", timezone=PARIS, exclude=("* 0-22 * * *",))
    assert first(every, "2026-07-01", 2) == ["2026-07-01T21:00:00+00:00", "2026-07-02T21:00:00+00:00"]
    seconds = Timing(cron="*/20 * * * * *", seconds=True, exclude=("* 1-23 * * *", "20 * * * * *"))
    assert first(seconds, "2026-07-01", 2) == ["2026-07-01T00:00:40+00:00", "2026-07-01T00:01:00+00:00"]


def test_jitter_is_fixed_for_each_slot_and_stays_before_the_next() -> None:
    timing = Timing(every="1h", jitter="2h", schedule_id="digest")
    fires = [timing.fires_at(slot) - slot for slot in islice(timing.slots(at("2026-11-17")), 200)]
    assert all(timedelta(0) <= delay < timedelta(hours=1) for delay in fires)
    assert max(fires) > timedelta(minutes=50)
    assert min(fires) < timedelta(minutes=10)
    # Stored nowhere, so it must never change: half of the workers may run another version.
    assert jitter_share("digest", at("2026-11-17T09:00")) == JITTER
    assert jitter_share("digest", at("2026-11-17T09:00").astimezone(ZoneInfo(PARIS))) == JITTER
    assert Timing(every="1h").fires_at(at("2026-11-17T09:00")) == at("2026-11-17T09:00")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "none of them"),
        ({"cron": "* * * * *", "every": "5m"}, "cron= and every="),
        ({"cron": "* * * * *", "after": "finish"}, "goes with every= only"),
        ({"every": "0"}, "whole seconds, at least one"),
        ({"every": "1500ms"}, "whole seconds"),
        ({"every": "soon"}, "is not a duration"),
        ({"every": "5m", "repeated": "both"}, "go with cron= only"),
        ({"every": "5m", "seconds": True}, "goes with cron= only"),
        ({"every": "5m", "after": "noon"}, "use one of 'start', 'finish'"),
        ({"cron": "* * * * *", "nonexistent": "first"}, "use one of 'shift', 'skip'"),
        ({"cron": "* * * * *", "repeated": "never"}, "use one of 'first', 'last', 'both'"),
        ({"cron": "* * * * *", "anchor": datetime(2026, 1, 1, tzinfo=UTC)}, "goes with every= only"),
        ({"cron": "* * * * *", "timezone": "Europe/Pariss"}, "Did you mean 'Europe/Paris'"),
        ({"cron": "* * * * *", "timezone": "localtime"}, "not an IANA time zone"),
        ({"cron": "* * * * *", "timezone": "right/UTC"}, "not an IANA time zone"),
        ({"cron": "* * * * *", "timezone": "America"}, "not an IANA time zone"),
        ({"cron": "* * * * *", "timezone": "../etc/passwd"}, "not an IANA time zone"),
        ({"cron": "* * * * *", "timezone": ""}, "not an IANA time zone"),
        ({"cron": "* * * * *", "start_at": datetime(2026, 1, 1)}, "start_at=.*has no time zone"),  # noqa: DTZ001
        ({"at": datetime(2026, 1, 1)}, "at=.*has no time zone"),  # noqa: DTZ001
        ({"at": "tomorrow"}, "is not a datetime"),
        ({"at": datetime(1969, 1, 1, tzinfo=UTC)}, "from 1970"),
        (
            {"every": 5, "start_at": datetime(2026, 1, 1, tzinfo=UTC), "end_at": datetime(2026, 1, 1, tzinfo=UTC)},
            "is not after start_at",
        ),
        ({"cron": "* * * * *", "jitter": "5s"}, "schedule_id"),
        ({"cron": "* * * * *", "exclude": "* * * * *"}, "never fire"),
        ({"cron": "0 9 * * *", "exclude": ("2026-02-30",)}, "is not a date"),
        ({"cron": "0 9 * * *", "exclude": datetime(2026, 1, 1, tzinfo=UTC)}, "give a date"),
        ({"cron": "0 9 * * *", "exclude": "0 9 * *"}, "exclude='0 9"),
        ({"cron": 5}, "give one, or a list"),
        ({"cron": ["* * * * *"] * 1001}, "at most 1000"),
    ],
)
def test_what_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        Timing(**options)


def test_naive_times_are_refused_and_any_zone_will_do() -> None:
    timing = Timing(every="1h")
    with pytest.raises(InvalidValue, match="has no time zone"):
        timing.next_slot(datetime(2026, 1, 1))  # noqa: DTZ001
    there = at("2026-11-17T08:30").astimezone(timezone(timedelta(hours=5)))
    assert timing.next_slot(there) == at("2026-11-17T09:00")
    with pytest.raises(InvalidValue, match="depend on the end of the last run"):
        Timing(every="1h", after="finish").next_slot(there)
    anchored = Timing(every="1h", after="finish").anchor_at(at("2026-11-17T09:10:00.5"))
    assert anchored.next_slot(at("2026-11-17T09:10:01")) == at("2026-11-17T10:10:01")


def test_a_missed_year_is_counted_in_no_time() -> None:
    after, until = at("2025-11-17"), at("2026-11-17")
    for timing, expected in (
        (Timing(cron="* * * * *", timezone=PARIS), 525_600),
        (Timing(cron=("* * * * *", "*/7 3 * * *"), timezone=PARIS, exclude="* 3 * * *"), 503_700),
        (Timing(cron="* * * * * *", seconds=True), 31_536_000),
        (Timing(every="1s"), 31_536_000),
    ):
        begin = process_time()
        span = timing.span(after, until)
        assert process_time() - begin < 1
        assert span is not None
        assert span.count == expected
        assert len(timing.newest(10, after, until)) == 10


timings = st.one_of(
    st.builds(
        lambda cron, zone, repeated, exclude: Timing(cron=cron, timezone=zone, repeated=repeated, exclude=exclude),
        st.lists(
            st.sampled_from(
                ["0 */6 * * *", "30 2 * * *", "*/45 1-3 * * *", "15 * * * 0", "0 0 1,L * *", "7 7 * * 2#1"]
            ),
            min_size=1,
            max_size=3,
        ).map(tuple),
        st.sampled_from(["UTC", PARIS, "Australia/Lord_Howe", "Pacific/Apia", "America/St_Johns"]),
        st.sampled_from(["first", "last", "both"]),
        st.sampled_from([(), "2011-03-27", "* 0-1 * * 1-5", ("* 2 1-7 * *", "2011-11-06")]),
    ),
    st.builds(
        lambda every, exclude: Timing(every=every, exclude=exclude, start_at=at("2011-02-03T04:05:06")),
        st.integers(1800, 400_000),
        st.sampled_from([(), "* 3-9 * * *", ("2011-03-27", "2011-12-30")]),
    ),
    st.lists(st.integers(0, 365 * 24), min_size=1, max_size=20).map(
        lambda hours: Timing(at=tuple(at("2011-01-01") + timedelta(hours=h) for h in hours))
    ),
)


@settings(max_examples=120, deadline=None)
@given(timings, st.integers(0, 366 * 86_400), st.integers(0, 60 * 86_400))
def test_every_verb_gives_the_same_slots(timing: Timing, begin: int, length: int) -> None:
    after = at("2010-12-31") + timedelta(seconds=begin)
    until = after + timedelta(seconds=length)
    slots = []
    for slot in timing.slots(after):
        if slot > until:
            break
        slots.append(slot)
    assert slots == sorted(set(slots))
    assert timing.count(after, until) == len(slots)
    assert timing.newest(5, after, until) == slots[-5:]
    assert timing.oldest(5, after, until) == slots[:5]
    walk, backwards = timing.newest_slot(until), []
    while walk is not None and walk > after:
        backwards.append(walk)
        walk = timing.previous_slot(walk)
    assert backwards[::-1] == slots
    span = timing.span(after, until)
    assert (span and (span.first, span.last, span.count)) == ((slots[0], slots[-1], len(slots)) if slots else None)
    for slot in slots[:20]:
        assert (slot.microsecond, slot.tzinfo) == (0, UTC)
        around = timing.around(slot)
        assert (around.before, around.newest) == (timing.previous_slot(slot), slot)
        assert around.following == timing.next_slot(slot)


@settings(max_examples=60, deadline=None)
@given(timings, st.integers(0, 366 * 86_400))
def test_a_preview_has_every_slot_once(timing: Timing, begin: int) -> None:
    after = at("2010-12-31") + timedelta(seconds=begin)
    shown: list[datetime] = []
    for found in islice(preview(timing, after), 40):
        assert bool(found.slots) is (found.outcome in (Outcome.FIRES, Outcome.SHIFTED))
        shown += found.slots
    if shown:
        # A time that comes twice shows its second pass with its first, before what fires in between.
        settled = max(shown) - timedelta(days=1)
        expected = {slot for slot in timing.oldest(200, after, settled) if slot < settled}
        assert expected <= set(shown)
    assert all(timing.newest_slot(slot) == slot for slot in shown)


def test_why_a_wall_time_does_not_fire() -> None:
    timing = Timing(
        cron="30 2 * * *",
        timezone=PARIS,
        start_at=at("2026-03-01"),
        end_at=at("2026-11-01"),
        exclude=("2026-05-01",),
        nonexistent="skip",
    )

    def outcome(wall: str, of: Timing = timing) -> Outcome:
        return explain_wall(of, datetime.fromisoformat(wall)).outcome

    assert outcome("2026-02-27T02:30") is Outcome.BEFORE_START
    assert outcome("2026-03-28T02:30") is Outcome.FIRES
    assert outcome("2026-03-29T02:30") is Outcome.LEFT_OUT
    assert outcome("2026-05-01T02:30") is Outcome.EXCLUDED
    assert outcome("2026-05-02T02:31") is Outcome.UNSCHEDULED
    assert outcome("2026-11-02T02:30") is Outcome.AFTER_END
    shifted = explain_wall(Timing(cron="30 2 * * *", timezone=PARIS), datetime(2026, 3, 29, 2, 30))  # noqa: DTZ001
    assert (shifted.outcome, shifted.slots) == (Outcome.SHIFTED, (at("2026-03-29T01:00"),))
    twice = explain_wall(Timing(cron="*/30 * * * *", timezone=PARIS), datetime(2026, 10, 25, 2, 30))  # noqa: DTZ001
    assert twice.slots == (at("2026-10-25T00:30"), at("2026-10-25T01:30"))
    with pytest.raises(InvalidValue, match="has a time zone"):
        explain_wall(timing, at("2026-03-29T01:00"))
    shown = [one.outcome for one in preview(timing, at("2026-10-29T12:00"))]
    assert shown == [Outcome.FIRES, Outcome.FIRES, Outcome.AFTER_END]
    every = Timing(every="1d", exclude="2026-11-19", end_at=at("2026-11-21"))
    assert [one.outcome.name for one in preview(every, at("2026-11-17T12:00"))] == [
        "FIRES",
        "EXCLUDED",
        "FIRES",
        "AFTER_END",
    ]
