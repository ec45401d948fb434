"""Time inside a workflow of a cluster."""

from __future__ import annotations

from collections.abc import Callable

from temporalio import workflow

from semel.engines.temporal.cluster_time import cluster_time


class Clock:
    """Workflow time, and waits that notice when it is moved."""

    @property
    def ahead(self) -> int:
        """Microseconds by which it is ahead of the cluster's clock: none, unless a test moves time."""
        told = _cluster_time()
        return cluster_time(told) - told

    def now(self) -> int:
        """Microseconds since 1970."""
        return cluster_time(_cluster_time())

    async def until(self, due: int) -> None:
        """Wait for a time."""
        while (left := due - self.now()) > 0:
            try:
                await workflow.wait_condition(self._moved_since(self.ahead), timeout=left / 1e6)
            except TimeoutError:
                return

    def _moved_since(self, ahead: int) -> Callable[[], bool]:
        return lambda: self.ahead != ahead


def _cluster_time() -> int:
    return workflow.time_ns() // 1000
