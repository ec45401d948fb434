"""Events that nothing gathers or limits cost what they did: not one statement more."""

from __future__ import annotations

from typing import Any

import semel
from tests.world import World


class Heard:
    """Notes the statements that are run."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def before(self, statement: str) -> None:
        """See StatementHook."""
        self.statements.append(statement)

    def after(self, statement: str) -> None:
        """See StatementHook."""


async def test_an_event_that_nothing_gathers_costs_one_statement(world: World) -> None:
    app = world.app()

    @app.on_event("invoice.paid")
    @app.task
    async def bill(event: semel.EventEnvelope) -> None: ...

    @app.on_event("invoice.*", id="gathering", where="data.cents > 1000", debounce="1h", cancel_on="order.void")
    @app.task
    async def gather(event: semel.EventEnvelope) -> None: ...

    await app.apply()

    def paid(id: str, cents: int) -> semel.EventEnvelope:
        return semel.EventEnvelope(event_id=id, source="/shop", type="invoice.paid", data={"cents": cents})

    await app.publish(paid("first", 1))  # subscriptions are read, and the lane is made
    events: Any = await app.engine.events()
    heard = Heard()
    stored = getattr(events, "inner", events)._store
    stored.tap = heard
    try:
        await app.publish(paid("plain", 1))
        plain = [one for one in heard.statements if not one.startswith(("begin", "commit"))]
        heard.statements.clear()
        await app.publish(paid("gathered", 2000))
        gathered = [one for one in heard.statements if not one.startswith(("begin", "commit"))]
    finally:
        stored.tap = None
    assert plain == ["publish_new"]
    assert len(gathered) <= 8
