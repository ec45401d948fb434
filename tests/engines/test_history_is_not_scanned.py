"""No statement of the daily work of SQLite walks through the history."""

import re
from collections.abc import Iterator

import pytest

from semel.engines.journal.script import load_migrations
from semel.engines.sqlite.driver import Connection, choose_driver
from semel.engines.sqlite.writer_thread import statements

LISTS = {"recent", "recent_live", "recent_dead", "ids_like", "stranded"}
"""Read for people, from the newest on, until there are enough."""


@pytest.fixture(scope="module")
def db() -> Iterator[Connection]:
    made = choose_driver().connect(":memory:", patience=0)
    made.create_function("semel_now", lambda: 0)
    made.execute(statements()["make_migrations"][0][0])
    for _, _, text in load_migrations("semel.engines.sqlite"):
        made.execute_script(text)
    yield made
    made.close()


@pytest.mark.parametrize("name", sorted(statements().keys() - LISTS))
def test_executions_are_looked_up_and_not_scanned(db: Connection, name: str) -> None:
    for sql, count in statements()[name]:
        db.execute(f"explain {sql}", (None,) * count)  # the library of this Python knows all of it
        if re.match(r"(?i)(with|select|insert|update|delete)\b", sql):
            plan = [row[3] for row in db.execute(f"explain query plan {sql}", (None,) * count)]
            assert not [
                step for step in plan if re.match(r"SCAN (semel_execution|semel_record_\w+|x)\b(?! USING INDEX)", step)
            ], plan
