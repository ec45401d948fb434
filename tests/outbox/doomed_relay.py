"""A process that relays, or writes, and is killed at its n-th statement: python -m tests.outbox.doomed_relay …"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from semel.testing.faults import Fault, Mode
from tests.outbox.crashes import break_at, clean_up, relay_everything
from tests.outbox.places import PLACES
from tests.outbox.shop import OutboxShop
from tests.world import World


async def main(kind: str, url: str, engine: str, what: str, at: int) -> None:
    place = PLACES[kind](url)
    shop = OutboxShop(World("sqlite", engine), place)
    if what == "write":
        async with place.transaction() as connection:
            await place.insert(connection, 1)
            if at == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            await shop.app.enqueue(shop.ship, 1, task_id="ship:1", connection=connection)
            if at == 2:
                os.kill(os.getpid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    async with shop.relay(batch=2, retention=0.0) as relay:
        await break_at(shop, relay, Fault(at, Mode.KILL))
        await (clean_up(relay) if what == "clean" else relay_everything(relay))
    await shop.world.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])))
