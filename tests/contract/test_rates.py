"""A bucket never gives more than its rate allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.contract.rates import Bucket, Rate, parse_rate, refill, take, wait_for_one
from semel.errors import InvalidValue

rates = st.builds(Rate, st.integers(1, 1000), st.sampled_from([1.0, 60.0, 3600.0, 86400.0]))
moments = st.lists(st.tuples(st.floats(0, 500), st.integers(0, 2000)), min_size=1, max_size=40)


@given(rates, moments)
def test_no_interval_gives_more_than_count_and_rate_times_length(rate: Rate, moments: list[tuple[float, int]]) -> None:
    bucket, now, given_out = None, 1_000_000.0, []
    for pause, wanted in moments:
        now += pause
        bucket, got = take(refill(bucket, rate, now), wanted)
        assert 0 <= got <= wanted
        given_out.append((now, got))
    for i, (since, _) in enumerate(given_out):
        for j in range(i, len(given_out)):
            length = given_out[j][0] - since
            assert sum(got for _, got in given_out[i : j + 1]) <= rate.count * (1 + length / rate.per) + 1e-3


@given(rates, st.lists(st.tuples(st.floats(-500, 500), st.integers(0, 2000)), max_size=40))
def test_a_clock_that_goes_back_gives_nothing_away(rate: Rate, moments: list[tuple[float, int]]) -> None:
    bucket, now, total = refill(None, rate, 10_000.0), 10_000.0, 0
    latest = now
    for step, wanted in moments:
        now += step
        latest = max(latest, now)
        bucket, got = take(refill(bucket, rate, now), wanted)
        total += got
        assert 0 <= bucket.tokens <= rate.count
        assert bucket.at == latest
    assert total <= rate.count * (1 + (latest - 10_000.0) / rate.per) + 1e-3


@given(rates, st.integers(0, 2000), st.floats(0, 1e6))
def test_after_the_wait_there_is_one(rate: Rate, taken: int, now: float) -> None:
    bucket, _ = take(refill(None, rate, now), taken)
    later = refill(bucket, rate, now + wait_for_one(bucket, rate) + 1e-6)
    assert take(later, 1)[1] == 1


def test_a_full_bucket_gives_its_count_at_once_and_then_waits() -> None:
    rate = parse_rate("100/sec")
    bucket, got = take(refill(None, rate, 5.0), 1000)
    assert (bucket, got) == (Bucket(0.0, 5.0), 100)
    assert wait_for_one(bucket, rate) == pytest.approx(0.01)
    assert take(refill(bucket, rate, 5.5), 1000)[1] == 50


def test_a_quiet_day_does_not_save_up() -> None:
    rate = parse_rate("10/min")
    assert take(refill(Bucket(0.0, 0.0), rate, 86_400.0), 1000)[1] == 10


@given(rates)
def test_a_rate_is_written_as_it_is_read(rate: Rate) -> None:
    assert parse_rate(str(rate)) == rate
    assert parse_rate(rate) is rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [("100/sec", Rate(100, 1)), ("10 / min", Rate(10, 60)), ("500/hour", Rate(500, 3600)),
     ("1/day", Rate(1, 86_400)), ("3/s", Rate(3, 1)), ("3/m", Rate(3, 60))],
)  # fmt: skip
def test_the_forms_people_use(text: str, rate: Rate) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "bad", ["", "100", "100/", "/sec", "0/sec", "-1/sec", "1.5/sec", "100/week", "100 per sec", 100, None, b"1/s"]
)
def test_what_is_no_rate_is_refused_by_the_name_of_its_option(bad: object) -> None:
    with pytest.raises(InvalidValue, match=r"queues\.a\.rate_limit=.* is not a rate"):
        parse_rate(bad, "queues.a.rate_limit")  # type: ignore[arg-type]
