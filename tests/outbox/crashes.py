"""What is broken at every statement: relaying and cleaning, with the statements of the engine in between."""

from __future__ import annotations

from semel.errors import EngineError
from semel.testing.faults import Fault
from semel.transactional.outbox import scripts
from semel.transactional.outbox.relay import Relay
from tests.outbox.shop import OutboxShop
from tests.world import unbounded

ORDERS = 3
SENDS = 'insert into outbox_events (event_type, payload) values (\'semel.task\', \'{"name": "ship", "arguments": '
SENDS += '{"order": 9}}\')'


async def write_rows(shop: OutboxShop) -> None:
    """Three orders with keys, and one without, from plain SQL."""
    for number in range(ORDERS):
        await shop.order(number)
    await shop.place.sql(SENDS)


async def break_at(shop: OutboxShop, relay: Relay, fault: Fault) -> None:
    """Have the statements of the outbox and of the engine go through one fault."""
    await shop.app.queues()  # what the engine does once is not what is tried here
    relay._database.tap = fault
    unbounded(shop.app.engine)._store.tap = fault  # type: ignore[attr-defined]


async def relay_everything(relay: Relay) -> None:
    """Relay until nothing is due. What the database says is what the loop of a relay would wait for."""
    while True:
        try:
            if not await relay.step():
                return
        except EngineError:
            return


async def clean_up(relay: Relay) -> None:
    """Delete what was processed, and leave."""
    try:
        await relay._clean()
    except EngineError:
        return


async def redrive_everything(relay: Relay) -> None:
    """Have all that was processed carried out again, as `app.outbox.redrive_processed` does it."""
    last: int | None = 0
    try:
        while last is not None:
            _, last = await relay._database.run(scripts.redrive_processed(relay._namespace, 0.0, last))
    except EngineError:
        return


async def check_everything(shop: OutboxShop) -> None:
    """Another relay goes on: each row was started once, and no row has lost a try."""
    await shop.place.due_now()
    await shop.relay_all()
    await shop.place.due_now()
    await shop.relay_all()
    left = await shop.place.sql("select status, retry_count, last_error, leased_by from outbox_events")
    assert all(row == ("processed", 0, None, None) for row in left), left
    assert await shop.world.count() == ORDERS + 1
