"""A database that does not answer is one line in the log, and its return another one."""

import logging

import pytest

from semel.errors import EngineUnavailable
from semel.runtime.outage import Outage


def test_all_parts_of_a_worker_share_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "semel")
    outage, error = Outage("database", "w1"), EngineUnavailable("no answer.")
    outage.regained("heart")
    assert caplog.messages == []
    for part in ("claim", "heart", "claim", "heart"):
        outage.lost(part, error)
    assert caplog.messages == ["the database does not answer worker w1 (claim): no answer"]
    assert outage.lasts
    caplog.clear()
    outage.regained("heart")
    assert caplog.messages == [], "a part still gets no answer"
    outage.regained("claim")
    outage.regained("heart")
    (line,) = caplog.messages
    assert line.startswith("the database answers worker w1 again, after ")
    assert not outage.lasts
    caplog.clear()
    outage.lost("turns", error)
    assert caplog.messages == [], "a call that was under way when the database came back"


def test_one_part_may_speak_for_all(caplog: pytest.LogCaptureFixture) -> None:
    outage, error = Outage("cluster", "w1"), EngineUnavailable("no answer.")
    for part in ("queues", "heart", "functions"):
        outage.lost(part, error)
    outage.regained("heart", for_all=True)
    assert [line.partition(" worker")[0] for line in caplog.messages] == [
        "the cluster does not answer",
        "the cluster answers",
    ]
