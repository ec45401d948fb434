"""DBOS on PostgreSQL: a workflow that is enqueued in a transaction of the caller's."""

import asyncio
import sys

import sqlalchemy
from dbos import DBOS, DBOSClient

from bench.measure import Arguments, arguments, emit_transactions


async def transactions(args: Arguments) -> None:
    url = args.url.replace("postgresql://", "postgresql+psycopg://")
    DBOS(config={"name": "bench", "system_database_url": url, "run_admin_server": False, "log_level": "ERROR"})
    DBOS.launch()  # makes its tables
    DBOS.destroy()
    client = DBOSClient(system_database_url=url)
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("create table sold (id bigserial primary key, who integer)"))
    insert = sqlalchemy.text("insert into sold (who) values (:who)")
    with engine.connect() as connection:

        async def bare(number: int) -> None:
            with connection.begin():
                connection.execute(insert, {"who": number})

        async def start(number: int) -> None:
            with connection.begin():
                connection.execute(insert, {"who": number})
                options = {"queue_name": "bench", "workflow_name": "noop", "workflow_id": f"key-{number}"}
                client.enqueue_in_transaction(connection, options)  # type: ignore[arg-type]

        await emit_transactions("starts, on the connection", max(100, args.tasks // 10), bare, start)
    client.destroy()


if __name__ == "__main__":
    given = arguments()
    if given.part != "transactions":
        sys.exit(f"DBOS has no part {given.part!r}")
    asyncio.run(transactions(given))
