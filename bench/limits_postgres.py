"""How fast PostgreSQL can be driven from Python: the minimum that still keeps a promise per task.

Two tables: `record` keeps a task for ever and is updated once; `ready` is narrow, is claimed by updating
columns without an index, and loses the row on completion. A key is unique, a completion counts only while
the claim is owned, a result is stored, and nothing is acknowledged before its commit. There are no retries,
timers, priorities, lease renewals or traces: an upper bound, not a product.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

import asyncpg

from bench.group import Group, work_off
from bench.measure import (
    BULK,
    CALLERS,
    LONG,
    STEPS,
    WORKFLOWS,
    Arguments,
    Stopwatch,
    arguments,
    callers,
    clock,
    emit,
    emit_latency,
    emit_median,
    process,
    worker_of,
)

BATCH = 200
OWNER = 7
PAUSE = 0.01
REPEATS = 5

SCHEMA = """
create table record (
    key text primary key, task text not null, state smallint not null default 0,
    input bytea, result bytea, created_at timestamptz not null default now(), ended_at timestamptz
) with (fillfactor = 85);
create table ready (
    seq bigint generated always as identity primary key, key text not null, task text not null,
    input bytea, owner int, leased_until timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
create table step (flow bigint not null, n int not null, result bytea not null, primary key (flow, n));
"""
ADMITTED = """
with admitted as (
    insert into record (key, task, input)
    select * from unnest($1::text[], $2::text[], $3::bytea[])
    on conflict (key) do nothing returning key, task, input
), queued as (
    insert into ready (key, task, input) select key, task, input from admitted
)
"""
ADMIT = ADMITTED + "select key from admitted"
ADMIT_AND_WAKE = ADMITTED + "select key, pg_notify('work', '') from admitted"
CLAIM = """
update ready set owner = $1, leased_until = now() + interval '30 seconds'
where seq = any (array(
    select seq from ready where owner is null and seq > $2 order by seq limit $3 for update skip locked))
returning seq, key, task, input
"""
FREED = """
with done as (select * from unnest($1::bigint[], $2::bytea[]) as d (seq, result)),
freed as (
    delete from ready using done where ready.seq = done.seq and ready.owner = $3
    returning ready.key, done.result
)
"""
STORE = """
update record set result = freed.result, state = 2, ended_at = now() from freed where record.key = freed.key
"""
SETTLE = FREED + STORE
SETTLE_AND_TELL = f"""
{FREED}, stored as ({STORE} returning record.key)
select pg_notify('done', string_agg(key, ',')) from stored
"""

BEGIN = """
with begun as (
    insert into record (key, task, input)
    select key, 'flow', '\\x7b7d' from unnest($1::text[]) as d (key)
    on conflict (key) do nothing returning key
)
insert into ready (key, task, owner, leased_until)
select key, 'flow', $2, now() + interval '30 seconds' from begun returning key, seq
"""
NOTE = """
insert into step (flow, n, result)
select d.flow, d.n, d.result from unnest($1::bigint[], $2::int[], $3::bytea[]) as d (flow, n, result)
join ready on ready.seq = d.flow and ready.owner = $4
"""

# One plan for every batch size, by index: what a planner without fresh statistics would get wrong.
PINNED = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}


async def noop() -> int:
    return 1


TASKS = {"noop": noop}


def connect(url: str) -> Any:
    return asyncpg.connect(url, server_settings=PINNED)


async def call(row: Any) -> bytes:
    return json.dumps(await TASKS[row["task"]](**json.loads(row["input"]))).encode()


async def admit(connection: Any, keys: Sequence[str]) -> set[str]:
    rows = await connection.fetch(ADMIT, keys, ["noop"] * len(keys), [b"{}"] * len(keys))
    return {row[0] for row in rows}


async def clear(connection: Any) -> None:
    await connection.execute("drop table if exists record, ready, step")
    await connection.execute(SCHEMA)
    await connection.execute("vacuum analyze")


async def drain(url: str) -> int:
    """One worker: claims on one connection while it settles on another."""
    claiming, settling = await connect(url), await connect(url)
    claim, settle = await claiming.prepare(CLAIM), await settling.prepare(SETTLE)
    seen = 0

    async def flush(done: list[tuple[int, bytes]]) -> list[None]:
        await settle.fetch([seq for seq, _ in done], [result for _, result in done], OWNER)
        return [None] * len(done)

    group = Group(flush)

    async def next_rows() -> list[Any]:
        nonlocal seen
        rows = await claim.fetch(OWNER, seen, BATCH)
        seen = max((row["seq"] for row in rows), default=seen)
        return rows

    async def run(row: Any) -> None:
        await group.add((row["seq"], await call(row)))

    count = await work_off(next_rows, run, ahead=2 * BATCH)
    await claiming.close()
    await settling.close()
    return count


async def throughput(args: Arguments) -> None:
    connection = await connect(args.url)

    async def flush(keys: list[str]) -> list[bool]:
        new = await admit(connection, keys)
        return [key in new for key in keys]

    group = Group(flush)
    await clear(connection)
    emit("W1 x1", await callers(max(1, args.tasks // 10), 1, lambda i: group.add(f"one-{i}")), "1/s")
    await clear(connection)
    many = await callers(args.tasks, CALLERS, lambda i: group.add(f"many-{i}"))
    emit("W1 many", many, "1/s", callers=CALLERS)
    emit("W3", await callers(args.tasks, CALLERS, lambda i: group.add(f"many-{i}")), "1/s", callers=CALLERS)
    await clear(connection)
    with Stopwatch() as watch:
        for start in range(0, args.tasks, BULK):
            await admit(connection, [f"bulk-{i}" for i in range(start, min(start + BULK, args.tasks))])
    emit("W1 bulk", args.tasks / watch.seconds, "1/s", list=BULK)
    with Stopwatch() as watch:
        count = await drain(args.url)
    stored = await connection.fetchval("select count(*) from record where state = 2 and result = '\\x31'")
    if not count == stored == args.tasks:
        raise RuntimeError(f"{count} tasks ran and {stored} results were stored of {args.tasks}")
    emit("W2", args.tasks / watch.seconds, "tasks/s", batch=BATCH)
    await connection.close()


async def latency(args: Arguments) -> None:
    connection, listening = await connect(args.url), await connect(args.url)
    await clear(connection)
    waiting: dict[str, asyncio.Future[None]] = {}

    def wake(*notice: Any) -> None:
        for key in notice[3].split(","):
            if future := waiting.pop(key, None):
                future.set_result(None)

    await listening.add_listener("done", wake)
    seconds = []
    with process(worker_of("bench.limits_postgres", args), args.scratch / "limits.log"):
        for i in range(-1, args.samples):  # the first one only waits for the worker
            began = clock()
            key = f"one-{i}"
            done = waiting[key] = asyncio.get_running_loop().create_future()
            await connection.fetch(ADMIT_AND_WAKE, [key], ["noop"], [b"{}"])
            await asyncio.wait_for(done, 30)
            if await connection.fetchval("select result from record where key = $1", key) != b"1":
                raise RuntimeError("the result is not there")
            seconds.append(clock() - began)
            await asyncio.sleep(PAUSE)
    emit_latency(seconds[1:], wake="LISTEN and NOTIFY, both ways")
    await connection.close()
    await listening.close()


async def steps(args: Arguments) -> None:
    """W4 in one process: a step is committed before the next one runs; what waits together commits together."""
    connection = await connect(args.url)

    async def begin(keys: list[str]) -> list[int]:
        rows = await connection.fetch(BEGIN, keys, OWNER)
        begun = {row["key"]: row["seq"] for row in rows}
        return [begun[key] for key in keys]

    async def note(done: list[tuple[int, int, bytes]]) -> list[None]:
        flows, numbers, results = zip(*done, strict=True)
        await connection.fetch(NOTE, flows, numbers, results, OWNER)
        return [None] * len(done)

    async def end(done: list[tuple[int, bytes]]) -> list[None]:
        await connection.fetch(SETTLE, [seq for seq, _ in done], [result for _, result in done], OWNER)
        return [None] * len(done)

    one_by_one = asyncio.Lock()  # one connection: groups of two kinds take turns

    def alone(flush: Any) -> Group:
        async def locked(items: list[Any]) -> Sequence[Any]:
            async with one_by_one:
                return await flush(items)

        return Group(locked)

    begins, notes, ends = alone(begin), alone(note), alone(end)

    async def flow(key: str, count: int) -> None:
        seq = await begins.add(key)
        for n in range(count):
            await notes.add((seq, n, json.dumps(await noop()).encode()))
        await ends.add((seq, json.dumps(count).encode()))

    for work, flows, count in (("W4 500x10", WORKFLOWS, STEPS), ("W4 1x1000", 1, LONG)):
        rates = []
        for _ in range(REPEATS):
            await clear(connection)
            with Stopwatch() as watch:
                await asyncio.gather(*(flow(f"flow-{i}", count) for i in range(flows)))
            rates.append(flows * count / watch.seconds)
            noted = await connection.fetchval("select count(*) from step")
            ended = await connection.fetchval("select count(*) from record where state = 2")
            if (noted, ended) != (flows * count, flows):
                raise RuntimeError(f"{noted} steps and {ended} ends were stored")
        emit_median(work, rates, "steps/s")
    await connection.close()


async def worker(args: Arguments) -> None:
    connection, listening = await connect(args.url), await connect(args.url)
    woken = asyncio.Event()
    await listening.add_listener("work", lambda *_: woken.set())
    claim, settle = await connection.prepare(CLAIM), await connection.prepare(SETTLE_AND_TELL)
    while True:
        woken.clear()
        rows = await claim.fetch(OWNER, 0, BATCH)
        if rows:
            await settle.fetch([row["seq"] for row in rows], [await call(row) for row in rows], OWNER)
        else:
            await asyncio.wait([asyncio.create_task(woken.wait())], timeout=1)


def main() -> None:
    args = arguments()
    parts = {"throughput": throughput, "latency": latency, "steps": steps, "worker": worker}
    if args.part not in parts:
        sys.exit(f"the limit on PostgreSQL has no part {args.part!r}")
    asyncio.run(parts[args.part](args))


if __name__ == "__main__":
    main()
