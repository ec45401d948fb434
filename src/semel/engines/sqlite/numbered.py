"""`?1` for Pythons that take it for a named placeholder, and warn when it is given a sequence."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

NUMBERED_PLACEHOLDERS_WARN: Final = (3, 12, 0) <= sys.version_info < (3, 12, 4)
"""Later ones know that `?1` is a number and no name."""
_QUOTED_OR_NUMBERED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/|\?(\d+)", re.DOTALL)


def with_names(sql: str, args: Sequence[Any] | Mapping[str, Any]) -> tuple[str, Sequence[Any] | Mapping[str, Any]]:
    """Write `:n1` for `?1` in a statement, and give its arguments by name. One without such numbers stays as it is."""
    if not args or isinstance(args, Mapping):
        return sql, args
    named = _named(sql)
    if named is None:
        return sql, args
    return named, {f"n{number}": value for number, value in enumerate(args, 1)}


@functools.lru_cache(maxsize=512)
def _named(sql: str) -> str | None:
    named = _QUOTED_OR_NUMBERED.sub(lambda found: f":n{found[1]}" if found[1] else found[0], sql)
    return None if named == sql else named
