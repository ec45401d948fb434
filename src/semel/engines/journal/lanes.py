"""Lanes: where work waits. Made on first use and never removed, so their numbers can be remembered.

A database that goes back in time may lose some all the same. Their numbers are random, so that none is given out again
for another lane, and whoever relies on a remembered number checks in the same statement that the lane is there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from semel.engine.start_request import RunOptions
from semel.engines.journal.script import ConnectionRole, Script, ScriptRunner, SqlQuery, procedure
from semel.runtime.retries import retry_unavailable

FLOWS = "@flows"
"""Lanes of workflows and entities: limits of a queue are for its tasks, not for turns."""
LaneKey = tuple[str, int, str, bool, bool]
"""(queue, priority, task with a rate limit of its own or "", keyed, suspect)"""


def lane_id(namespace: str, key: LaneKey) -> Script[int]:
    """The number of a lane, which is made if it is missing; part of a larger script."""
    while not (found := (yield SqlQuery("find_lane", (namespace, *key)))):
        yield SqlQuery("make_lane", (secrets.randbelow(2**31 - 1) + 1, namespace, *key))
    return int(found[0][0])


def lane_key(options: RunOptions) -> LaneKey:
    """What makes the lane that requests with these options go to."""
    own = options.name if options.rate_limited else ""
    return (options.queue, options.priority, own if options.kind == "task" else FLOWS, options.keyed, False)


@procedure(ConnectionRole.ADMIT, atomic=True)
def open_lane(namespace: str, key: LaneKey) -> Script[int]:
    """The number of a lane, by itself."""
    return (yield from lane_id(namespace, key))


class Lanes:
    """Lane numbers of one namespace, remembered."""

    def __init__(self, store: ScriptRunner, namespace: str, on_loss: Callable[[], None]) -> None:
        self._store = store
        self._on_loss = on_loss
        """Called when a lane seems to be gone: then so may be other things."""
        self._namespace = namespace
        self._known: dict[LaneKey, int] = {}

    async def of(self, options: RunOptions) -> int:
        """The lane that requests with these options go to."""
        key = lane_key(options)
        known = self._known.get(key)
        if known is None:
            known = await retry_unavailable(self._store.run, open_lane, self._namespace, key)
            self._known[key] = known
        return known

    def forget(self, options: RunOptions) -> None:
        """The lane may be gone: look it up before it is used again."""
        self._known.pop(lane_key(options), None)
        self._on_loss()

    def forget_all(self) -> None:
        """Every lane may be gone."""
        self._known.clear()
