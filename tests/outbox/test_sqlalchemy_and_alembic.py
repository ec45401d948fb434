"""The model for people's own metadata and the migration helper make what `semel outbox init` makes."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import alembic.command
import alembic.config
import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import orm

import semel
import semel.alembic
from semel.sqlalchemy import add_outbox_tables
from semel.transactional.outbox.database import open_database, tables_sql
from tests.outbox.catalogs import describe
from tests.outbox.conftest import new_database
from tests.outbox.places import Place
from tests.outbox.shop import OutboxShop
from tests.world import SOON, World

SCHEMES = {
    "sqlite": ("sqlite", "sqlite"),
    "postgres": ("postgres", "postgresql+psycopg"),
    "psycopg2-postgres": ("postgres", "postgresql+psycopg2"),
    "mariadb": ("mariadb", "mariadb+pymysql"),
    "mysql-on-mariadb": ("mariadb", "mysql+pymysql"),
}
CONVENTION = {
    "ix": "ix_%(column_0_label)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "pk": "pk_%(table_name)s",
}
ENV = """
from alembic import context
import sqlalchemy

from semel.sqlalchemy import add_outbox_tables

metadata = sqlalchemy.MetaData()
add_outbox_tables(metadata)
url = context.config.get_main_option("sqlalchemy.url")
if context.is_offline_mode():
    context.configure(url=url, target_metadata=metadata)
    with context.begin_transaction():
        context.run_migrations()
else:
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        context.configure(connection=connection, target_metadata=metadata)
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()
"""
VERSION = """
from alembic import op
from semel.alembic import create_outbox, drop_outbox

revision, down_revision = "1", None

def upgrade() -> None:
    create_outbox(op)

def downgrade() -> None:
    drop_outbox(op)
"""


class Database:
    """An empty database, by its URL for SQLAlchemy."""

    def __init__(self, place: Place, scheme: str) -> None:
        self.place = place
        self.url = f"{scheme}://{place.url.partition('://')[2]}"

    @contextmanager
    def connected(self) -> Iterator[sqlalchemy.Connection]:
        engine = sqlalchemy.create_engine(self.url)
        try:
            with engine.connect() as connection, connection.begin():
                yield connection
        finally:
            engine.dispose()

    def content(self) -> dict[str, list[Any]]:
        with self.connected() as connection:
            return describe(connection)

    def differences(self, metadata: sqlalchemy.MetaData, **options: Any) -> list[Any]:
        """What autogenerate would write."""
        with self.connected() as connection:
            return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


MakeDatabase = Callable[[], Database]


@pytest.fixture(params=list(SCHEMES))
def make_database(request: pytest.FixtureRequest, tmp_path: Path) -> MakeDatabase:
    kind, scheme = SCHEMES[request.param]
    return lambda: Database(new_database(kind, tmp_path, request), scheme)


@pytest.fixture
def initialised(make_database: MakeDatabase) -> Database:
    """A database in which `semel outbox init` was run."""
    made = make_database()

    async def init() -> None:
        database = open_database(made.place.url)
        await database.execute(tables_sql(database.dialect))
        await database.close()

    asyncio.run(init())
    return made


def alembic_config(database: Database, folder: Path) -> alembic.config.Config:
    """A project with one migration, that calls the helper."""
    scripts = folder / "migrations"
    (scripts / "versions").mkdir(parents=True)
    (scripts / "env.py").write_text(ENV)
    (scripts / "versions" / "0001_outbox.py").write_text(VERSION)
    config = alembic.config.Config(output_buffer=io.StringIO())
    config.set_main_option("script_location", str(scripts))
    config.set_main_option("sqlalchemy.url", database.url)
    return config


@pytest.mark.parametrize("convention", [{}, CONVENTION], ids=["", "named"])
def test_create_all_makes_what_init_makes(
    initialised: Database, make_database: MakeDatabase, convention: dict[str, str]
) -> None:
    metadata = sqlalchemy.MetaData(naming_convention=convention or None)
    add_outbox_tables(metadata)
    made = make_database()
    empty = made.content()
    with made.connected() as connection:
        metadata.create_all(connection)
    content = made.content()
    assert content == initialised.content()
    assert "outbox_events" in str(content["columns"])
    with made.connected() as connection:
        metadata.drop_all(connection)
    assert made.content() == empty


def test_the_migration_makes_what_init_makes_and_takes_all_of_it_away(
    initialised: Database, make_database: MakeDatabase, tmp_path: Path
) -> None:
    made = make_database()
    empty = made.content()
    config = alembic_config(made, tmp_path)
    alembic.command.upgrade(config, "head")
    assert made.content() == initialised.content()
    alembic.command.check(config)  # raises if autogenerate would write something
    alembic.command.downgrade(config, "base")
    assert made.content() == empty
    alembic.command.upgrade(config, "head")
    assert made.content() == initialised.content()


def test_autogenerate_finds_no_difference(initialised: Database) -> None:
    metadata = sqlalchemy.MetaData()
    add_outbox_tables(metadata)
    assert initialised.differences(metadata) == []
    with_defaults = [change[0] for change in initialised.differences(metadata, compare_server_default=True)]
    if not initialised.url.startswith("postgresql"):  # Alembic looks for identities where a database has none
        assert [change[:4] for change in with_defaults] == [("modify_default", None, "outbox_events", "id")]
    else:
        assert with_defaults == []
    metadata.tables["outbox_events"].append_column(sqlalchemy.Column("more", sqlalchemy.Integer()))
    assert len(initialised.differences(metadata)) == 1, "it does look"


def test_autogenerate_leaves_tables_alone_that_the_metadata_has_not(initialised: Database) -> None:
    with initialised.connected() as connection:
        for name in ("semel_execution", "orders"):
            connection.exec_driver_sql(f"create table {name} (id integer)")
    found = initialised.differences(sqlalchemy.MetaData(), include_object=semel.alembic.include_object)
    assert [(what, table.name) for what, table in found] == [("remove_table", "orders")]


def test_a_migration_as_sql(make_database: MakeDatabase, tmp_path: Path) -> None:
    """For people whose database is changed by others: `alembic upgrade head --sql`."""
    made = make_database()
    empty = made.content()
    config = alembic_config(made, tmp_path)
    alembic.command.upgrade(config, "head", sql=True)
    written = config.output_buffer.getvalue()
    assert "create table if not exists outbox_events" in written
    assert made.content() == empty
    if made.url.startswith("sqlite"):
        with made.connected() as connection:
            connection.connection.driver_connection.executescript(written)
        assert made.differences(_metadata()) == []


def _metadata() -> sqlalchemy.MetaData:
    metadata = sqlalchemy.MetaData()
    add_outbox_tables(metadata)
    return metadata


async def test_a_mapped_class_reads_and_writes_rows(world: World, initialised: Database) -> None:
    class Base(orm.DeclarativeBase):
        pass

    tables = add_outbox_tables(Base.metadata)
    assert add_outbox_tables(Base.metadata).events is tables.events

    class OutboxRow(Base):
        __table__ = tables.events

    shop = OutboxShop(world, initialised.place)
    before = datetime.now(UTC)
    later = before + timedelta(hours=1)

    def write() -> None:
        engine = sqlalchemy.create_engine(initialised.url)
        with orm.Session(engine) as session:
            payload = {"name": "ship", "arguments": {"order": 7}}
            session.add(OutboxRow(event_type="semel.task", key="ship:7", payload=payload))
            session.add(OutboxRow(event_type="semel.task", key="ship:8", payload=payload, next_attempt_at=later))
            session.commit()
            now, then = session.scalars(sqlalchemy.select(OutboxRow).order_by(tables.events.c.id))
            assert now.payload == payload
            assert abs(now.created_at - before) < timedelta(minutes=5)
            assert abs(then.next_attempt_at - later) < timedelta(milliseconds=1)
            due = tables.events.c.next_attempt_at <= datetime.now(UTC) + timedelta(minutes=5)
            assert [row.key for row in session.scalars(sqlalchemy.select(OutboxRow).where(due))] == ["ship:7"]
            session.add(OutboxRow(event_type="x", created_at=datetime(2026, 1, 1)))  # noqa: DTZ001
            with pytest.raises((sqlalchemy.exc.StatementError, semel.InvalidValue), match="no time zone"):
                session.commit()
        engine.dispose()

    await asyncio.to_thread(write)
    await shop.relay_all()
    found = await shop.app.find("ship:7")
    assert found is not None
    assert await shop.app.find("ship:8") is None
    async with world.worker(shop.app):
        assert await found.result(timeout=SOON) == "shipped 7"


def test_another_dialect_is_refused() -> None:
    context = MigrationContext.configure(dialect_name="oracle", opts={"as_sql": True})
    from alembic.operations import Operations

    with pytest.raises(semel.ConfigError, match="not in oracle"):
        semel.alembic.create_outbox(Operations(context))
