"""One wrapper that observes any engine. Without an observer it is not even built."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import Any, cast

from semel.engine.protocol import Engine, Observer


def observed(engine: Engine, observer: Observer) -> Engine:
    """The engine, with every awaited verb reported to the observer."""
    return cast(Engine, _Observed(engine, observer))


class _Observed:
    def __init__(self, engine: Engine, observer: Observer) -> None:
        self._engine = engine
        self._observer = observer

    def __getattr__(self, verb: str) -> Any:
        member = getattr(self._engine, verb)
        if not inspect.iscoroutinefunction(member):
            return member
        timed = self._timed(verb, member)
        self.__dict__[verb] = timed
        return timed

    def _timed(self, verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            began, failure = time.perf_counter(), None
            try:
                return await call(*args, **kwargs)
            except BaseException as error:
                failure = error
                raise
            finally:
                self._observer.observe(verb, time.perf_counter() - began, failure)

        return wrapper
