"""A user's function within a transaction of the engine: what all databases do alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semel.engine.inside import inside_transaction
from semel.engine.outcomes import describe

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
