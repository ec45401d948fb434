"""Procrastinate on PostgreSQL: a job in a transaction of the caller's."""

import asyncio
import sys

import psycopg
from procrastinate import App, PsycopgConnector

from bench.measure import Arguments, arguments, emit_transactions


async def transactions(args: Arguments) -> None:
    app = App(connector=PsycopgConnector(conninfo=args.url))

    @app.task(name="noop")
    def noop() -> None: ...

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        connection = await psycopg.AsyncConnection.connect(args.url, autocommit=True)
        await connection.execute("create table sold (id bigserial primary key, who integer)")

        async def bare(number: int) -> None:
            async with connection.transaction():
                await connection.execute("insert into sold (who) values (%s)", (number,))

        async def start(number: int) -> None:
            async with connection.transaction():
                await connection.execute("insert into sold (who) values (%s)", (number,))
                await noop.configure(queueing_lock=f"key-{number}", connection=connection).defer_async()

        await emit_transactions("starts, on the connection", max(100, args.tasks // 10), bare, start)
        await connection.close()


if __name__ == "__main__":
    given = arguments()
    if given.part != "transactions":
        sys.exit(f"Procrastinate has no part {given.part!r}")
    asyncio.run(transactions(given))
