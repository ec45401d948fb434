"""The database of the business: DATABASE_URL. Semel's engine, SEMEL_URL, may be the same database or another.

| DATABASE_URL | SEMEL_URL | a start is |
|---|---|---|
| `postgresql+asyncpg://…/tenants` | `postgresql://…/tenants` | an execution, in the transaction of the tenant |
| `postgresql+asyncpg://…/tenants` | `postgresql://…/engine` | a row of the outbox beside the tenant, for a relay |
| `postgresql+asyncpg://…/tenants` | `temporal://…` | the same |

The code is the same for all of them. Without settings both are SQLite, in two files.
"""

from __future__ import annotations

import os

from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

DATABASE_URL = os.environ.get("DATABASE_URL", "sqlite+aiosqlite:///tenants.db")

# Seconds to wait for a connection, and on SQLite for another writer.
engine = create_async_engine(DATABASE_URL, connect_args={"timeout": 30})
sessions = async_sessionmaker(engine, expire_on_commit=False)
