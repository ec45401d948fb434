"""A user's function within a transaction of the engine: what all databases do alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from semel.engine.outcomes import describe
from semel.engine.transaction_guard import inside_transaction
from semel.errors import InvalidValue

Worked = tuple[Any, BaseException | None]
"""(value, None), or (None, the error)."""


def work(do: Callable[[Any], Any], tx: Any) -> Worked:
    """Run it. An error is given, not raised, so that it is not taken for one of the thread it runs in."""
    try:
        with inside_transaction():
            return do(tx), None
    except StopIteration as error:  # means something to a coroutine and a future, which cannot raise it
        return None, _plain(error)
    except Exception as error:
        return None, error
    except BaseException as error:  # means something to a thread or a loop: it must not take these along
        return None, _plain(error)


def _plain(error: BaseException) -> Exception:
    told = describe(error)
    plain = RuntimeError(str(told))
    plain.__cause__ = error
    return plain


CONTROL: Final = frozenset({"abort", "begin", "commit", "end", "prepare", "release", "rollback", "savepoint", "start"})
_OPAQUE: Final = re.compile(r"'[^']*'|\"[^\"]*\"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/|[\s\ufeff]+", re.DOTALL)
"""What holds no words of SQL: texts, quoted names, comments, white space, to SQLite also a byte order mark."""
_BLANK: Final = re.compile(r"[\s;]+|--[^\n\r]*|/\*")
_EDGE: Final = re.compile(r"/\*|\*/")
_WORD: Final = re.compile(r"\s*(\w+)")


def refuse_control(sql: str) -> None:
    """Raise InvalidValue if it begins or ends a transaction, alone or as one of several statements."""
    for start in (_first(sql), *_OPAQUE.sub(" ", sql).split(";")):
        found = _WORD.match(start)
        word = "" if found is None else found[1]
        if word.lower() in CONTROL:
            raise InvalidValue(f"{word.upper()} in ctx.transaction(): the transaction is Semel's, and ends by itself.")


def _first(sql: str) -> str:
    """From its first word on, as PostgreSQL reads it: comments may hold comments, and a bare \\r ends a short one."""
    at = 0
    while blank := _BLANK.match(sql, at):
        at = _after(sql, blank.end()) if blank[0] == "/*" else blank.end()
    return sql[at:]


def _after(sql: str, at: int) -> int:
    """Where a comment ends that has begun."""
    depth = 1
    while depth:
        edge = _EDGE.search(sql, at)
        if edge is None:
            return len(sql)
        depth += 1 if edge[0] == "/*" else -1
        at = edge.end()
    return at
