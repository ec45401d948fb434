"""What is in a database, as its own catalogue tells it: to compare databases that were made in different ways."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Connection

POSTGRES = {
    "columns": """select c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
        a.attidentity::text, pg_get_expr(d.adbin, d.adrelid)
        from pg_attribute a join pg_class c on c.oid = a.attrelid left join pg_attrdef d
        on d.adrelid = a.attrelid and d.adnum = a.attnum
        where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and a.attnum > 0 order by 1, 2""",
    "indexes": "select indexdef from pg_indexes where schemaname = 'public' order by 1",
    "constraints": """select conrelid::regclass::text, conname, pg_get_constraintdef(oid) from pg_constraint
        where connamespace = 'public'::regnamespace order by 1, 2""",
    "triggers": "select pg_get_triggerdef(oid) from pg_trigger where not tgisinternal order by 1",
    "functions": """select pg_get_functiondef(oid) from pg_proc where pronamespace = 'public'::regnamespace
        order by 1""",
}
MYSQL = {
    "tables": """select table_name, engine, table_collation from information_schema.tables
        where table_schema = database() order by 1""",
    "columns": """select table_name, ordinal_position, column_name, column_type, is_nullable, column_default, extra,
        collation_name from information_schema.columns where table_schema = database() order by 1, 2""",
    "indexes": """select table_name, index_name, seq_in_index, column_name, non_unique from
        information_schema.statistics where table_schema = database() order by 1, 2, 3""",
    "checks": """select table_name, constraint_name, check_clause from information_schema.check_constraints
        where constraint_schema = database() order by 1, 2""",
}
SQLITE = {
    "columns": """select m.name, t.* from sqlite_master m, pragma_table_xinfo(m.name) t where m.type = 'table'
        order by 1, 2""",
    "definitions": "select name, sql from sqlite_master where sql is not null order by 1",
}
QUERIES = {"postgresql": POSTGRES, "mysql": MYSQL, "mariadb": MYSQL, "sqlite": SQLITE}
IGNORED = ("alembic_version", "django_migrations", "sqlite_sequence")
"""Tables of those who keep the account of migrations."""


def describe(connection: Connection) -> dict[str, list[Any]]:
    """Everything in the database, in an order that does not depend on how it was made."""
    found = {
        name: [tuple(row) for row in connection.exec_driver_sql(sql)]
        for name, sql in QUERIES[connection.dialect.name].items()
    }
    kept = {
        name: [row for row in rows if not any(word in str(part) for word in IGNORED for part in row)]
        for name, rows in found.items()
    }
    if connection.dialect.name == "sqlite":
        kept["columns"] = [
            tuple(_plain(one) if isinstance(one, str) else one for one in row) for row in kept["columns"]
        ]
        kept["definitions"] = [(name, _parts(sql)) for name, sql in kept["definitions"]]
    return kept


def _plain(sql: str) -> str:
    """SQL in one line, without what a writer may choose."""
    bare = re.sub(r"--[^\n]*", "", sql).lower().replace('"', "")
    return re.sub(r"\s+", " ", re.sub(r"\s*([(),])\s*", r"\1", bare)).strip()


def _parts(sql: str) -> list[str]:
    """The checks of a table, whether its ids are used once only; of an index the whole definition."""
    plain = _plain(sql)
    if plain.startswith("create index"):
        return [plain.replace("if not exists ", "")]
    checks = re.findall(r"constraint (\w+) check\(((?:[^()]|\([^()]*\))*)\)", plain)
    return sorted(f"{name}: {check}" for name, check in checks) + re.findall("autoincrement", plain)
