"""A failure hook is bounded: however slow or broken it is, the worker goes on and says what it was not told."""

import asyncio
import threading

import pytest

from semel import App, ErrorInfo, Failure, InvalidValue, Status
from semel.runtime import failure_hook
from semel.runtime.failure_hook import FailureHook
from tests.world import eventually


def failure(key: str) -> Failure:
    return Failure("id", "task", "work", key, "default", 1, Status.FAILED, ErrorInfo("ValueError", "no"), None)


async def test_failures_are_handed_over_one_after_the_other(caplog: pytest.LogCaptureFixture) -> None:
    told, under_way = [], []

    async def remember(one: Failure) -> None:
        under_way.append(one)
        assert len(under_way) == 1
        await asyncio.sleep(0)
        under_way.pop()
        told.append(one.key)

    hook = FailureHook(remember)
    for n in range(10):
        hook.submit(failure(str(n)))
    await hook.drain()
    assert told == [str(n) for n in range(10)]
    assert caplog.messages == []


def test_what_cannot_be_called_is_refused_at_the_door() -> None:
    with pytest.raises(InvalidValue, match="on_failure='report': give a function"):
        App("sqlite:///:memory:", config=None, on_failure="report")  # type: ignore[arg-type]


async def test_more_than_it_can_take_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_hook, "MOST_WAITING", 3)
    told = []
    hook = FailureHook(lambda one: told.append(one.key))
    for n in range(10):
        hook.submit(failure(str(n)))
    await hook.drain()
    assert told == ["0", "1", "2"]
    assert "on_failure did not hear of 7 failures: it was too slow" in caplog.messages


@pytest.mark.parametrize("error", [RuntimeError("broken"), StopIteration(), SystemExit(3), KeyboardInterrupt()])
async def test_whatever_it_raises_the_next_is_handed_over(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    told = []

    def remember(one: Failure) -> None:
        told.append(one.key)
        raise error

    hook = FailureHook(remember)
    hook.submit(failure("a"))
    hook.submit(failure("b"))
    await hook.drain()
    assert told == ["a", "b"]
    assert caplog.messages == ["on_failure(work id) raised; nothing else is affected"] * 2


async def test_one_that_hangs_is_given_up_and_not_called_without_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_hook, "LONGEST", 0.01)
    called, ends = [], threading.Event()

    def hang(one: Failure) -> None:
        called.append(one.key)
        ends.wait(60)

    hook = FailureHook(hang)
    try:
        for n in range(failure_hook.MOST_STUCK + 2):
            hook.submit(failure(str(n)))
        await hook.drain()
        assert len(called) == failure_hook.MOST_STUCK
        assert caplog.text.count("has not returned within 0.01 s") == failure_hook.MOST_STUCK
        assert "earlier calls have not returned" in caplog.text
    finally:
        ends.set()


async def test_a_worker_that_stops_does_not_wait_for_it_for_long(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_hook, "DRAIN_WITHIN", 0.01)
    begun, cancelled = asyncio.Event(), []

    async def hang(one: Failure) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(one.key)
            raise

    hook = FailureHook(hang)
    hook.submit(failure("a"))
    await begun.wait()
    await hook.drain()
    await eventually(lambda: cancelled == ["a"])
    assert "the worker stops without it" in caplog.text
