"""APScheduler 4, which stores schedules and jobs by SQLAlchemy, on PostgreSQL or on SQLite with every commit synced.

Only its scheduler runs: what is measured is how fast schedules that are due become jobs on disk. It reads a hundred at
once and commits each job by itself.
"""

import asyncio
import sys
from datetime import UTC, datetime
from typing import Any

from apscheduler import AsyncScheduler, SchedulerRole
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.triggers.interval import IntervalTrigger
from sqlalchemy import event, func, select
from sqlalchemy.ext.asyncio import create_async_engine

from bench.measure import Arguments, Stopwatch, arguments, emit, until

PATIENCE = 240.0


def noop() -> int:
    return 1


def connect(url: str) -> Any:
    if not url.startswith("sqlite:///"):
        return create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    engine = create_async_engine(url.replace("sqlite:///", "sqlite+aiosqlite:///"))

    @event.listens_for(engine.sync_engine, "connect")
    def sync_every_commit(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute("pragma journal_mode = wal")
        cursor.execute("pragma synchronous = full")
        cursor.close()

    return engine


async def schedules(args: Arguments) -> None:
    engine = connect(args.url)
    store = SQLAlchemyDataStore(engine)
    async with AsyncScheduler(store, role=SchedulerRole.scheduler) as scheduler:
        due = datetime.now(UTC)
        for i in range(args.tasks):
            await scheduler.add_schedule(noop, IntervalTrigger(hours=1, start_time=due), id=f"due-{i}")
        jobs = select(func.count()).select_from(store._t_jobs)

        async def all_in() -> bool:
            async with engine.connect() as connection:
                return bool(await connection.scalar(jobs) >= args.tasks)

        with Stopwatch() as watch:
            await scheduler.start_in_background()
            await until(all_in, PATIENCE)
        emit("schedules, due", args.tasks / watch.seconds, "1/s", slots=args.tasks, schedules=args.tasks)
    await engine.dispose()


def main() -> None:
    args = arguments()
    if args.part != "schedules":
        sys.exit(f"APScheduler has no part {args.part!r}")
    asyncio.run(schedules(args))


if __name__ == "__main__":
    main()
