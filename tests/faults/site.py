"""A database to break things on: reset for every point, watched by triggers, its clock movable from any process."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import asyncpg

import semel
from semel.engines.sqlite.driver import Connection, choose_driver
from tests.faults.ledger import Ledger
from tests.world import SKEWED_NOW

TABLES = (
    "semel_execution", "semel_ready", "semel_later", "semel_worker", "semel_dead", "semel_slip", "semel_duplicate",
    "semel_queue", "semel_gate", "semel_permit", "semel_lane", "semel_watch", "semel_flow", "semel_journal",
    "semel_inbox", "semel_published", "semel_attribute", "semel_seen", "semel_record_key",
    "semel_record_duplicate", "semel_record_transaction", "semel_schedule", "semel_run", "semel_skipped", "semel_event",
    "semel_subscription", "semel_router", "semel_backfill", "semel_event_flow",
    "semel_event_outcome", "till",
)  # fmt: skip

# `changed`: an ended execution was written again. `left`: a row of work was taken away, from this owner.
# `till`: what users write in ctx.transaction.
WATCH_SQLITE = """
create table till (id integer primary key, who text not null);
create table semel_watch (what text, execution text, token integer, owner integer);
create trigger semel_watch_changed after update on semel_execution
  when old.status in ('completed', 'failed', 'cancelled', 'timed_out')
   and (new.status is not old.status or new.finished_at is not old.finished_at
        or (not new.stripped and (new.output is not old.output or new.error is not old.error)))
begin insert into semel_watch values ('changed', old.id, null, null); end;
create trigger semel_watch_left after delete on semel_ready
begin insert into semel_watch values ('left', old.execution, old.token, old.owner); end;
"""
WATCH_POSTGRES = """
create table till (id bigint generated always as identity primary key, who text not null);
create table semel_watch (what text, execution text, token bigint, owner bigint);
create function semel_watch_changed() returns trigger language plpgsql as $$ begin
  insert into semel_watch values ('changed', old.id, null, null); return new; end $$;
create trigger semel_watch_changed after update on semel_execution for each row
  when (old.status in ('completed', 'failed', 'cancelled', 'timed_out')
   and (new.status is distinct from old.status or new.finished_at is distinct from old.finished_at
        or (not new.stripped and (new.output is distinct from old.output or new.error is distinct from old.error))))
  execute function semel_watch_changed();
create function semel_watch_left() returns trigger language plpgsql as $$ begin
  insert into semel_watch values ('left', old.execution, old.token, old.owner); return old; end $$;
create trigger semel_watch_left after delete on semel_ready for each row execute function semel_watch_left();
"""


@dataclass
class Site:
    """Where a point happens. Plain data, so that it can be sent to another process."""

    engine: str
    url: str
    folder: str
    skew: float = 0.0

    kept: ClassVar[asyncpg.Connection | None] = None
    kept_file: ClassVar[Connection | None] = None

    @property
    def path(self) -> Path:
        """The SQLite file."""
        return Path(self.url.removeprefix("sqlite:///"))

    @property
    def template(self) -> Path:
        """The SQLite file as it is built, which a reset copies."""
        return Path(self.folder) / "template"

    @property
    def ledger(self) -> Ledger:
        """The effects that happened here."""
        return Ledger(f"{self.folder}/ledger")

    def plain(self) -> dict[str, Any]:
        """For the journey to another process."""
        return asdict(self)

    def time(self) -> float:
        """This site's clock."""
        return time.time() + self.skew

    def app(self, **options: Any) -> semel.App:
        """A new app on this site."""
        return semel.App(self.url, config=None, clock=self.time, **options)

    async def build(self) -> None:
        """Once: tables and triggers. SQLite keeps the result as the file to copy from."""
        async with self.app(auto_migrate=True) as app:
            await app.migrate()
        await self.watch()
        if self.engine == "sqlite":
            with closing(choose_driver().connect(str(self.path), patience=10)) as db:
                db.execute("pragma wal_checkpoint(truncate)")
            shutil.copyfile(self.path, self.template)

    async def watch(self) -> None:
        """Put the triggers, and on PostgreSQL the movable clock, into tables that were just made."""
        if self.engine == "sqlite":
            await self.script(WATCH_SQLITE)
        else:
            await self.script(SKEWED_NOW + WATCH_POSTGRES)

    async def reset(self) -> None:
        """Empty tables, an empty ledger, the clock as it was."""
        self.skew = 0.0
        self.ledger.clear()
        if self.engine == "sqlite":
            self.wipe()
            shutil.copyfile(self.template, self.path)
            return
        await self._alone()
        clear = "; ".join(f"delete from {table}" for table in TABLES)
        await self.script(f"{clear}; update semel_skew set micros = 0")

    async def raze(self) -> None:
        """Not even tables."""
        self.skew = 0.0
        self.ledger.clear()
        if self.engine == "sqlite":
            self.wipe()
        else:
            await self._alone()
            await self.script("drop schema public cascade; create schema public")

    def wipe(self) -> None:
        """Remove the file and what belongs to it."""
        if Site.kept_file is not None:
            Site.kept_file.close()
            Site.kept_file = None
        for end in ("", "-wal", "-shm"):
            Path(f"{self.path}{end}").unlink(missing_ok=True)

    async def _alone(self) -> None:
        """PostgreSQL: wait until the connections of a killed process are gone, and what they still did with them."""
        for _ in range(4000):
            others = (
                "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            )
            if (await self.sql(others + " and backend_type = 'client backend'"))[0][0] == 0:
                return
            await asyncio.sleep(0.005)
        raise AssertionError("connections of another process do not go away")

    async def advance(self, seconds: float) -> None:
        """Move the clock of the database."""
        self.skew += seconds
        if self.engine == "postgres":
            await self.sql("update semel_skew set micros = $1", round(self.skew * 1_000_000))

    async def sql(self, text: str, *args: Any) -> list[tuple[Any, ...]]:
        """Ask the tables from outside."""
        if self.engine == "postgres":
            async with self._connected() as connection:
                return [tuple(row) for row in await connection.fetch(text, *args)]
        if self.kept_file is not None:
            return self.kept_file.execute(text, args)
        with closing(choose_driver().connect(str(self.path), patience=10)) as db:
            return db.execute(text, args)

    async def script(self, text: str, patience: float = 10) -> None:
        """Several statements; a SQLite file that is locked is waited for so many seconds."""
        if self.engine == "postgres":
            async with self._connected() as connection:
                await connection.execute(text)
            return
        with closing(choose_driver().connect(str(self.path), patience=patience)) as db:
            db.execute_script(text)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[asyncpg.Connection]:
        if self.kept is not None:
            yield self.kept
            return
        connection = await asyncpg.connect(self.url)
        try:
            yield connection
        finally:
            await connection.close()

    async def keep_connection(self) -> None:
        """For a process that asks often and does not live long. A SQLite file that is replaced is let go."""
        if self.engine == "postgres":
            Site.kept = await asyncpg.connect(self.url)
        else:
            Site.kept_file = choose_driver().connect(str(self.path), patience=10)
