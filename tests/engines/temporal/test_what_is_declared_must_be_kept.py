"""How long a namespace has to keep: the longest retention or window of anything that is declared."""

from __future__ import annotations

from datetime import timedelta

import semel
from semel.engines.temporal.namespace import longest
from semel.settings import Settings


def days(number: int) -> timedelta:
    return timedelta(days=number)


def test_nothing_declared_needs_what_workflows_need() -> None:
    assert longest([], Settings())[0] == days(30)


def test_the_longest_of_all_counts() -> None:
    app = semel.App("sqlite:///:memory:", config=None)

    @app.task
    def mail() -> None: ...

    assert longest(app.tasks, app.settings) == (days(7), "task 'mail'")

    @app.workflow
    async def order(ctx: semel.Context) -> None: ...

    assert longest(app.tasks, app.settings) == (days(30), "workflow 'order'")

    @app.task(queue="payments", dedup_window="90d")
    def charge() -> None: ...

    assert longest(app.tasks, app.settings) == (days(90), "task 'charge'")
    app.configure_queue("payments", retention="100d")
    assert longest(app.tasks, app.settings)[0] == days(100)
    app.configure_queue("archive", dedup_window="1000d")
    assert longest(app.tasks, app.settings) == (days(1000), "queue 'archive'")
