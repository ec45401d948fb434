"""Tasks as people write them for Django."""

from __future__ import annotations

from typing import Any

from django.db import connections
from django_tasks import task

alias = ""
"""The database of the test that runs."""


@task
def ship(order: int, note: str = "shipped") -> dict[str, Any]:
    """Writes a row, which shows how often it ran: a second one for the same order fails."""
    with connections[alias].cursor() as cursor:
        cursor.execute("insert into orders (id, note) values (%s, %s)", [order, note])
    return {"order": order, "note": note}


@task
async def ship_async(order: int) -> int:
    """A coroutine."""
    return order * 2


@task(takes_context=True, retry=2)
def try_twice(context: Any, order: int) -> int:
    """Fails at its first try."""
    if context.attempt == 1:
        raise ValueError(f"order {order} has no address")
    return int(context.attempt)


@task(retry=1)
def fail(order: int) -> None:
    raise KeyError(f"order {order}")


@task(retry=2)
def give_a_set() -> Any:
    return {1, 2}
