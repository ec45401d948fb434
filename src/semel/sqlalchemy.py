"""The tables of the outbox and of the inbox for a SQLAlchemy `MetaData` of your own.

`tables = add_outbox_tables(Base.metadata)` adds them. `metadata.create_all()` then makes what `semel outbox init`
makes, and Alembic's autogenerate finds nothing to change. A mapped class is one more line:
`class OutboxRow(Base): __table__ = tables.events`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import (
    BLANK_SCHEMA,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    DateTime,
    Dialect,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    TypeDecorator,
    event,
    text,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import conv
from sqlalchemy.sql.expression import FunctionElement
from sqlalchemy.types import TypeEngine

from semel.errors import InvalidValue
from semel.transactional.outbox.database import tables_sql
from semel.transactional.outbox.events import read_time
from semel.transactional.statements import split_statements

MYSQL: Final = ("mysql", "mariadb")
TABLE_OPTIONS: Final[dict[str, Any]] = {
    f"{dialect}_{name}": value
    for dialect in MYSQL
    for name, value in {"engine": "InnoDB", "charset": "utf8mb4", "collate": "utf8mb4_bin"}.items()
}


class OutboxTables(NamedTuple):
    """The tables, as `add_outbox_tables` gives them."""

    events: Table
    """`outbox_events`: what has to happen once a transaction is committed."""
    relays: Table
    destinations: Table
    inbox: Table
    """`inbox_keys`: keys of effects that have happened (`semel.once`)."""


class UtcDateTime(TypeDecorator[datetime]):
    """A time with its zone, in UTC, in the form in which relays read and write it. A time without a zone is refused."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The type of the column."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(Text())
        if dialect.name in MYSQL:
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """From Python to the database."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise InvalidValue(f"{value!r} has no time zone: use datetime.now(UTC).")
        at = value.astimezone(UTC)
        if dialect.name == "sqlite":
            return at.replace(tzinfo=None).isoformat(" ", "milliseconds")
        return at.replace(tzinfo=None) if dialect.name in MYSQL else at

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """From the database to Python."""
        return None if value is None else read_time(value)


class JsonText(TypeDecorator[Any]):
    """JSON that keeps its text: `json` in PostgreSQL, text elsewhere."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The type of the column."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(postgresql.JSON())
        return dialect.type_descriptor(mysql.LONGTEXT() if dialect.name in MYSQL else Text())

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """From Python to the database. PostgreSQL's own type makes JSON of it."""
        return value if dialect.name == "postgresql" else msgspec.json.encode(value).decode()

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """From the database to Python."""
        return value if value is None or dialect.name == "postgresql" else msgspec.json.decode(value)


class utc_now(FunctionElement[datetime]):  # noqa: N801
    """The time of the database, as a default of columns."""

    name = "utc_now"
    type = UtcDateTime()
    inherit_cache = True


class empty_object(FunctionElement[Any]):  # noqa: N801
    """An empty JSON object, as a default of columns."""

    name = "empty_object"
    type = JsonText()
    inherit_cache = True


class no(FunctionElement[bool]):  # noqa: N801
    """False, as a default of columns."""

    name = "no"
    type = Boolean()
    inherit_cache = True


@compiles(utc_now)
def _now(element: utc_now, compiler: Any, **options: Any) -> str:
    return "now()"


@compiles(utc_now, "sqlite")
def _now_on_sqlite(element: utc_now, compiler: Any, **options: Any) -> str:
    return "(strftime('%Y-%m-%d %H:%M:%f', 'now'))"


@compiles(utc_now, "mysql", "mariadb")
def _now_on_mysql(element: utc_now, compiler: Any, **options: Any) -> str:
    return "(utc_timestamp(6))"


@compiles(empty_object)
def _empty(element: empty_object, compiler: Any, **options: Any) -> str:
    return "'{}'"


@compiles(empty_object, "postgresql")
def _empty_on_postgres(element: empty_object, compiler: Any, **options: Any) -> str:
    return "'{}'::json"


@compiles(empty_object, "mysql", "mariadb")
def _empty_on_mysql(element: empty_object, compiler: Any, **options: Any) -> str:
    """MySQL has defaults of long texts only as expressions, which MariaDB shows without the brackets."""
    return "'{}'" if compiler.dialect.is_mariadb else "('{}')"


@compiles(no)
def _no(element: no, compiler: Any, **options: Any) -> str:
    return "false" if compiler.dialect.name == "postgresql" else "0"


def add_outbox_tables(metadata: MetaData) -> OutboxTables:
    """Add the tables to your metadata; if they are there already, they are given as they are.

    Their names of tables, indexes and constraints are fixed, whatever naming convention and schema the metadata has:
    Semel finds them by these names, in the schema that the connection looks into first.
    """
    if "outbox_events" not in metadata.tables:
        _events(metadata)
        _relays(metadata)
        _destinations(metadata)
        _inbox(metadata)
    names = ("outbox_events", "outbox_relays", "outbox_destinations", "inbox_keys")
    return OutboxTables(*(metadata.tables[name] for name in names))


def _words(length: int = 255) -> TypeEngine[str]:
    """Text. MySQL has no index over text without a length."""
    return Text().with_variant(String(length), *MYSQL)


def _events(metadata: MetaData) -> None:
    table = Table(
        "outbox_events",
        metadata,
        Column("id", BigInteger().with_variant(Integer(), "sqlite"), Identity(), primary_key=True, autoincrement=True),
        Column("event_type", String(100), nullable=False),
        Column("aggregate_id", _words()),
        Column("payload", JsonText(), nullable=False, server_default=empty_object()),
        Column("status", _words(10), nullable=False, server_default="pending"),
        Column("retry_count", Integer(), nullable=False, server_default=text("0")),
        Column("max_retries", Integer(), nullable=False, server_default=text("10")),
        Column("last_error", Text()),
        Column("created_at", UtcDateTime(), nullable=False, server_default=utc_now()),
        Column("processed_at", UtcDateTime()),
        Column("namespace", _words(), nullable=False, server_default="default"),
        Column("key", _words()),
        Column("fingerprint", LargeBinary().with_variant(mysql.VARBINARY(64), *MYSQL)),
        Column("execution_id", _words(1100)),
        Column("order_key", _words()),
        Column("on_failure", _words(10), nullable=False, server_default="hold"),
        Column("next_attempt_at", UtcDateTime(), nullable=False, server_default=utc_now()),
        Column("lease_token", _words(64)),
        Column("leased_by", _words()),
        PrimaryKeyConstraint("id", name=conv("outbox_events_pkey")),
        CheckConstraint("length(event_type) <= 100", conv("outbox_events_event_type_check")).ddl_if("sqlite"),
        CheckConstraint("json_valid(payload)", conv("outbox_events_payload_check")).ddl_if(callable_=_is_not_postgres),
        CheckConstraint("status in ('pending', 'processed', 'failed')", conv("outbox_events_status_check")),
        CheckConstraint("on_failure in ('hold', 'continue')", conv("outbox_events_on_failure_check")),
        schema=BLANK_SCHEMA,
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    column = table.c
    Index("outbox_events_status", column.status, column.created_at)
    Index("outbox_events_aggregate", column.aggregate_id)
    pending = text("status = 'pending'")
    Index(
        "outbox_events_due",
        column.namespace,
        column.status,
        column.next_attempt_at,
        column.id,
        postgresql_where=pending,
        sqlite_where=pending,
    )
    ordered = text("order_key is not null and status <> 'processed'")
    Index(
        "outbox_events_order",
        column.namespace,
        column.order_key,
        column.status,
        column.id,
        postgresql_where=ordered,
        sqlite_where=ordered,
    )
    made = [one for one in _postgres_statements() if one.startswith("create or replace ")]
    dropped = [one for one in _postgres_statements(drop=True) if one.startswith("drop function ")]
    event.listen(table, "after_create", _run_on_postgres(made))
    event.listen(table, "after_drop", _run_on_postgres(dropped))


def _relays(metadata: MetaData) -> None:
    Table(
        "outbox_relays",
        metadata,
        Column("id", _words(), primary_key=True),
        Column("namespace", _words(), nullable=False),
        Column("started_at", UtcDateTime(), nullable=False, server_default=utc_now()),
        Column("expires_at", UtcDateTime(), nullable=False),
        Column("idle", Boolean().with_variant(Integer(), "sqlite"), nullable=False, server_default=no()),
        PrimaryKeyConstraint("id", name=conv("outbox_relays_pkey")),
        schema=BLANK_SCHEMA,
        **TABLE_OPTIONS,
    )


def _destinations(metadata: MetaData) -> None:
    Table(
        "outbox_destinations",
        metadata,
        Column("namespace", _words(), primary_key=True),
        Column("failures", Integer(), nullable=False),
        Column("retry_at", UtcDateTime(), nullable=False),
        Column("last_error", Text(), nullable=False),
        Column("since", UtcDateTime(), nullable=False, server_default=utc_now()),
        PrimaryKeyConstraint("namespace", name=conv("outbox_destinations_pkey")),
        schema=BLANK_SCHEMA,
        **TABLE_OPTIONS,
    )


def _inbox(metadata: MetaData) -> None:
    table = Table(
        "inbox_keys",
        metadata,
        Column("key", _words(), primary_key=True),
        Column("recorded_at", UtcDateTime(), nullable=False, server_default=utc_now()),
        Column("expires_at", UtcDateTime(), nullable=False),
        PrimaryKeyConstraint("key", name=conv("inbox_keys_pkey")),
        schema=BLANK_SCHEMA,
        **TABLE_OPTIONS,
    )
    Index("inbox_keys_expires", table.c.expires_at)


def _is_not_postgres(*ignored: Any, dialect: Dialect, **more: Any) -> bool:
    return dialect.name != "postgresql"


def _run_on_postgres(statements: list[str]) -> Callable[..., None]:
    def run(target: Table, connection: Connection, **more: Any) -> None:
        if connection.dialect.name == "postgresql":
            for one in statements:
                connection.execute(text(one.replace(":", r"\:")))  # a colon would begin a parameter

    return run


def _postgres_statements(*, drop: bool = False) -> list[str]:
    """What `semel outbox init` runs on PostgreSQL; functions and the trigger are taken from there as they are."""
    return split_statements(tables_sql("postgres", drop=drop))
