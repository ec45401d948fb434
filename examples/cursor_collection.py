"""Collect a feed into your own table: no event twice, none missed, even with a crash between any two steps.

    python examples/cursor_collection.py

Reading from the feed happens at least once. Storing events and moving the cursor happen exactly once each, because
they are transactions in the database that holds the journal; and two collectors of one feed cannot move it back.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol

from rich import print

import semel

app = semel.App(namespace="cursor-collection")
PAGE = 3
PAGES_IN_A_RUN = 100


@dataclass
class Event:
    id: str
    body: str


@dataclass
class Page:
    events: list[Event]
    next: int
    """Where the next page begins."""


class Feed(Protocol):
    """Where events come from."""

    async def read(self, stream: str, cursor: int, limit: int) -> Page: ...


@dataclass
class FakeFeed:
    """Numbered events; like many real feeds it repeats the last event of a page on the next one."""

    events: list[Event] = field(default_factory=lambda: [Event(f"e{n}", f"body {n}") for n in range(1, 9)])

    async def read(self, stream: str, cursor: int, limit: int) -> Page:
        found = self.events[max(0, cursor - 1) : cursor + limit]
        return Page(found, min(len(self.events), cursor + limit))


feed: Feed = FakeFeed()


@app.task(retry=10)
async def fetch(stream: str, cursor: int) -> Page:
    return await feed.read(stream, cursor, PAGE)


def make_tables(tx: Any) -> None:
    tx.execute("create table if not exists feed_cursor (stream text primary key, position bigint not null)")
    tx.execute(
        "create table if not exists feed_event (stream text, id text, body text not null, primary key (stream, id))"
    )


def load_cursor(tx: Any, stream: str) -> int:
    tx.execute("insert into feed_cursor (stream, position) values ($1, 0) on conflict do nothing", stream)
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
async def collect(ctx: semel.Context, stream: str, stored: int = 0) -> int:
    """Collect until the feed has no more events, and return how many were new."""
    for _ in range(PAGES_IN_A_RUN):
        cursor = await ctx.transaction(load_cursor, stream)
        page = await ctx.execute_task(fetch, stream, cursor)
        if page.next == cursor:
            return stored
        stored += await ctx.transaction(ingest, stream, page.events)
        if not await ctx.transaction(save_cursor, stream, cursor, page.next):
            return stored  # another collector is ahead and does the rest
    return ctx.continue_as_new(stream, stored)


async def main() -> None:
    async with app, app.worker():
        await (await app.start_workflow(set_up, workflow_id="set-up:feeds")).result("1m")
        for slot in ("09:00", "09:05"):
            handle = await app.start_workflow(collect, "orders", workflow_id=f"collect:orders:{slot}")
            print(slot, await handle.result("1m"), "new events")


if __name__ == "__main__":
    asyncio.run(main())
