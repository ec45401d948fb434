"""An impatient part of the shop: asks for the same payment many times at once, and waits for every receipt.

Run in the demo's folder: python -m semel.cli.demo.customer TIMES. It says "ready" and begins with a line on stdin.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading

from semel.cli.demo.shop import CENTS, KEY, ORDER, app, pay

PATIENCE = "60s"


def say(**what: object) -> None:
    """One line for the demo."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def end_with_the_demo() -> None:
    """The demo holds the other end of stdin until it is over, however it ends."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(1)


async def ask(times: int) -> None:
    """Ask, tell how many were admitted, and tell the receipts."""
    async with app:  # leaving writes the counts of duplicates, so that `explain` knows all of them
        await app.queues()  # open the database before the others begin
        say(ready=True)
        if not await asyncio.to_thread(sys.stdin.readline):
            return
        threading.Thread(target=end_with_the_demo, daemon=True).start()
        handles = await asyncio.gather(*(app.enqueue(pay.call(ORDER, CENTS), task_id=KEY) for _ in range(times)))
        say(asked=times, admitted=sum(not handle.duplicate for handle in handles))
        receipts = await asyncio.gather(*(handle.result(timeout=PATIENCE) for handle in handles))
        say(receipts=[receipt.charge for receipt in receipts])


if __name__ == "__main__":
    asyncio.run(ask(int(sys.argv[1])))
