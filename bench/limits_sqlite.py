"""How fast SQLite can be driven from Python: `limits_postgres.py` on one file, synchronous FULL.

One thread writes. Everything that gathers while it commits goes into the next transaction.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apsw

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
LOOK_EVERY = 0.0005  # between two processes there is nothing but looking

SETTINGS = "pragma journal_mode = wal; pragma synchronous = full; pragma wal_autocheckpoint = 4000"
SCHEMA = """
create table if not exists record (
    key text primary key, task text not null, state integer not null default 0,
    input blob, result blob, created_at real, ended_at real
) without rowid;
create table if not exists ready (
    seq integer primary key, key text not null, task text not null,
    input blob, owner integer, leased_until real
);
create table if not exists step (
    flow integer not null, n integer not null, result blob not null, primary key (flow, n)
) without rowid;
"""
RECORD = """
insert into record (key, task, input, created_at) values (?, 'noop', x'7b7d', ?) on conflict do nothing
"""
QUEUE = "insert into ready (key, task, input) values (?, 'noop', x'7b7d')"
NEXT = "select seq, key, task, input from ready where owner is null and seq > ? order by seq limit ?"
CLAIM = "update ready set owner = ?, leased_until = ? where seq = ?"
FREE = "delete from ready where seq = ? and owner = ?"
BEGIN = "insert into ready (key, task, owner, leased_until) values (?, 'flow', ?, ?)"
NOTE = "insert into step (flow, n, result) select seq, ?, ? from ready where seq = ? and owner = ?"
SETTLE = "update record set result = ?, state = 2, ended_at = ? where key = ?"

Operation = Callable[[apsw.Connection, Any], Any]


async def noop() -> int:
    return 1


TASKS = {"noop": noop}


async def call(row: Sequence[Any]) -> bytes:
    return json.dumps(await TASKS[row[2]](**json.loads(row[3]))).encode()


class Writer:
    """The one thread that writes; operations that wait together commit together."""

    def __init__(self, file: str) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._connection: apsw.Connection = self._thread.submit(open_file, file).result()
        self._group = Group(self._flush, most=2000)

    def do(self, operation: Operation, argument: Any) -> asyncio.Future[Any]:
        return self._group.add((operation, argument))

    async def _flush(self, work: list[tuple[Operation, Any]]) -> list[Any]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, work)

    def _commit(self, work: list[tuple[Operation, Any]]) -> list[Any]:
        connection = self._connection
        connection.execute("begin immediate")
        try:
            answers = [operation(connection, argument) for operation, argument in work]
        except BaseException:
            connection.execute("rollback")
            raise
        connection.execute("commit")
        return answers

    def close(self) -> None:
        self._thread.submit(self._connection.close).result()
        self._thread.shutdown()


def open_file(file: str) -> apsw.Connection:
    connection = apsw.Connection(file)
    connection.set_busy_timeout(10_000)
    connection.execute(SETTINGS)
    connection.execute(SCHEMA)
    return connection


def admit(connection: apsw.Connection, key: str) -> bool:
    connection.execute(RECORD, (key, time.time()))
    if not connection.changes():
        return False
    connection.execute(QUEUE, (key,))
    return True


def admit_all(connection: apsw.Connection, keys: Sequence[str]) -> list[bool]:
    return [admit(connection, key) for key in keys]


def claim(connection: apsw.Connection, after: int) -> list[Any]:
    rows = connection.execute(NEXT, (after, BATCH)).fetchall()
    until = time.time() + 30
    connection.executemany(CLAIM, ((OWNER, until, row[0]) for row in rows))
    return rows


def settle(connection: apsw.Connection, done: tuple[int, str, bytes]) -> bool:
    seq, key, result = done
    connection.execute(FREE, (seq, OWNER))
    if not connection.changes():
        return False
    connection.execute(SETTLE, (result, time.time(), key))
    return True


def begin(connection: apsw.Connection, key: str) -> int:
    now = time.time()
    connection.execute(RECORD, (key, now))
    if not connection.changes():
        raise RuntimeError("a key was not new")
    connection.execute(BEGIN, (key, OWNER, now + 30))
    return connection.last_insert_rowid()


def note(connection: apsw.Connection, done: tuple[int, int, bytes]) -> bool:
    flow, n, result = done
    connection.execute(NOTE, (n, result, flow, OWNER))
    return connection.changes() == 1


async def drain(writer: Writer) -> int:
    seen = 0

    async def next_rows() -> list[Any]:
        nonlocal seen
        rows = await writer.do(claim, seen)
        seen = rows[-1][0] if rows else seen
        return rows

    async def run(row: Sequence[Any]) -> None:
        if not await writer.do(settle, (row[0], row[1], await call(row))):
            raise RuntimeError("a completion was refused")

    return await work_off(next_rows, run, ahead=2 * BATCH)


async def throughput(args: Arguments) -> None:
    file = args.url.removeprefix("sqlite:///")
    writer = Writer(file + "-one")
    emit("W1 x1", await callers(max(1, args.tasks // 10), 1, lambda i: writer.do(admit, f"one-{i}")), "1/s")
    writer.close()
    writer = Writer(file + "-many")
    many = await callers(args.tasks, CALLERS, lambda i: writer.do(admit, f"many-{i}"))
    emit("W1 many", many, "1/s", callers=CALLERS)
    twice = await callers(args.tasks, CALLERS, lambda i: writer.do(admit, f"many-{i}"))
    emit("W3", twice, "1/s", callers=CALLERS)
    writer.close()
    writer = Writer(file)
    with Stopwatch() as watch:
        for start in range(0, args.tasks, BULK):
            keys = [f"bulk-{i}" for i in range(start, min(start + BULK, args.tasks))]
            await writer.do(admit_all, keys)
    emit("W1 bulk", args.tasks / watch.seconds, "1/s", list=BULK)
    with Stopwatch() as watch:
        count = await drain(writer)
    if count != args.tasks:
        raise RuntimeError(f"{count} of {args.tasks} tasks ran")
    emit("W2", args.tasks / watch.seconds, "tasks/s", batch=BATCH)
    writer.close()


async def steps(args: Arguments) -> None:
    """W4 in one process: a step is committed before the next one runs; what waits together commits together."""
    file = args.url.removeprefix("sqlite:///")
    for work, flows, count in (("W4 500x10", WORKFLOWS, STEPS), ("W4 1x1000", 1, LONG)):
        rates = []
        for repeat in range(REPEATS):
            writer = Writer(f"{file}-{count}-{repeat}")
            with Stopwatch() as watch:
                await asyncio.gather(*(run_flow(writer, f"flow-{i}", count) for i in range(flows)))
            rates.append(flows * count / watch.seconds)
            writer.close()
        emit_median(work, rates, "steps/s")


async def run_flow(writer: Writer, key: str, count: int) -> None:
    seq = await writer.do(begin, key)
    for n in range(count):
        if not await writer.do(note, (seq, n, json.dumps(await noop()).encode())):
            raise RuntimeError("a step was refused")
    if not await writer.do(settle, (seq, key, json.dumps(count).encode())):
        raise RuntimeError("an end was refused")


def look_until(reader: apsw.Connection, query: str, key: str) -> Any:
    """The first answer to the query; the file's version says cheaply when it may have changed."""
    deadline = clock() + 30
    version = None
    while clock() < deadline:
        now = reader.pragma("data_version")
        if now != version:
            version = now
            if row := reader.execute(query, (key,)).fetchone():
                return row[0]
        time.sleep(LOOK_EVERY)
    raise TimeoutError(f"no result of {key}")


def latency(args: Arguments) -> None:
    file = args.url.removeprefix("sqlite:///")
    connection, reader = open_file(file), open_file(file)
    seconds = []
    with process(worker_of("bench.limits_sqlite", args), args.scratch / "limits.log"):
        for i in range(-1, args.samples):  # the first one only waits for the worker
            began = clock()
            key = f"one-{i}"
            connection.execute("begin immediate")
            admit(connection, key)
            connection.execute("commit")
            if look_until(reader, "select result from record where key = ? and state = 2", key) != b"1":
                raise RuntimeError("the result is not there")
            seconds.append(clock() - began)
            time.sleep(PAUSE)
    emit_latency(seconds[1:], wake=f"data_version every {LOOK_EVERY * 1000:g} ms, both ways")


def worker(args: Arguments) -> None:
    connection = open_file(args.url.removeprefix("sqlite:///"))
    loop = asyncio.new_event_loop()
    version = None
    while True:
        now = connection.pragma("data_version")
        if now == version:
            time.sleep(LOOK_EVERY)
            continue
        version = now
        connection.execute("begin immediate")
        rows = claim(connection, 0)
        connection.execute("commit")
        if rows:
            results = [loop.run_until_complete(call(row)) for row in rows]
            connection.execute("begin immediate")
            for row, result in zip(rows, results, strict=True):
                settle(connection, (row[0], row[1], result))
            connection.execute("commit")


def main() -> None:
    args = arguments()
    match args.part:
        case "throughput":
            asyncio.run(throughput(args))
        case "steps":
            asyncio.run(steps(args))
        case "latency":
            latency(args)
        case "worker":
            worker(args)
        case _:
            sys.exit(f"the limit on SQLite has no part {args.part!r}")


if __name__ == "__main__":
    main()
