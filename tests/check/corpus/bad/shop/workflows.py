"""Workflows whose helpers stand in other files."""

import contextlib
import functools

import semel
from semel import handler, idle
from semel import query as ask

from . import pricing
from .application import api
from .pricing.total import Total, total as sum_up
from .tools import Clock, each, stamped, timed, twice

helper = functools.partial(sum_up, 3)


@api.task
def charge(cents: int) -> None: ...


@api.workflow
async def process_order(ctx: semel.Context, order_id: str) -> int:
    charge(3)  # expect: D16
    await charge(4)  # expect: D16
    pricing.total.total(1)
    Clock().read()
    Clock.made()
    helper()
    stamped()
    timed(3)
    twice(lambda: open("a"))  # expect: D06
    each([1], key=lambda number: print(number))  # expect: D14
    with contextlib.ExitStack() as stack:
        stack.callback(pricing.total.rounded, charge)
    list(map(pricing.total.rounded, [1]))
    return Total(3).cents

    def unused() -> None:
        open("never called")


@api.entity(name="basket")
class Basket:
    clock: Clock

    def __init__(self) -> None:
        self.other = Clock()
        print("made")  # expect: D14

    @handler("add")
    async def add(self, ctx: semel.Context, item: str) -> None:
        self.clock.tick()
        self.other.tock()
        self._note(item)

    @ask
    def items(self) -> list[str]:
        print("asked")  # expect: D14
        return []

    @idle("1h")
    async def close(self, ctx: semel.Context) -> None:
        print("idle")  # expect: D14

    def _note(self, item: str) -> None:
        print(item)  # expect: D14

    def never(self) -> None:
        print("not called")
