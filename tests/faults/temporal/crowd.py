"""What other processes do: children of the fork server, each with a connection of its own."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from tests.faults.forks import Say
from tests.faults.temporal.place import Place


def _kitchen(place: dict[str, str]) -> Any:
    there = Place(**place)
    os.environ.update(there.environment)
    return there.kitchen()


async def duplicates(say: Say, *, place: dict[str, str], times: int) -> None:
    """Ask for the same thing many times at once, and share its result."""
    kitchen = _kitchen(place)
    async with kitchen.app as app:
        handles = await asyncio.gather(*(app.enqueue(kitchen.chop, "o", task_id="one") for _ in range(times)))
        results = await asyncio.gather(*(handle.result(timeout="100s") for handle in handles))
        say({"ids": sorted({h.id for h in handles}), "new": sum(not h.duplicate for h in handles), "got": results})
