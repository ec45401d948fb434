"""Notices work that no living worker has the function of, and names that two services use for different functions."""

from __future__ import annotations

import logging
from typing import Final

from semel.define.registry import Registry
from semel.engine.served_functions import ServiceWarner
from semel.engines.temporal.cluster import Cluster

log = logging.getLogger("semel.worker")
FIRST: Final = 5.0
"""Seconds after the start of a worker: by then those that start with it have told what they serve."""
EVERY: Final = 10.0


class Lookout:
    """Of one worker: looks around now and then, and warns once of each thing."""

    def __init__(self, cluster: Cluster, registry: Registry) -> None:
        self._cluster = cluster
        self._registry = registry
        self.warner = ServiceWarner(log)

    async def look(self) -> None:
        """Warn of work that nobody has the function of, and of names that stand for two functions."""
        names = {one.name for one in self._registry}
        workers = await self._cluster.workers()
        self.warner.warn(await self._cluster.unserved(workers), workers, names)
