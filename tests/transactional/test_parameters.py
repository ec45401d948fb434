"""Statements with numbered parameters, for a driver that has none."""

from semel.engines.journal.script import load_queries
from semel.transactional.parameters import by_name, to_pyformat


def test_numbers_become_names_and_percent_signs_stay_what_they_are() -> None:
    sql = "select $1, $12::text[], '$1 100%', \"$2\", $1 % 2"
    assert to_pyformat(sql) == "select %(p1)s, %(p12)s::text[], '$1 100%%', \"$2\", %(p1)s %% 2"
    assert by_name(["a", None]) == {"p1": "a", "p2": None}


def test_every_statement_can_be_written_so() -> None:
    for name, sql in load_queries("semel.engines.postgres").items():
        count = max((n for n in range(1, 40) if f"${n}" in sql), default=0)
        args = by_name([0] * count)
        assert to_pyformat(sql) % dict.fromkeys(args, "?") is not None, name
        assert "$" not in (to_pyformat(sql) % dict.fromkeys(args, "?")).replace("$$", ""), name
