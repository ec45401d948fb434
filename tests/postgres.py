"""The PostgreSQL of the tests: statements of fixtures go over open connections, since a psql for each takes longer."""

from __future__ import annotations

import contextlib

import psycopg

from bench.server import Postgres

Connection = psycopg.Connection[tuple[object, ...]]


class SharedPostgres(Postgres):
    """A server for a whole run. Only to `postgres` and to what was said to `keep` does a connection stay open."""

    def __init__(self, server: Postgres) -> None:
        super().__init__(server.bin, server.port)
        self._kept: dict[str, Connection | None] = {"postgres": None}

    def keep(self, database: str) -> None:
        """Keep a connection to a database that nobody drops or takes for a template."""
        self._kept.setdefault(database, None)

    def sql(self, statement: str, database: str = "postgres", timeout: float = 120.0) -> str:
        """Run statements; what the last one gives, as psql prints it. RuntimeError: the server refuses it."""
        try:
            if database not in self._kept:
                with contextlib.closing(self._connect(database, timeout)) as connection:
                    return _run(connection, statement)
            return self._run_kept(database, statement, timeout)
        except psycopg.Error as error:
            raise RuntimeError(f"PostgreSQL: {error}") from error

    def _run_kept(self, database: str, statement: str, timeout: float) -> str:
        kept = self._kept[database]
        if kept is not None:
            with contextlib.suppress(psycopg.OperationalError):
                if not kept.closed:
                    return _run(kept, statement)
            if not kept.closed:  # the statement was at fault, or the connection was cut: which, a new one tells
                kept.close()
        self._kept[database] = connection = self._connect(database, timeout)
        return _run(connection, statement)

    def _connect(self, database: str, timeout: float) -> Connection:
        return psycopg.connect(
            self.url(database), autocommit=True, connect_timeout=10, options=f"-c statement_timeout={timeout:.0f}s"
        )

    def close(self) -> None:
        """Close what is open."""
        for connection in self._kept.values():
            if connection is not None:
                connection.close()


def _run(connection: Connection, statement: str) -> str:
    cursor = connection.execute(statement.encode())  # without parameters: several statements at once are fine
    while cursor.nextset():
        pass
    if cursor.description is None:
        return ""
    return "\n".join("|".join("" if value is None else str(value) for value in row) for row in cursor)
