"""What the benchmark does behind Semel's back: count unfinished work, invent history, hold a transaction."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import asyncpg

LEFT = "select (select count(*) from semel_ready) + (select count(*) from semel_later)"
WORKERS = "select count(*) from semel_worker"
DEAD = "select count(*) from semel_dead"
AWAKE = "select count(*) from semel_flow where not asleep"
WAKERS = "select count(*) from semel_flow where name = 'waker'"
MAIL = "select count(*) from semel_inbox"
SEEN = "select count(*) from semel_seen"
JOURNAL = "select count(*) from semel_journal"
SNAPSHOT = "select coalesce(max(length(snapshot)), 0) from semel_flow"
POSTGRES_ID = "lpad(to_hex(g.n), 32, '0')"  # as long as a real one, and older than all of them
SQLITE_ID = "printf('%032x', g.n)"
SLIP_OF = 200  # executions that PostgreSQL settles, and so remembers for the cleaner, in one batch


class Store(Protocol):
    async def count(self, query: str) -> int:
        """The number that a query gives."""

    async def left(self) -> int:
        """Unfinished executions; flows that sleep do not count."""

    async def workers(self) -> int:
        """Workers that are up."""

    async def dead(self) -> int:
        """Executions that ended other than well."""

    async def add_history(self, rows: int) -> None:
        """Copy a completed execution `rows` times."""

    def hold(self) -> AbstractAsyncContextManager[None]:
        """A transaction with a snapshot, open for the length of the block."""

    async def change(self, statement: str) -> None:
        """Change rows in a way that Semel does not."""

    async def close(self) -> None: ...


async def open_store(url: str) -> Store:
    if url.startswith("sqlite:///"):
        return SqliteStore(url.removeprefix("sqlite:///"))
    return PostgresStore(url, await asyncpg.connect(url))


class PostgresStore:
    def __init__(self, url: str, connection: Any) -> None:
        self._url = url
        self._connection = connection

    async def count(self, query: str) -> int:
        return int(await self._connection.fetchval(query))

    async def left(self) -> int:
        return await self.count(LEFT)

    async def workers(self) -> int:
        return await self.count(WORKERS)

    async def dead(self) -> int:
        return await self.count(DEAD)

    async def add_history(self, rows: int) -> None:
        found = await self._connection.fetch(
            "select column_name from information_schema.columns where table_name = 'semel_execution'"
        )
        columns = [row[0] for row in found]
        numbers = f"generate_series(1, {rows}) as g (n)"
        await self._connection.execute(copy_execution(columns, POSTGRES_ID, numbers))
        await self._connection.execute(
            "insert into semel_slip (due_at, executions) "
            f"select s.due_at, string_agg({POSTGRES_ID}, ',') "
            f"from (select max(due_at) as due_at from semel_slip) as s, {numbers} "
            f"group by s.due_at, g.n / {SLIP_OF}"
        )
        await self._connection.execute("vacuum analyze")
        await self._connection.execute("checkpoint")

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        connection = await asyncpg.connect(self._url)
        try:
            async with connection.transaction(isolation="repeatable_read"):
                await connection.fetchval("select txid_current()")
                yield
        finally:
            await connection.close()

    async def change(self, statement: str) -> None:
        await self._connection.execute(statement)

    async def close(self) -> None:
        await self._connection.close()


class SqliteStore:
    def __init__(self, file: str) -> None:
        self._file = file
        self._connection = self._open()

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._file, timeout=30, isolation_level=None)

    async def left(self) -> int:
        return await self.count(LEFT)

    async def workers(self) -> int:
        return await self.count(WORKERS)

    async def dead(self) -> int:
        return await self.count(DEAD)

    async def count(self, query: str) -> int:
        (count,) = self._connection.execute(query).fetchone()
        return int(count)

    async def add_history(self, rows: int) -> None:
        """Without the triggers, which would queue every copy as new work."""
        run = self._connection.execute
        triggers = run("select name, sql from sqlite_master where type = 'trigger'").fetchall()
        columns = [row[1] for row in run("pragma table_info(semel_execution)")]
        counting = f"select 1 union all select n + 1 from g where n < {rows}"
        numbers = f"(with recursive g (n) as ({counting}) select n from g) as g"
        run("begin immediate")
        for name, _ in triggers:
            run(f"drop trigger {name}")
        run(copy_execution(columns, SQLITE_ID, numbers))
        run(
            "insert into semel_slip (due_at, executions) "
            f"select (select max(due_at) from semel_slip), {SQLITE_ID} from {numbers}"
        )
        for _, statement in triggers:
            run(statement)
        run("commit")
        run("analyze")
        run("pragma wal_checkpoint(truncate)")

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        connection = self._open()
        try:
            connection.execute("begin")
            connection.execute("select count(*) from semel_lane").fetchall()  # a read takes the snapshot
            yield
            connection.execute("rollback")
        finally:
            connection.close()

    async def change(self, statement: str) -> None:
        self._connection.execute(statement)
        self._connection.commit()

    async def close(self) -> None:
        self._connection.close()


def copy_schedule(id: str, copies: int) -> str:
    """A statement, the same for both databases, that copies a schedule: what applies one by one takes minutes."""
    same = "namespace, version, owner, definition, cursor, due_at, paused_at, note, state, created_at, changed_at"
    return (
        f"with recursive g (n) as (select 1 union all select n + 1 from g where n < {copies}) "
        f"insert into semel_schedule (id, {same}) "
        f"select id || '-' || g.n, {same} from semel_schedule, g where id = '{id}'"
    )


def copy_execution(columns: list[str], new_id: str, numbers: str) -> str:
    new = {"id": new_id, "key": f"'history-' || {new_id}"}
    values = [new.get(column, f"x.{column}") for column in columns]
    return (
        f"insert into semel_execution ({', '.join(columns)}) select {', '.join(values)} "
        f"from (select * from semel_execution where status = 'completed' limit 1) as x, {numbers}"
    )


async def neighbour(url: str) -> str:
    """An empty database beside this one."""
    if url.startswith("sqlite:///"):
        return f"{url}-neighbour"
    connection = await asyncpg.connect(url)
    try:
        name = urlsplit(url).path[1:] + "-neighbour"
        await connection.execute(f'drop database if exists "{name}" with (force)')
        await connection.execute(f'create database "{name}"')
    finally:
        await connection.close()
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


async def transactions(url: str) -> int:
    """Transactions that ended in this database so far, counted from another one so as not to count itself."""
    parts = urlsplit(url)
    connection = await asyncpg.connect(urlunsplit(parts._replace(path="/postgres")))
    try:
        query = "select xact_commit + xact_rollback from pg_stat_database where datname = $1"
        return int(await connection.fetchval(query, parts.path.removeprefix("/")))
    finally:
        await connection.close()


async def until_done(store: Store, timeout: float) -> None:
    async with asyncio.timeout(timeout):
        while True:
            if not await store.left():
                return
            await asyncio.sleep(0.1)
