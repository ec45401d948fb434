"""What a worker holds, compared with what the database says it holds.

The two differ after a claim whose reply was lost, and after the database went back in time: a crash of its server that
lost the last claims, a failover to a replica that lagged behind, a restore.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from semel.engines.journal.claims import Claim, Fence
from semel.engines.journal.leases import take_back_these
from semel.engines.journal.script import ConnectionRole, Script, SqlBatch, SqlQuery, procedure
from semel.runtime.retries import retry_unavailable

if TYPE_CHECKING:
    from semel.engines.journal.worker import JournalWorker

log = logging.getLogger("semel.worker")
SECOND_LOOK = 0.5
"""Seconds until a claim is looked for again that seems to be gone: its flow may just have come to rest."""
NAMED = 10
LATE_CLAIM = 65.0
"""Seconds after which no server carries out a claim any more that nobody waits for: its own limit is 55."""


class UnansweredClaims:
    """Claim statements whose answer never came: a server may carry one out after the first look for what it took."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._numbers: dict[int, float] = {}
        self.timer: asyncio.TimerHandle | None = None

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def add(self, numbers: Iterable[int]) -> None:
        """Remember that nothing of these was begun, and look again when none of them can take anything any more."""
        now = time.monotonic()
        self._numbers = {number: at for number, at in self._numbers.items() if now - at < 2 * LATE_CLAIM}
        self._numbers.update(dict.fromkeys(numbers, now))
        self.cancel()
        self.timer = asyncio.get_running_loop().call_later(LATE_CLAIM, self._look)

    def cancel(self) -> None:
        """Look no more."""
        if self.timer is not None:
            self.timer.cancel()


@procedure(ConnectionRole.CONTROL, atomic=True)
def owned(worker: int) -> Script[list[tuple[Fence, str]]]:
    """All that the database counts as this worker's, and what it is called. Looks at all work that is ready."""
    rows = yield SqlQuery("owned", (worker,))
    return [((lane, seq, token or 0, execution), name) for lane, seq, token, execution, name in rows]


@procedure(ConnectionRole.CONTROL)
def give_back(worker: int, name: str, unbegun: list[Fence], begun: list[Fence]) -> Script[None]:
    """Give back what was never begun, in its place; what may have run here is lost, and its attempt counts."""
    if unbegun:
        yield SqlBatch("release", list(unbegun), (worker,))
    if begun:
        yield from take_back_these(worker, name, begun)


@procedure(ConnectionRole.SETTLE, atomic=True, quiet=True)
def confirm(worker: int) -> Script[None]:
    """Wait until the claims that this worker has made are on disk."""
    yield SqlQuery("confirm", (worker,))


async def reconcile(worker: JournalWorker) -> None:
    """Give back what this worker owns and does not know, and drop what it runs and does not own.

    Nothing may be claimed meanwhile. Flows are given back as if they had not been begun: their journals know how far
    they are.
    """
    known = {*worker.running, *worker.unsettled}
    running = [claim for claim, _, _ in worker.running.values()]
    found = await retry_unavailable(worker.store.run, owned, worker.id)
    strays = [(fence, name) for fence, name in found if fence[2] not in known]
    if strays:
        unbegun = [fence for fence, name in strays if not _may_have_run(worker, fence, name)]
        begun = [fence for fence, _ in strays if fence not in unbegun]
        await retry_unavailable(worker.store.run, give_back, worker.id, worker.name, unbegun, begun)
        if begun:
            log.error(
                "worker %s owned %d tasks that it had finished or never heard of (%s): the database went back in time. "
                "Their attempts count as lost",
                worker.name,
                len(begun),
                ", ".join(fence[3] for fence in begun[:NAMED]),
            )
    worker.intake.unbegun.clear()
    worker.intake.hold_only(known)
    await _drop(worker, _missing(worker, running, found))


def _may_have_run(worker: JournalWorker, fence: Fence, name: str) -> bool:
    """Was it begun here? Not if the claim was never answered; a flow goes on from its journal in any case."""
    _, seq, token, _ = fence
    definition = worker.registry.get(name)
    if token - seq in worker.intake.unbegun or token - seq in worker.unanswered:
        return False
    return definition is None or definition.kind == "task"


def _missing(worker: JournalWorker, claims: list[Claim], found: list[tuple[Fence, str]]) -> list[Claim]:
    """Those of these claims that still run here, and are not in the database."""
    there = {fence[2] for fence, _ in found}
    running = (claim for claim, _, _ in worker.running.values())
    return [claim for claim in running if claim.token not in there and claim in claims]


async def _drop(worker: JournalWorker, missing: list[Claim]) -> None:
    if not missing:
        return
    await asyncio.sleep(SECOND_LOOK)
    missing = _missing(worker, missing, await retry_unavailable(worker.store.run, owned, worker.id))
    for claim in missing:
        _, running, task = worker.running.pop(claim.token)
        running.stopping = True
        task.cancel()
    if missing:
        log.error(
            "worker %s runs %d executions whose claims the database does not have (%s): it went back in time, or they "
            "were ended from outside. They are stopped here, and what they give is not written",
            worker.name,
            len(missing),
            ", ".join(claim.execution for claim in missing[:NAMED]),
        )
