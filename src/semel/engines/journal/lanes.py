"""Lanes: where work waits. Made on first use, never removed, so their numbers can be remembered."""

from __future__ import annotations

from semel.engine.protocol import Terms
from semel.engines.journal.patience import persistently
from semel.engines.journal.script import Ask, Line, Script, Store, procedure

FLOWS = "@flows"
"""Lanes of workflows and entities: limits of a queue are for its tasks, not for turns."""
LaneKey = tuple[str, int, str, bool, bool]
"""(queue, priority, task with a rate limit of its own or "", keyed, suspect)"""


def lane_id(namespace: str, key: LaneKey) -> Script[int]:
    """The number of a lane, which is made if it is missing; part of a larger script."""
    found = yield Ask("find_lane", (namespace, *key))
    if not found:
        yield Ask("make_lane", (namespace, *key))
        found = yield Ask("find_lane", (namespace, *key))
    return int(found[0][0])


@procedure(Line.ADMIT, atomic=True)
def open_lane(namespace: str, key: LaneKey) -> Script[int]:
    """The number of a lane, by itself."""
    return (yield from lane_id(namespace, key))


class Lanes:
    """Lane numbers of one namespace, remembered."""

    def __init__(self, store: Store, namespace: str) -> None:
        self._store = store
        self._namespace = namespace
        self._known: dict[LaneKey, int] = {}

    async def of(self, terms: Terms) -> int:
        """The lane that requests on these terms go to."""
        own = terms.name if terms.rate_limited else ""
        key = (terms.queue, terms.priority, own if terms.kind == "task" else FLOWS, terms.keyed, False)
        known = self._known.get(key)
        if known is None:
            known = await persistently(self._store.run, open_lane, self._namespace, key)
            self._known[key] = known
        return known
