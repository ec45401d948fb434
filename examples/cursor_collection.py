"""Collect a feed into your own table by a schedule: no event twice, none missed, with a crash between any two steps.

    python examples/cursor_collection.py

Each run collects its window, from the slot before to its own, and windows tile: after an outage one run covers all that
was missed. Reading from the feed happens at least once. Storing events and moving the cursor happen exactly once each,
because they are transactions in the database that holds the journal; two collectors of one feed cannot move it back.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from rich import print

import semel

app = semel.App(namespace="cursor-collection")
PAGE = 3
PAGES_IN_A_RUN = 100


@dataclass
class Event:
    id: str
    at: int
    """When it happened, in seconds since 1970."""
    body: str


@dataclass
class Page:
    events: list[Event]
    next: int
    """Everything up to this time is on this page, or on one before it."""


class Feed(Protocol):
    """Where events come from."""

    async def read(self, stream: str, after: int, until: int, limit: int) -> Page: ...


@dataclass
class FakeFeed:
    """One event at equal distances; like many real feeds it repeats the last event of a page on the next one."""

    begin: int = 1_750_000_000
    every: int = 60
    count: int = 8

    async def read(self, stream: str, after: int, until: int, limit: int) -> Page:
        events = [Event(f"e{at}", at, f"body {at}") for at in self.times if after <= at <= until][: limit + 1]
        return Page(events, events[-1].at if len(events) > limit else until)

    @property
    def times(self) -> range:
        return range(self.begin, self.begin + self.every * self.count, self.every)


feed: Feed = FakeFeed()


@app.task(retry=10)
async def fetch(stream: str, after: int, until: int) -> Page:
    return await feed.read(stream, after, until, PAGE)


def make_tables(tx: Any) -> None:
    tx.execute("create table if not exists feed_cursor (stream text primary key, position bigint not null)")
    tx.execute(
        "create table if not exists feed_event (stream text, id text, body text not null, primary key (stream, id))"
    )


def load_cursor(tx: Any, stream: str, begin: int) -> int:
    """How far the stream is collected; one that is new begins with the window of its first run."""
    tx.execute("insert into feed_cursor (stream, position) values ($1, $2) on conflict do nothing", stream, begin)
    return int(tx.execute("select position from feed_cursor where stream = $1", stream)[0][0])


def ingest(tx: Any, stream: str, events: list[Event]) -> int:
    """Return how many events were new: an event that is already stored is skipped."""
    insert = "insert into feed_event (stream, id, body) values ($1, $2, $3) on conflict do nothing returning id"
    return sum(len(tx.execute(insert, stream, event.id, event.body)) for event in events)


def save_cursor(tx: Any, stream: str, old: int, new: int) -> bool:
    """Compare and set: a collector that finds the cursor elsewhere was overtaken, and changes nothing."""
    moved = "update feed_cursor set position = $1 where stream = $2 and position = $3 returning position"
    return bool(tx.execute(moved, new, stream, old))


@app.workflow
async def set_up(ctx: semel.Context) -> None:
    await ctx.transaction(make_tables)


@app.workflow
async def collect(ctx: semel.Context, stream: str, run: semel.Run, stored: int = 0) -> int:
    """Collect up to the end of the window, and return how many events were new.

    It begins at the cursor, which is where the window begins unless the run before it failed.
    """
    window = run.window
    until = int(window.end.timestamp())
    begin = 0 if window.start is None else int(window.start.timestamp())
    for _ in range(PAGES_IN_A_RUN):
        cursor = await ctx.transaction(load_cursor, stream, begin)
        if cursor >= until:
            return stored
        page = await ctx.execute_task(fetch, stream, cursor, until)
        stored += await ctx.transaction(ingest, stream, page.events)
        if not await ctx.transaction(save_cursor, stream, cursor, page.next):
            return stored  # another collector is ahead and does the rest
    return ctx.continue_as_new(stream, run, stored)


async def main() -> None:
    global feed
    begin = int(time.time())
    feed = happened = FakeFeed(begin, every=1, count=1000)
    async with app:
        async with app.worker():
            await (await app.start_workflow(set_up, workflow_id="set-up:feeds")).result("1m")
            await app.schedules.put("collect:orders", collect, "orders", every="1s", misfire="compress")
            await asyncio.sleep(2)
        await asyncio.sleep(3)  # an outage: no worker runs
        async with app.worker():
            await asyncio.sleep(2)
            await app.schedules.delete("collect:orders")
            runs = [run for run in await app.schedules.runs("collect:orders") if run.scheduled_for.timestamp() >= begin]
            runs.reverse()
            new = [await (await app.get(run.execution)).result("1m") for run in runs]
    first, last = runs[0].window_start, runs[-1].scheduled_for
    assert first is not None
    due = [at for at in happened.times if first.timestamp() <= at <= last.timestamp()]
    print("windows tile:", all(a.scheduled_for == b.window_start for a, b in pairwise(runs)))
    print("one run covers the outage:", max(run.slots for run in runs) >= 2)
    print("no event twice, none missed:", sum(new) == len(due))


if __name__ == "__main__":
    asyncio.run(main())
