"""Whose silence is it? A worker counts as dead only after the database has answered an observer for a whole lease."""

from __future__ import annotations

from semel.engines.journal.leases import Reachability

LEASE = 30_000_000
START = 1_000.0
SERVER = 1_700_000_000_000_000


def beaten(*times: float, lease: int = LEASE, jump: float = 0.0, jump_at: float = 1e9) -> Reachability:
    """A series of heartbeats at these times, answered at once; the server's clock jumps at one of them."""
    seen = Reachability()
    for at in times:
        ahead = jump if at >= jump_at else 0.0
        seen.answered(lease, START + at, START + at, SERVER + round((at + ahead) * 1e6))
    return seen


def test_a_series_without_gaps_counts_from_its_beginning() -> None:
    assert beaten(0, 10, 20, 30).missing(LEASE, START + 30) == 0
    assert beaten(0, 10, 20).missing(LEASE, START + 20) == 10
    assert beaten(0).missing(LEASE, START) == 30


def test_after_a_gap_everybody_has_the_time_of_a_lease() -> None:
    seen = beaten(0, 10, 20, 30, 46)
    assert seen.missing(LEASE, START + 46) == 30
    assert "did not answer" in seen.why
    assert beaten(0, 10, 20, 30, 44).missing(LEASE, START + 44) == 0


def test_a_slow_answer_is_a_gap_as_well() -> None:
    seen = beaten(0, 10, 20, 30)
    seen.answered(LEASE, START + 40, START + 50, SERVER + 50_000_000)  # asked after ten seconds, answered ten later
    assert seen.missing(LEASE, START + 50) == 30


def test_after_a_jump_of_the_servers_clock_too() -> None:
    for jump in (3600.0, 5.0, -5.0, -3600.0):
        seen = beaten(0, 10, 20, 30, 40, jump=jump, jump_at=40)
        assert seen.missing(LEASE, START + 40) == 30, jump
        assert "clock" in seen.why
    assert beaten(0, 10, 20, 30, 40, jump=1.0, jump_at=40).missing(LEASE, START + 40) == 0


def test_a_shorter_lease_asks_for_shorter_gaps() -> None:
    seen = beaten(0, 10, 20, 30)
    seen.track(3_000_000, START + 30)
    assert seen.missing(3_000_000, START + 30) == 3
    for at in (31, 32, 33):
        seen.answered(LEASE, START + at, START + at, SERVER + at * 1_000_000)
    assert seen.missing(3_000_000, START + 33) == 0


def test_a_longer_lease_takes_what_was_seen_for_a_shorter_one() -> None:
    seen = beaten(0, 10, 20, 30)
    seen.track(60_000_000, START + 30)
    assert seen.missing(60_000_000, START + 30) == 30
