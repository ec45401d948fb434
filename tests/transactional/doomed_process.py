"""A process of its own that commits one order, leaves a second one uncommitted, and waits to be killed."""

from __future__ import annotations

import asyncio
import sys

import semel
from tests.transactional.kinds import KINDS


async def main(url: str, kind: str) -> None:
    app = semel.App(url, config=None)

    @app.task
    async def ship(order: int) -> str:
        return f"shipped {order}"

    made = next(one for kinds in KINDS.values() for one in kinds if one.__name__ == kind)(url, app)
    await made.connect()
    for number in (1, 2):
        await made.begin()
        await made.insert(number)
        await made.start(ship, number, task_id=f"order-{number}")
        if number == 1:
            await made.commit()
    print("ready", flush=True)
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
