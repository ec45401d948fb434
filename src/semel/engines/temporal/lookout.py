"""Notices work that no living worker has the function of, and names that two services use for different functions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from semel.define.registry import Registry
from semel.engine.service import ServiceWarner

if TYPE_CHECKING:
    from semel.engines.temporal.engine import TemporalEngine

log = logging.getLogger("semel.worker")
FIRST: Final = 5.0
"""Seconds after the start of a worker: by then those that start with it have told what they serve."""
EVERY: Final = 10.0


class Lookout:
    """Of one worker: looks around now and then, and warns once of each thing."""

    def __init__(self, engine: TemporalEngine, registry: Registry) -> None:
        self._engine = engine
        self._registry = registry
        self.warner = ServiceWarner(log)

    async def look(self) -> None:
        """Warn of work that nobody has the function of, and of names that stand for two functions."""
        names = {one.name for one in self._registry}
        workers = await self._engine.workers()
        self.warner.warn(await self._engine.unserved(workers), workers, names)
