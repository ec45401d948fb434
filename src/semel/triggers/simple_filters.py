"""Simple filters, such as `data.cents > 0 && data.currency == "EUR"`, decided without the library.

They compare fields of the data with a whole number, a text or a truth value. It is decided here only if the field is
there and of the same type as what it is compared with; all else is left to the library, so that what a filter means is
defined in one place. That takes a tenth of the time.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

_COMPARISON: Final = re.compile(
    r"""\s*(?:event\.)?data((?:\.[A-Za-z_]\w*)+)\s*(==|!=|<=|>=|<|>)\s*(-?\d{1,18}|"[^"\\]*"|'[^'\\]*'|true|false)\s*""",
    re.ASCII,
)
_SAME: Final = {"==": operator.eq, "!=": operator.ne}
_ORDER: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class Comparison(NamedTuple):
    """A field of the data, and what it is compared with."""

    path: tuple[str, ...]
    compare: Callable[[Any, Any], bool]
    literal: int | str | bool

    def decide(self, data: Any) -> bool | None:
        """Whether it holds; None: that is for the library to say."""
        for name in self.path:
            if type(data) is not dict:
                return None
            data = data.get(name)
        if type(data) is not type(self.literal) or (type(data) is int and not _LEAST <= data <= _MOST):
            return None
        return self.compare(data, self.literal)


def read_simple(text: str) -> tuple[Comparison, ...] | None:
    """The comparisons of a filter that has nothing else."""
    found = [_read_comparison(part) for part in text.split("&&")]
    return None if None in found else tuple(one for one in found if one is not None)


def decide_simple(comparisons: tuple[Comparison, ...], data: Any) -> bool | None:
    """Whether all hold; None: that is for the library to say. One that does not hold settles it, as in the library."""
    decided: bool | None = True
    for one in comparisons:
        holds = one.decide(data)
        if holds is False:
            return False
        if holds is None:
            decided = None
    return decided


def _read_comparison(text: str) -> Comparison | None:
    found = _COMPARISON.fullmatch(text)
    if found is None:
        return None
    path, sign, written = tuple(found[1][1:].split(".")), found[2], found[3]
    if written[0] in "-0123456789":
        return Comparison(path, (_SAME | _ORDER)[sign], int(written))
    if sign not in _SAME:  # the order of texts is the library's
        return None
    literal = written == "true" if written in ("true", "false") else written[1:-1]
    return Comparison(path, _SAME[sign], literal)
