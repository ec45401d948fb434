"""The demo's last line is computed, and when it is not true the demo says so."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from semel import Execution, Explanation, Status, Suppressed
from semel.cli.demo import claim
from semel.cli.demo_shop import Entry, Ledger, read_ledger
from tests.cli.shell import semel

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ONCE = "once: 1 charge, 50 requests, 49 duplicates suppressed, 1 crash survived"


def demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "semel", "demo", "--dir", "state", *options],
        cwd=folder, capture_output=True, text=True, timeout=100,
    )  # fmt: skip


@pytest.mark.slow
def test_the_demo_twice(tmp_path: Path) -> None:
    first = demo(tmp_path)
    assert first.returncode == 0, first
    assert first.stdout.splitlines()[-1] == ONCE
    ledger = read_ledger(tmp_path / "state")
    assert [entry.charged for entry in ledger] == [True, False]
    assert len({entry.key for entry in ledger}) == 1
    second = demo(tmp_path)
    assert second.returncode == 0, second
    assert "already done" in second.stdout
    assert ledger[0].charge in second.stdout
    assert read_ledger(tmp_path / "state") == ledger, "nothing was charged"
    _tamper(tmp_path / "state")
    third = demo(tmp_path)
    assert (third.returncode, "NOT once: the provider's ledger has 2 charges" in third.stdout) == (1, True)


def _tamper(state: Path) -> None:
    file = state / "ledger.jsonl"
    entry = json.loads(file.read_text().splitlines()[0])
    with file.open("a") as ledger:
        ledger.write(json.dumps({**entry, "charge": "ch_0002"}) + "\n")


def entry(charged: bool = True, key: str = "k", charge: str = "ch_1") -> Entry:
    return Entry(0.0, key, "o", 1, charge, charged)


def told(duplicates: int = 49, attempt: int = 2, status: Status = Status.COMPLETED, times: int = 1) -> Explanation:
    one = Execution(
        id="1", kind="task", name="pay", key="k", queue="q", priority=0, status=status, attempt=attempt,
        max_attempts=5, created_at=NOW, run_at=None, started_at=NOW, finished_at=NOW, retention=timedelta(1),
        window=timedelta(1), generation=0, previous_id=None, worker=None, progress=None, cancel_requested=False,
        error=None, expired=False,
    )  # fmt: skip
    reason: Any = "joined"
    return Explanation("k", "task", (one,) * times, (Suppressed("1", reason, duplicates, NOW, NOW),), NOW)


TRUE: dict[str, Any] = {
    "ledger": [entry(), entry(charged=False)], "told": told(), "kills": 1, "receipts": ["ch_1"] * 50,
}  # fmt: skip


def test_a_true_claim() -> None:
    result = claim(**TRUE)
    assert (str(result), result.doubts) == (ONCE, ())


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("ledger", [entry(), entry(charge="ch_2")]),
        ("ledger", [entry(), entry(charged=False, key="other")]),
        ("ledger", [entry()]),
        ("ledger", []),
        ("told", told(duplicates=48)),
        ("told", told(duplicates=50)),
        ("told", told(attempt=1)),
        ("told", told(status=Status.FAILED)),
        ("told", told(times=2)),
        ("kills", 0),
        ("receipts", ["ch_1"] * 49),
        ("receipts", ["ch_1"] * 49 + ["ch_2"]),
    ],
)
def test_a_claim_that_is_not_true(what: str, value: Any) -> None:
    assert claim(**{**TRUE, what: value}).doubts


def test_a_damaged_state_or_a_useless_folder_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = semel("demo", "--dir", str(tmp_path / "file"))
    assert (told.code, "Give another --dir" in told.err) == (2, True)
    (tmp_path / "shop.db").write_text("this is not a database, and long enough to be seen as such")
    told = semel("demo", "--dir", str(tmp_path))
    assert (told.code, "semel demo --fresh" in told.out) == (1, True)
    (tmp_path / "shop.db").unlink()
    (tmp_path / "ledger.jsonl").write_text("nonsense\n")
    told = semel("demo", "--dir", str(tmp_path))
    assert (told.code, "cannot be read" in told.out) == (1, True)


def test_the_provider_honours_keys_also_after_a_restart(tmp_path: Path) -> None:
    first = Ledger(tmp_path).call("k", "o", 1)
    again = Ledger(tmp_path).call("k", "o", 1)
    other = Ledger(tmp_path).call("k2", "o", 1)
    assert (first.charge, again.charge) == (first.charge, first.charge)
    assert (first.charged, again.charged, other.charged) == (True, False, True)
    assert other.charge != first.charge
    assert len(read_ledger(tmp_path)) == 3
