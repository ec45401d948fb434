"""What looks like an effect and is none."""

import asyncio
import contextlib
import datetime as dt
import functools
import hashlib
import json
import logging
import math
import os
import pathlib
import random
import re
import socket
import time
import urllib.parse
import uuid
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import httpx
import numpy as np
import requests
import semel

if TYPE_CHECKING:
    import sqlite3

    stamp = time.time()

app = semel.App()
log = logging.getLogger(__name__)
BEGAN = datetime.now(UTC)
HOME = os.environ.get("HOME", "")
LIMITS = {"a": 1}
NAMESPACE = uuid.uuid4()


@app.task
async def charge(cents: int) -> int:
    print("tasks may do anything", time.time(), open("x"))
    return cents


@app.workflow
async def values(ctx: semel.Context, text: str, moment: datetime) -> list[object]:
    a = datetime(2026, 1, 1)
    b = dt.datetime.fromisoformat(text)
    c = date(2026, 1, 1) + timedelta(days=1)
    d = uuid.UUID(text)
    e = uuid.uuid5(uuid.NAMESPACE_DNS, text)
    f = random.Random(text)
    g = f.random() + random.Random(x=3).random()
    h = np.random.default_rng(7).random()
    i = pathlib.PurePath(text).name
    j = os.path.join(text, "a")
    k = time.struct_time((2026, 1, 1, 0, 0, 0, 0, 0, 0))
    m = time.strftime("%Y", k)
    n = time.gmtime(0)
    o = pathlib.Path(text).with_suffix(".py").name
    p = hashlib.sha256(text.encode()).hexdigest()
    q = urllib.parse.quote(text)
    r = moment.strftime("%Y") + moment.replace(tzinfo=UTC).isoformat()
    s = ctx.now() + timedelta(seconds=1)
    t = ctx.uuid4()
    u = ctx.random.choice([1, 2]) + ctx.random.random()
    v = json.dumps({"a": 1})
    w = re.sub("a", "b", text)
    x = math.floor(3.2)
    y = httpx.Timeout(3)
    z = socket.htons(80)
    log.info("logging is fine %s", BEGAN)
    logging.warning("so is this")
    return [a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v, w, x, y, z, HOME]


@app.workflow
async def waiting(ctx: semel.Context, names: list[str]) -> None:
    await asyncio.sleep(3)
    await ctx.sleep("1h")
    async with asyncio.timeout(3):
        await asyncio.gather(*[ctx.execute_task(charge, 1) for _ in names])
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.execute_task(charge, 2))
    queue: asyncio.Queue[int] = asyncio.Queue()
    await queue.put(1)
    event = asyncio.Event()
    event.set()
    done, pending = await asyncio.wait([asyncio.create_task(event.wait())])
    assert len(done) == 1
    loop = asyncio.get_running_loop()
    loop.time()


@app.workflow
async def handed_over(ctx: semel.Context, text: str) -> None:
    await ctx.execute_task(charge, 3)
    await ctx.step(requests.get, text)
    await ctx.step(os.environ.get, text)
    await ctx.step(lambda: open(text).read())
    await ctx.step(functools.partial(requests.get, text))
    await ctx.transaction(lambda db: db.execute("select 1"))

    def read() -> str:
        return open(text).read()

    async def write(session) -> None:
        pathlib.Path(text).write_text("a")

    await ctx.step(read)
    await ctx.transaction(write)
    await recorded(ctx, read)
    async with contextlib.AsyncExitStack() as undo:
        undo.push_async_callback(ctx.execute_task, charge, 3)


async def recorded(ctx: semel.Context, function):
    return await ctx.step(function)


@app.workflow
async def sets(ctx: semel.Context, names: set[str]) -> int:
    for name in sorted(names):
        await ctx.execute_task(charge, len(name))
    total = 0
    for name in names:
        total += len(name)
    if "a" in names or {"a"} & names:
        await asyncio.sleep(1)
    names = sorted(names)
    for name in names:
        await asyncio.sleep(1)
    for name in dict.fromkeys(names):
        await asyncio.sleep(1)
    for name in LIMITS:
        await asyncio.sleep(LIMITS[name])
    lengths = {len(name) for name in names}
    return total + len(set(names)) + max(lengths) + sum(Counter(names).values())


@app.workflow
async def catching(ctx: semel.Context) -> None:
    try:
        await asyncio.sleep(1)
    except Exception:
        log.exception("no")
    try:
        await asyncio.sleep(1)
    except BaseException:
        await asyncio.sleep(2)
        raise
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError as error:
        raise RuntimeError("cancelled") from error
    try:
        await asyncio.sleep(1)
    finally:
        await ctx.execute_task(charge, 1)
    try:
        number = int("3")
    except:
        number = 0
    with contextlib.suppress(ValueError):
        await asyncio.sleep(number)
    task = asyncio.create_task(asyncio.sleep(3))
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
    with contextlib.suppress(asyncio.CancelledError):
        await task


class Span:
    @property
    def data(self) -> "Span":
        return self

    @property
    def other(self):
        return self


@app.workflow
async def identity(ctx: semel.Context, items: list[Span]) -> list[Span]:
    seen = set()
    by_id = {}
    for item in items:
        if id(item) not in seen:
            seen.add(id(item))
            by_id[id(item)] = item
        item.data.name = "own"
        item.other.name = "own"
    span = Span()
    span.data.name = "own"
    span.data.data.name = "own"
    span.other.name = "own"
    return sorted(items, key=lambda item: item.name)


@app.workflow
async def memory(ctx: semel.Context) -> list[str]:
    names = []
    names.append("a")
    cache = {}
    cache["a"] = 1
    count = 0

    def bump() -> None:
        nonlocal count
        count += 1

    bump()
    copy = dict(LIMITS)
    copy["b"] = 2
    return names


def not_a_workflow() -> None:
    print(time.time(), random.random(), uuid.uuid4())
