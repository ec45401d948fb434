"""`semel.testing.running` lets the body of a task be tested without a worker."""

from __future__ import annotations

import pytest

import semel
import semel.testing


def test_current_and_effect_key_answer_inside_the_block_and_not_outside() -> None:
    with pytest.raises(semel.OutsideTask):
        semel.current()
    with semel.testing.running("order-1", attempt=2) as execution:
        assert semel.current() is execution
        assert (execution.key, execution.attempt) == ("order-1", 2)
        first = semel.effect_key("charge")
        semel.current().heartbeat("half way")
    assert execution.progress == "half way"
    with pytest.raises(semel.OutsideTask):
        semel.effect_key("charge")
    with semel.testing.running("order-1", attempt=3):
        assert semel.effect_key("charge") == first


def test_without_a_key_each_execution_has_effects_of_its_own() -> None:
    with semel.testing.running() as one:
        first = semel.effect_key("charge")
    with semel.testing.running() as other:
        assert semel.effect_key("charge") != first
    assert one.id != other.id
