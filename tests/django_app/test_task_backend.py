"""Django's tasks on Semel: `enqueue` inside `atomic()` belongs to the transaction, whatever database is below."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.test import override_settings
from django_tasks import TaskResultStatus, default_task_backend, task_backends
from django_tasks.checks import check_tasks
from django_tasks.exceptions import InvalidTaskError, TaskResultDoesNotExist, TaskResultMismatch
from django_tasks.signals import task_enqueued, task_finished, task_started

import semel
from tests.django_app.site import BACKEND, Site


def insert(site: Site, number: int) -> None:
    """A row of the business."""
    site.sql(f"insert into orders (id) values ({number})")


def test_committed_it_runs(site: Site) -> None:
    with site.atomic():
        insert(site, 1)
        result = site.shop.ship.enqueue(7, note="now")
        assert result.status == TaskResultStatus.READY
        assert (result.args, result.kwargs) == ([7], {"note": "now"})
    assert site.orders() == [1]
    again = site.shop.ship.get_result(result.id)
    assert (again.status, again.args, again.kwargs) == (TaskResultStatus.READY, [7], {"note": "now"}), "no relay yet"
    site.work()
    assert site.orders() == [1, 7]
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.return_value == {"order": 7, "note": "now"}
    assert result.attempts == 1
    assert result.enqueued_at <= result.started_at <= result.finished_at
    with pytest.raises(TaskResultMismatch):
        site.shop.fail.get_result(result.id)


def test_rolled_back_it_never_was(site: Site) -> None:
    with site.rolled_back():
        insert(site, 1)
        result = site.shop.ship.enqueue(7)
    assert site.orders() == []
    assert site.rows() == 0
    with pytest.raises(TaskResultDoesNotExist):
        site.shop.ship.get_result(result.id)
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()


def test_a_savepoint_that_is_rolled_back_takes_it_along(site: Site) -> None:
    with site.atomic():
        site.shop.ship.enqueue(1)
        with site.rolled_back():
            site.shop.ship.enqueue(2)
        with site.atomic():
            site.shop.ship.enqueue(3)
    site.work()
    assert site.orders() == [1, 3]


def test_outside_of_atomic_it_is_a_transaction_of_its_own(site: Site) -> None:
    mode = getattr(site.connection, "transaction_mode", None)
    result = site.shop.ship.enqueue(7)
    assert not site.connection.in_atomic_block
    assert site.connection.get_autocommit()
    assert getattr(site.connection, "transaction_mode", None) == mode
    site.work()
    assert site.shop.ship.get_result(result.id).return_value["order"] == 7


def test_a_duplicate_runs_once_and_has_the_same_id(site: Site) -> None:
    once = site.shop.ship.using(task_id="ship:7")
    with site.atomic():
        first = once.enqueue(7)
        second = once.enqueue(7)
    third = once.enqueue(7)
    assert first.id == second.id == third.id == "ship:7"
    site.work()
    assert once.enqueue(7).id == "ship:7"
    site.work()
    assert site.orders() == [7], "a second run would have failed, and left its error"
    third.refresh()
    assert third.status == TaskResultStatus.SUCCESSFUL


def test_another_input_under_the_same_key(site: Site) -> None:
    once = site.shop.ship.using(task_id="ship:7")
    once.enqueue(7)
    if site.elsewhere:  # the engine is not asked: its row fails
        once.enqueue(8)
    else:
        with site.atomic():
            with pytest.raises(semel.KeyConflict):
                once.enqueue(8)
            insert(site, 1)  # the transaction can be used
    site.work()
    assert site.orders() == ([7] if site.elsewhere else [1, 7])
    assert once.get_result("ship:7").args == [7]


def test_a_bad_argument_writes_nothing_and_leaves_the_transaction_usable(site: Site) -> None:
    wrong: list[tuple[Any, ...]] = [(), (1, "a", "b"), (object(),), ({1: {2}},), (datetime.now(UTC),)]
    with site.atomic():
        for arguments in wrong:
            with pytest.raises(TypeError):
                site.shop.ship.enqueue(*arguments)
        with pytest.raises(TypeError):
            site.shop.ship.enqueue(1, no_such=2)
        with pytest.raises(semel.InvalidKey):
            site.shop.ship.using(task_id=" ").enqueue(1)
        insert(site, 1)
    assert site.orders() == [1]
    assert site.rows() == 0


def test_run_after_priority_and_queue(site: Site) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    task = site.shop.ship.using(run_after=later, priority=7, queue_name="mail", task_id="ship:7")
    task.enqueue(7)
    site.relay()
    handle = site.app.sync.find("ship:7")
    assert handle is not None
    found = handle.describe()
    assert (found.queue, found.priority) == ("mail", 7)
    assert found.run_at is not None
    assert abs(found.run_at - later) < timedelta(seconds=1)
    assert task.get_result("ship:7").status == TaskResultStatus.READY


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": 101},
        {"priority": 1.5},
        {"queue_name": "no-such"},
        {"run_after": datetime(2026, 1, 1)},  # noqa: DTZ001
    ],
)
def test_what_the_api_does_not_allow_is_refused(sqlite_site: Site, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidTaskError):
        sqlite_site.shop.ship.using(**changes)


def test_capabilities(sqlite_site: Site) -> None:
    names = ("defer", "async_task", "get_result", "priority")
    assert all(getattr(default_task_backend, f"supports_{name}") for name in names)


def test_from_async_code(site: Site) -> None:
    async def main() -> Any:
        try:
            result = await site.shop.ship.aenqueue(7)
            return await site.shop.ship.aget_result(result.id)
        finally:
            await sync_to_async(connections.close_all)()

    result = asyncio.run(main())
    assert result.status == TaskResultStatus.READY
    site.work()
    asyncio.run(_refresh(result))
    assert result.return_value["order"] == 7


async def _refresh(result: Any) -> None:
    try:
        await result.arefresh()
    finally:
        await sync_to_async(connections.close_all)()


def test_a_coroutine_and_a_context(outbox_site: Site) -> None:
    doubled, tried = outbox_site.shop.ship_async.enqueue(7), outbox_site.shop.try_twice.enqueue(7)
    outbox_site.work()
    doubled.refresh()
    tried.refresh()
    assert doubled.return_value == 14
    assert tried.return_value == 2
    assert tried.attempts == 2


def test_failures_and_signals(sqlite_site: Site) -> None:
    site, heard = sqlite_site, []

    def hear(signal: Any, task_result: Any, **more: Any) -> None:
        heard.append((signal, task_result.task.name, task_result.status))

    signals = (task_enqueued, task_started, task_finished)
    for one in signals:
        one.connect(hear)
    try:
        failed, odd = site.shop.fail.enqueue(7), site.shop.give_a_set.using(task_id="odd").enqueue()
        site.work()
    finally:
        for one in signals:
            one.disconnect(hear)
    for result, kind in ((failed, KeyError), (odd, TypeError)):
        result.refresh()
        assert result.status == TaskResultStatus.FAILED
        assert [error.exception_class for error in result.errors] == [kind]
        with pytest.raises(ValueError, match="Task failed"):
            _ = result.return_value
    assert "order 7" in failed.errors[0].traceback
    mine = [(signal, status) for signal, name, status in heard if name == "fail"]
    assert mine == [
        (task_enqueued, TaskResultStatus.READY),
        (task_started, TaskResultStatus.RUNNING),
        (task_finished, TaskResultStatus.FAILED),
    ]
    assert sum(signal is task_finished for signal, name, _ in heard if name == "give_a_set") == 1, "of two tries"


def test_a_task_that_is_cancelled_has_failed(sqlite_site: Site) -> None:
    result = sqlite_site.shop.ship.using(task_id="x", run_after=datetime.now(UTC) + timedelta(days=1)).enqueue(1)
    sqlite_site.app.sync.enqueue(sqlite_site.app.tasks.task(sqlite_site.shop.ship.module_path), [1], {}, task_id="y")
    found = sqlite_site.app.sync.find("y")
    assert found is not None
    found.cancel()
    cancelled = sqlite_site.shop.ship.get_result("y")
    assert cancelled.status == TaskResultStatus.FAILED
    assert cancelled.errors[0].exception_class is semel.ExecutionCancelled
    assert sqlite_site.shop.ship.get_result(result.id).status == TaskResultStatus.READY


@pytest.mark.parametrize("id", ["nothing", "0" * 32, "", "a\nb"])
def test_a_result_that_is_not_there(sqlite_site: Site, id: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        sqlite_site.shop.ship.get_result(id)


def test_past_its_retention_there_is_no_result(sqlite_site: Site) -> None:
    result = sqlite_site.shop.ship.using(task_id="old").enqueue(1)
    sqlite_site.work()

    async def let_it_pass() -> None:
        await sqlite_site.world.advance("8d")
        await sqlite_site.app.clean()
        await sqlite_site.app.close()

    asyncio.run(let_it_pass())
    sqlite_site.sql("delete from outbox_events")
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()


def test_settings_are_checked(sqlite_site: Site) -> None:
    options: dict[str, Any] = {"app": "tests.django_app.no_such.app", "database": "no-such"}
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": options}}):
        found = list(check_tasks())
        assert [one.id for one in found] == ["semel.E001", "semel.E002"]
        assert "no_such" in found[0].msg
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": {"app": "semel.App"}}}):
        assert [one.id for one in check_tasks()][:1] == ["semel.E001"]
    for wrong in ({}, {"app": sqlite_site.app, "databse": "x"}):
        with (
            override_settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": wrong}}),
            pytest.raises(ImproperlyConfigured, match="TASKS"),
        ):
            _ = task_backends["default"].queues
