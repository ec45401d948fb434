"""Numbered parameters for drivers that know none."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, Final

_QUOTED_OR_NUMBERED: Final = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\$(\d+)", re.DOTALL)


@functools.lru_cache(maxsize=512)
def to_pyformat(sql: str) -> str:
    """`$1` as `%(p1)s`. A percent sign is doubled wherever it stands, as drivers of that style want it."""
    return _QUOTED_OR_NUMBERED.sub(lambda found: f"%(p{found[1]})s" if found[1] else found[0], sql.replace("%", "%%"))


def by_name(args: Sequence[Any]) -> dict[str, Any]:
    """Arguments for such a statement."""
    return {f"p{number}": value for number, value in enumerate(args, 1)}
